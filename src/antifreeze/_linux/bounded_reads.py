"""Read files of other processes and of other users: bounded in bytes, bounded in time.

1. Only regular files are opened (`regular_files`): to open a FIFO would block, or release a process
   that waits for its reader.
2. At most so many bytes are read. A sparse file has terabytes, a table of the kernel may be long.
3. Each read is done by a thread that is left behind when it takes too long: a file on a server that
   is gone, or of a process that is being replaced (execve), may not answer at all, and no signal
   interrupts it. Whoever did not answer once is not asked again for `UNRESPONSIVE_S`.

Never raises for what it reads: what cannot be read is empty.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from .clock import monotonic
from .regular_files import open_regular

PROC = "/proc"  # another folder in tests
READ_S = 1.0  # for one read; /proc answers in microseconds, a disk in milliseconds
UNRESPONSIVE_S = 30.0  # during which somebody who did not answer is not asked again
IDLE_S = 0.5  # after which a thread that has nothing to do ends
MOST_LEFT_BEHIND = 64  # threads that wait for an answer; more are not started
MOST_UNRESPONSIVE = 1000  # that are remembered
PROC_BYTES = 1 << 16  # of a file of /proc; most have less than a page
# Files of /proc that may be longer: 65,530 mappings of 100 characters, a long environment.
_LONGER = {"maps": 1 << 24, "environ": 1 << 20, "mounts": 1 << 20, "unix": 1 << 22}
_LONGER |= dict.fromkeys(("tcp", "tcp6", "udp", "udp6", "locks"), 1 << 22)
MOST_ENTRIES = 20_000  # entries of a folder: a process may have a million open files
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

T = TypeVar("T")


class _Reader:
    """A thread that does one thing after the other, for whoever waits for it."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="antifreeze-reader", daemon=True).start()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job()
            del job
        _left_behind.discard(self)

    def _next(self) -> _Job | None:
        """Return what to do next; None when there has been nothing for a while, or never will."""
        while True:
            try:
                return self.jobs.get(timeout=IDLE_S)
            except queue.Empty:
                try:
                    _idle.remove(self)
                except ValueError:  # somebody has just taken it, and is about to ask
                    continue
                return None

    def __repr__(self) -> str:
        return f"<_Reader {self.jobs.qsize()} to do>"


_Job = Callable[[], None]
_idle: list[_Reader] = []
_left_behind: set[_Reader] = set()
_unresponsive: dict[object, float] = {}  # who did not answer -> until when it is not asked


def in_time(work: Callable[[], T], otherwise: T, wait_s: float = READ_S) -> T:
    """Return what a call returns, or `otherwise` if that takes too long. Raises what it raises."""
    if len(_left_behind) >= MOST_LEFT_BEHIND:
        return otherwise
    answer: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def job() -> None:
        try:
            answer.put((work(), None))
        except BaseException as error:  # raised where it was asked for
            answer.put((None, error))

    try:
        reader = _idle.pop()
    except IndexError:
        reader = _Reader()
    reader.jobs.put(job)
    try:
        value, error = answer.get(timeout=wait_s)
    except BaseException as error:
        _left_behind.add(reader)
        reader.jobs.put(None)  # it leaves when it gets its answer
        if isinstance(error, queue.Empty):
            return otherwise
        raise  # Ctrl-C
    _idle.append(reader)
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def read_in_time(source: object, work: Callable[[], T], otherwise: T) -> T:
    """Return what a call returns; `otherwise` if it takes too long, or did so lately for the same
    source. Raises what the call raises."""
    if _unresponsive and monotonic() < _unresponsive.get(source, 0.0):
        return otherwise
    late: list[bool] = [True]

    def noted() -> T:
        try:
            return work()
        finally:
            late[0] = False

    found = in_time(noted, otherwise)
    if late[0]:
        if len(_unresponsive) >= MOST_UNRESPONSIVE:
            _unresponsive.clear()
        _unresponsive[source] = monotonic() + UNRESPONSIVE_S
    return found


def proc_text(pid: int | str, *name: str) -> str:
    """Return a file of a process's folder in /proc; nothing if there is none, or it may not be
    read. The names are ours: nothing of others is in them."""
    most = _LONGER.get(name[-1], PROC_BYTES)
    path = _path(pid, *name)
    return _read_or_nothing((pid, name[-1]), path, most).decode(errors="replace")


def proc_link(pid: int | str, *name: str) -> str:
    """Return where a link of a process's folder leads, by name; nothing if it may not be read. The
    kernel knows the name: no file system is asked."""
    try:
        return os.readlink(_path(pid, *name))
    except (OSError, ValueError):
        return ""


def proc_memory(pid: int, size: int, address: int) -> bytes:
    """Return what a process has at an address, or the beginning of it; nothing if it may not be
    read."""

    def work() -> bytes:
        memory = os.open(_path(pid, "mem"), _READ)
        try:
            return os.pread(memory, size, address)
        finally:
            os.close(memory)

    try:
        return read_in_time((pid, "mem"), work, b"")
    except (OSError, ValueError, OverflowError):
        return b""


def proc_numbers(pid: int | str, *name: str, most: int = MOST_ENTRIES) -> list[int]:
    """Return the numbers that a folder of a process's lists, in order: its threads (`task`), its
    open files (`fd`), and of /proc itself the processes; none if it may not be read."""

    def work() -> list[int]:
        with os.scandir(_path(pid, *name)) as entries:
            names = (each.name for each in entries)
            return sorted(itertools.islice((int(name) for name in names if name.isdigit()), most))

    try:
        return read_in_time((pid, *name), work, [])
    except OSError:
        return []


def machine_text(name: str) -> str:
    """Return a table of /proc that is about the whole machine: `meminfo`, `locks`."""
    return system_text(f"/proc/{name}")


def path_seen_by(pid: int, path: str) -> str:
    """Return where a path leads for a process, which may have another root folder than we: in a
    container. One that does not begin with "/" is meant from the folder that it works in."""
    return _path(pid, f"root{path}" if path.startswith("/") else f"cwd/{path}")


def system_text(path: str) -> str:
    """Return a file of the kernel's (/proc, /sys) that is about no process."""
    most = _LONGER.get(path.rpartition("/")[2], PROC_BYTES)
    return _read_or_nothing(path, path, most).decode(errors="replace")


def file_bytes(path: str, most: int, pid: int = 0) -> bytes | None:
    """Return a file that may be anything and anywhere; None if it is not a regular file, is larger
    than `most` bytes, or cannot be read. `pid`: through whose eyes it is seen."""

    def work() -> bytes | None:
        data = _contents(open_regular(path, follow=True), most + 1)
        return data if len(data) <= most else None

    try:
        return read_in_time(("file", pid), work, None)
    except (OSError, ValueError):
        return None


def file_part(path: str, at: int, size: int, pid: int = 0) -> bytes:
    """Return some bytes of a regular file, or fewer at its end; nothing if it is none."""

    def work() -> bytes:
        file = open_regular(path, follow=True)
        try:
            return os.pread(file, size, at)
        finally:
            os.close(file)

    try:
        return read_in_time(("file", pid), work, b"")
    except (OSError, ValueError, OverflowError):
        return b""


def unresponsive_processes() -> list[int]:
    """Return the processes of which some file did not answer lately."""
    now = monotonic()
    late = [source for source, until in _unresponsive.items() if now < until]
    return sorted({each[0] for each in late if isinstance(each, tuple) and type(each[0]) is int})


def _path(pid: int | str, *name: str) -> str:
    return "/".join((PROC, str(pid), *name))


def _read_or_nothing(source: object, path: str, most: int) -> bytes:
    try:
        return read_in_time(source, lambda: _read(path, most), b"")
    except (OSError, ValueError):
        return b""


def _read(path: str, most: int) -> bytes:
    return _contents(os.open(path, _READ), most)


def _contents(file: int, most: int) -> bytes:
    """Return at most so many bytes, and close the file."""
    try:
        parts: list[bytes] = []
        left = most
        while left > 0 and (part := os.read(file, min(left, 1 << 16))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(file)


def _forget_readers() -> None:
    """In a forked child: the threads are its parent's."""
    _idle.clear()
    _left_behind.clear()
    _unresponsive.clear()


os.register_at_fork(after_in_child=_forget_readers)
