"""Who holds what somebody sleeps for: the state of a lock in memory, and the locks on files.

Of a program's memory no more is read than what it has handed to the kernel: the four words of the
lock itself, until when it sleeps, the path that it opens, the descriptors that it waits for.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ..._clock import monotonic
from .calls import OPENS, Call
from .facts import FileLock, Process, Sharer

_PRIVATE = 128  # a flag of FUTEX: the lock is for the threads of one process
_WORDS = struct.Struct("<4I")
# Of a sleep: the clock that is ours too, and the flag for a point in time.
_MONOTONIC, _UNTIL = 1, 1
_TIME = struct.Struct("<2q")
_MOST = 64  # locks on files that are written down
_LONGEST = 4096  # bytes of a path, as the kernel allows (PATH_MAX)
_POLLED = struct.Struct("<ihh")  # a descriptor, and for what it is waited
_MOST_WATCHED = 64  # descriptors: a server has thousands, and then it is none of ours
# Looked at for who shares a lock: enough for a workstation, and a fifth of a second.
_MOST_PROCESSES, _MOST_OPEN = 4000, 1000


def _memory(pid: int, size: int, address: int) -> bytes:
    """Give what a process has at an address, or the beginning of it; nothing if it may not be
    read."""
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.pread(memory, size, address)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(memory)


def words(pid: int, call: tuple[int, ...]) -> tuple[int, ...]:
    """Give the words of the lock that a thread sleeps on; nothing if it cannot be read."""
    if len(call) < 2 or call[0] != Call.FUTEX:
        return ()
    found = _memory(pid, _WORDS.size, call[1])
    return _WORDS.unpack(found) if len(found) == _WORDS.size else ()


def sleeps_s(pid: int, call: tuple[int, ...]) -> float:
    """Give the seconds that a thread has still to sleep, if it sleeps until a given time, as
    Python's `time.sleep` does; 0 if it does not."""
    if len(call) < 4 or call[:3] != (Call.CLOCK_NANOSLEEP, _MONOTONIC, _UNTIL):
        return 0.0
    found = _memory(pid, _TIME.size, call[3])
    if len(found) != _TIME.size:
        return 0.0
    whole, parts = _TIME.unpack(found)
    left: float = whole + parts / 1e9 - monotonic()
    return max(0.0, left)


def opens(pid: int, call: tuple[int, ...]) -> str:
    """Give the path that a thread is about to open; nothing if it opens none, or if what is there
    does not look like one."""
    if len(call) < 3 or call[0] not in OPENS:
        return ""
    place = call[1] if call[0] == Call.OPEN else call[2]
    path, end, _ = _memory(pid, _LONGEST, place).partition(b"\0")
    text = path.decode(errors="replace")
    return text if end and text.isprintable() and "\ufffd" not in text else ""


def watches(pid: int, call: tuple[int, ...], waits_in: str) -> tuple[int, ...]:
    """Give the descriptors that a thread waits for in `poll` or `epoll_wait`; nothing if they are
    not known. `waits_in`: the kernel's function, since a `poll` that was interrupted goes on under
    another name."""
    if len(call) < 3:
        return ()
    if call[0] in (Call.EPOLL_WAIT, Call.EPOLL_PWAIT):
        lines = _text(Path(f"/proc/{pid}/fdinfo/{call[1]}")).splitlines()
        found = [int(line.split()[1]) for line in lines if line.startswith("tfd:")]
        return tuple(found) if len(found) <= _MOST_WATCHED else ()
    goes_on = call[0] == Call.RESTARTED and "poll_schedule" in waits_in
    if not (call[0] in (Call.POLL, Call.PPOLL) or goes_on) or not 0 < call[2] <= _MOST_WATCHED:
        return ()
    size = call[2] * _POLLED.size
    table = _memory(pid, size, call[1])
    if len(table) != size:
        return ()
    return tuple(number for number, _, _ in _POLLED.iter_unpack(table) if number >= 0)


class Maps:
    """Say what lies at an address of a process; its table is read when it is first asked for."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @cached_property
    def _areas(self) -> list[tuple[int, int, str, str]]:
        found = []
        for line in _text(Path(f"/proc/{self._pid}/maps")).splitlines():
            place, _, _, _, inode, *name = line.split(maxsplit=5)
            low, _, high = place.partition("-")
            if name and name[0].startswith("/"):
                found.append((int(low, 16), int(high, 16), inode, name[0].strip()))
        return found

    def at(self, address: int) -> tuple[str, str]:
        """Give the number and the path of the file that is mapped there; nothing if none is."""
        return next(
            ((inode, name) for low, high, inode, name in self._areas if low <= address < high),
            ("", ""),
        )

    def library(self, asked: str) -> str:
        """Give the library whose code is under way, from a thread's `syscall` file."""
        parts = asked.split()
        return Path(self.at(int(parts[-1], 16))[1]).name if len(parts) == 9 else ""


def file_of(maps: Maps, call: tuple[int, ...]) -> str:
    """Give the file in which a lock between processes is; nothing for one of threads."""
    if len(call) < 3 or call[0] != Call.FUTEX or call[2] & _PRIVATE:
        return ""
    inode, name = maps.at(call[1])
    return f"{name} [{inode}]" if name else ""


def file_locks(processes: tuple[Process, ...]) -> tuple[FileLock, ...]:
    """Give the locks on files that these processes have open, and who holds and wants them."""
    text = _text(Path("/proc/locks"))
    if not text:
        return ()
    files = {inode: path for each in processes for inode, path in _inodes(each)}
    pids = {each.pid for each in processes}
    found: dict[str, FileLock] = {}
    for line in text.splitlines():
        number, *fields = line.split()
        if waits := fields[:1] == ["->"]:
            fields = fields[1:]
        if len(fields) < 6 or not fields[3].lstrip("-").isdigit():
            continue
        kind, pid, inode, first = fields[0], int(fields[3]), fields[4].rpartition(":")[2], fields[5]
        if waits and number in found:
            held = found[number]
            found[number] = _with(held, pid)
        elif inode in files or pid in pids:
            path = files.get(inode, "")
            found[number] = FileLock(kind, path, pid, _name(pid), int(first))
    return tuple(found.values())[:_MOST]


def _with(lock: FileLock, waiting: int) -> FileLock:
    return replace(lock, waiting=(*lock.waiting, waiting))


def with_sharers(locks: tuple[FileLock, ...]) -> tuple[FileLock, ...]:
    """Add to each lock who else has it. One of the kind FLOCK belongs to an open file, which
    children inherit: it is not free before the last of them has closed it."""
    shared = {each.path for each in locks if each.kind == "FLOCK" and each.path}
    if not shared:
        return locks
    found: dict[tuple[str, int], list[Sharer]] = {}
    for pid, path, holder in _holders(shared):
        if pid != holder:
            found.setdefault((path, holder), []).append(Sharer(pid, _name(pid)))
    return tuple(
        replace(each, sharers=tuple(dict.fromkeys(found.get((each.path, each.holder), ()))))
        for each in locks
    )


def _holders(paths: set[str]) -> Iterator[tuple[int, str, int]]:
    """Give the processes that have one of these files open with a lock on it, and who took it: the
    kernel writes that beside the descriptor."""
    everyone = [int(each) for each in os.listdir("/proc") if each.isdigit()]
    for pid in everyone[:_MOST_PROCESSES]:
        folder = f"/proc/{pid}/fd"
        try:
            numbers = os.listdir(folder)[:_MOST_OPEN]
        except OSError:
            continue  # another user's, or it has ended
        for number in numbers:
            try:
                path = os.readlink(f"{folder}/{number}")
            except OSError:
                continue
            if path not in paths:
                continue
            for line in _text(Path(f"/proc/{pid}/fdinfo/{number}")).splitlines():
                fields = line.split()
                if fields[:1] == ["lock:"] and "FLOCK" in fields and fields[5].isdigit():
                    yield pid, path, int(fields[5])


def _inodes(process: Process) -> list[tuple[str, str]]:
    """Give number and path of the plain files it has open. The kernel's own table is read: to ask
    the file system could take for ever, if it is one of the network's."""
    found = []
    for each in process.descriptors:
        if not each.target.startswith("/") or each.target.startswith("/dev/"):
            continue
        for line in _text(Path(f"/proc/{process.pid}/fdinfo/{each.number}")).splitlines():
            if line.startswith("ino:"):
                found.append((line.split()[1], each.target))
    return found


def _name(pid: int) -> str:
    return _text(Path(f"/proc/{pid}/comm")).strip() if pid > 0 else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
