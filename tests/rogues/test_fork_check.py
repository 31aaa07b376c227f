"""The looks before and after a fork, and what the child hears of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antifreeze import DataLoader
from antifreeze._core.fork_or_clean import WorkerOrigin
from antifreeze._processes.fork_safety import fork_hazards, threads_at_fork

from ..patience import PATIENCE_S
from .parked import wait_until_parked

SAMPLES = 24


@contextlib.contextmanager
def an_idle_thread() -> Iterator[threading.Thread]:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        wait_until_parked(thread)
        yield thread
    finally:
        done.set()
        thread.join()


# ---- what happens after the look -----------------------------------------------------------------


class Notes:
    """Notes for each worker whose child it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, worker: int) -> None:
        (self.folder / str(os.getpid())).write_text(str(os.getppid()))

    def parents(self) -> set[int]:
        return {int(each.read_text()) for each in self.folder.iterdir()}


def test_a_thread_that_takes_a_lock_between_the_look_and_the_fork_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it may where another hook, which runs after ours, gives the GIL away. No code of the
    program's runs in the child, though nobody knew before the fork."""
    go, holds, done = threading.Event(), threading.Event(), threading.Event()
    lock, notes = threading.Lock(), Notes(tmp_path)

    def work() -> None:
        go.wait()
        with lock:
            holds.set()
            done.wait()

    look = threads_at_fork._Check.look

    def and_more(self: Any) -> None:
        look(self)
        go.set()
        holds.wait()

    monkeypatch.setattr(threads_at_fork._Check, "look", and_more)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_until_parked(thread)
        data: Any = list(range(SAMPLES))
        loader: DataLoader[Any] = DataLoader(data, 2, num_workers=2, worker_init_fn=notes)
        assert [int(i) for batch in loader for i in batch] == data
    finally:
        done.set()
        thread.join()
    choice = loader._lineage().choice
    assert choice.descent is WorkerOrigin.CLEAN_PROCESS
    assert "another thread ran while this process was forked" in choice.why
    assert notes.parents() and os.getpid() not in notes.parents()


HOOKS = """
import os, sys, threading, time
go, holds = threading.Event(), threading.Event()

def quiesce():  # registered first, so it runs last
    go.set()
    holds.wait()

os.register_at_fork(before=quiesce)
from antifreeze._processes.fork_safety import threads_at_fork as fork_check
from antifreeze._processes.fork_safety.parked_threads import running
from antifreeze._processes.fork_safety.reachable_objects import NOTHING_REACHED
lock = threading.Lock()

def work():
    go.wait()
    with lock:
        holds.set()
        threading.Event().wait()

thread = threading.Thread(target=work, daemon=True)
thread.start()
while running(sys._current_frames()[thread.ident]):
    time.sleep(0.01)
with fork_check.looking(NOTHING_REACHED) as check:
    pid = os.fork()
    if pid == 0:
        os._exit(fork_check.is_void() + 2 * lock.locked())
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), check.unsafe)
"""


def ran(tmp_path: Path, code: str) -> str:
    (tmp_path / "hooks.py").write_text(code)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "hooks.py")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.stderr == ""
    return done.stdout


def test_hooks_that_were_registered_before_ours_may_let_threads_run(tmp_path: Path) -> None:
    said = ran(tmp_path, HOOKS)
    assert said == "3 another thread ran while this process was forked\n"


ORPHAN = """
import os, signal, sys, threading, time
from antifreeze._processes.fork_safety import threads_at_fork as fork_check
from antifreeze._processes.fork_safety.reachable_objects import NOTHING_REACHED
read, write = os.pipe()
if (parent := os.fork()) == 0:
    fork_check._Check.compare = lambda self: os.kill(os.getpid(), signal.SIGKILL)
    with fork_check.looking(NOTHING_REACHED):
        if os.fork() == 0:
            os.write(write, str(fork_check.is_void()).encode())
            os._exit(0)
os.close(write)
print(os.read(read, 100).decode())
os.waitpid(parent, 0)
"""


def test_a_child_whose_parent_is_gone_before_it_has_looked_leaves(tmp_path: Path) -> None:
    assert ran(tmp_path, ORPHAN) == "True\n"


class Intervals:
    """Tells how long a thread has the GIL, in a worker."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        return sys.getswitchinterval()


def test_threads_take_turns_as_before_after_a_fork() -> None:
    before = sys.getswitchinterval()
    dataset: Any = Intervals()
    with an_idle_thread():
        loader: DataLoader[Any] = DataLoader(dataset, None, num_workers=2)
        assert set(loader) == {before}
        assert loader._lineage().choice.descent is WorkerOrigin.MAIN
    assert sys.getswitchinterval() == before


# ---- what a handler of a signal raises -----------------------------------------------------------


class Late(Exception):
    """What the program's handler raises."""


@contextlib.contextmanager
def handled(error: type[BaseException]) -> Iterator[None]:
    """Have SIGUSR1 raise an error, wherever the main thread is."""

    def handle(number: int, frame: Any) -> None:
        raise error("too late")

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("error", [Late, TimeoutError])
@pytest.mark.parametrize("at", ["_look", "compare"])
def test_what_a_handler_of_a_signal_raises_during_a_look_arrives(
    at: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python swallows what is raised in a hook. No process is left, and the next loop works."""
    have_changed = fork_hazards.Positions.have_changed
    calls: list[str] = []

    def interrupted(self: fork_hazards.Positions) -> bool:
        calls.append(sys._getframe(1).f_code.co_name)
        if at not in calls[:-1] and calls[-1] == at:
            signal.raise_signal(signal.SIGUSR1)
        return have_changed(self)

    data: Any = list(range(SAMPLES))
    loader: DataLoader[Any] = DataLoader(data, 2, num_workers=2)
    with an_idle_thread(), handled(error):
        monkeypatch.setattr(fork_hazards.Positions, "have_changed", interrupted)
        with pytest.raises(error, match="too late"):
            list(loader)
        assert at in calls
        monkeypatch.undo()
        assert [int(i) for batch in loader for i in batch] == data
