"""Who holds what somebody sleeps for: the state of a lock in memory, and the locks on files.

Of a program's memory four words are read, those of the lock itself, or until when it sleeps; they
hold none of its data.
"""

from __future__ import annotations

import os
import struct
from functools import cached_property
from pathlib import Path

from ..._clock import monotonic
from .calls import Call
from .facts import FileLock, Process

_PRIVATE = 128  # a flag of FUTEX: the lock is for the threads of one process
_WORDS = struct.Struct("<4I")
# Of a sleep: the clock that is ours too, and the flag for a point in time.
_MONOTONIC, _UNTIL = 1, 1
_TIME = struct.Struct("<2q")
_MOST = 64  # locks on files that are written down


def words(pid: int, call: tuple[int, ...]) -> tuple[int, ...]:
    """Give the words of the lock that a thread sleeps on; nothing if it cannot be read."""
    if len(call) < 2 or call[0] != Call.FUTEX:
        return ()
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    except OSError:
        return ()
    try:
        return _WORDS.unpack(os.pread(memory, _WORDS.size, call[1]))
    except (OSError, OverflowError, struct.error):
        return ()
    finally:
        os.close(memory)


def sleeps_s(pid: int, call: tuple[int, ...]) -> float:
    """Give the seconds that a thread has still to sleep, if it sleeps until a given time, as
    Python's `time.sleep` does; 0 if it does not."""
    if len(call) < 4 or call[:3] != (Call.CLOCK_NANOSLEEP, _MONOTONIC, _UNTIL):
        return 0.0
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    except OSError:
        return 0.0
    try:
        whole, parts = _TIME.unpack(os.pread(memory, _TIME.size, call[3]))
        left: float = whole + parts / 1e9 - monotonic()
        return max(0.0, left)
    except (OSError, OverflowError, struct.error):
        return 0.0
    finally:
        os.close(memory)


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
    return FileLock(
        lock.kind,
        lock.path,
        lock.holder,
        lock.holder_name,
        lock.first,
        (*lock.waiting, waiting),
    )


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
