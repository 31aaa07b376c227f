"""Which line has taken the lock that another one wants, read from a file."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest

from antifreeze._linux.syscalls import Syscall
from antifreeze.doctor.attach.facts import Frame, Process, Thread
from antifreeze.doctor.attach.gather.lock_acquire_lines import with_acquire_lines

WANTS, HAS = "# wants", "# has"  # how a source marks the two lines


def taken(folder: Path, source: str, *names: str) -> list[int]:
    """Return the lines that have the lock, counted from the marked one; `names`: the functions of
    the marked lines, the innermost first."""
    file = folder / "script.py"
    text = dedent(source)
    file.write_text(text)
    lines = text.splitlines()
    marks = (WANTS, HAS)[: len(names)]
    marked = [next(at for at, each in enumerate(lines, 1) if mark in each) for mark in marks]
    frames = [Frame(name, str(file), line) for name, line in zip(names, marked, strict=True)]
    below = Frame("acquire", "libpython.so", native=True)
    thread = Thread(7, call=(Syscall.FUTEX, 4096, 393), frames=(below, *frames))
    [process] = with_acquire_lines([Process(os.getpid(), 1, threads=(thread,))])
    return [each.line - marked[-1] for each in process.threads[0].taken_at]


OF_THE_MODULE = """
import threading
lock = threading.Lock()

def inner():
    with lock:  # wants
        return 1

def outer():
    with lock:
        return inner()  # has
"""


def test_a_lock_of_the_module_is_the_same_everywhere(tmp_path: Path) -> None:
    assert taken(tmp_path, OF_THE_MODULE, "inner", "outer") == [0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        return inner()  # has", "        pass\n    inner()  # has"),  # given back before
        ("def inner():", "def inner(lock=other):"),  # another lock of the same name
        ("    with lock:  # wants", "    lock = other\n    with lock:  # wants"),
        ("    with lock:  # wants", "    with lock, other:  # wants"),  # which of the two?
        ("    with lock:\n        return inner()", "    with another:\n        return inner()"),
        ("def inner():\n", "def inner(:\n"),  # not Python, or another version of it
    ],
)  # fmt: skip
def test_what_may_be_another_lock_is_none(tmp_path: Path, old: str, new: str) -> None:
    assert old in OF_THE_MODULE
    assert taken(tmp_path, OF_THE_MODULE.replace(old, new), "inner", "outer") == []


def test_acquire_counts_until_release(tmp_path: Path) -> None:
    source = """
    import threading
    lock = threading.Lock()

    def inner():
        lock.acquire()  # wants
        lock.release()

    def outer():
        lock.acquire()
        {}
        inner()  # has
        lock.release()
    """
    assert taken(tmp_path, source.format("print()"), "inner", "outer") == [0]
    assert taken(tmp_path, source.format("lock.release()"), "inner", "outer") == []


def test_an_acquire_that_may_fail_does_not_count(tmp_path: Path) -> None:
    source = """
    import threading
    lock = threading.Lock()

    def inner():
        with lock:  # wants
            return 1

    def outer():
        lock.acquire(timeout=1)
        inner()  # has
    """
    assert taken(tmp_path, source, "inner", "outer") == []


@pytest.mark.parametrize(
    ("inner", "found"),
    [
        ("with lock:\n        print()\n        with lock:  # wants has\n            pass", [0]),
        ("with lock:\n        pass\n    with lock:  # wants has\n        pass", []),
        ("lock.acquire()\n    lock.acquire()  # wants has", [0]),
        ("if 1:\n        lock.acquire()\n    else:\n        lock.acquire()  # wants has", []),
        ("for _ in 1, 2:\n        lock.acquire()  # wants has\n        lock.release()", []),
        ("lock.acquire()\n    try:\n        lock.acquire()  # wants has\n    except: pass", [0]),
    ],
)
def test_one_function_may_take_it_twice(tmp_path: Path, inner: str, found: list[int]) -> None:
    source = f"import threading\nlock = threading.Lock()\n\ndef read():\n    {inner}\n"
    assert taken(tmp_path, source.replace("# wants has", "# wants # has"), "read") == found


OF_AN_OBJECT = """
class Store:
    def load(self):
        with self.guard:  # wants
            return 1

    def get(self):
        with self.guard:
            return self.load()  # has
"""


def test_a_lock_of_self_is_the_same_where_self_is(tmp_path: Path) -> None:
    assert taken(tmp_path, OF_AN_OBJECT, "Store.load", "Store.get") == [0]
    other = OF_AN_OBJECT.replace("return self.load()", "return self.parent.load()")
    assert taken(tmp_path, other, "Store.load", "Store.get") == []


def test_of_another_class_it_is_another_lock(tmp_path: Path) -> None:
    assert taken(tmp_path, OF_AN_OBJECT, "Store.load", "Cache.get") == []


def test_the_module_itself_may_have_it(tmp_path: Path) -> None:
    source = """
    import threading
    lock = threading.Lock()

    def inner():
        with lock:  # wants
            return 1

    with lock:
        inner()  # has
    """
    assert taken(tmp_path, source, "inner", "<module>") == [0]


def test_a_file_that_is_none_or_too_long_is_not_read(tmp_path: Path) -> None:
    assert taken(tmp_path, OF_THE_MODULE + "#" * 500_000, "inner", "outer") == []
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    frames = (Frame("inner", str(pipe), 1), Frame("outer", str(pipe), 2))
    process = Process(
        os.getpid(), 1, threads=(Thread(7, call=(Syscall.FUTEX, 1, 1), frames=frames),)
    )
    assert with_acquire_lines([process]) == (process,)
