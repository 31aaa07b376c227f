"""Who holds what somebody sleeps for: the state of a lock in memory, and the locks on files.

Of a program's memory no more is read than what it has handed to the kernel: the four words of the
lock itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import PurePath

from ...._linux import procfs
from ...._linux.bounded_reads import machine_text, proc_link, proc_memory, proc_numbers, proc_text
from ...._linux.clock import monotonic
from ...._linux.syscalls import Syscall, code_address
from ..facts import FileLock, Process, Sharer

_PRIVATE = 128  # a flag of FUTEX: the lock is for the threads of one process
_WORDS = struct.Struct("<4I")
_MOST = 64  # locks on files that are written down
# Looked at for who shares a lock: enough for a workstation, and a fifth of a second.
_MOST_PROCESSES, _MOST_OPEN = 4000, 1000
SHARERS_S = 2.0  # for all of them: somebody may have opened as many files as there can be


def words(pid: int, call: tuple[int, ...]) -> tuple[int, ...]:
    """Return the words of the lock that a thread sleeps on; nothing if it cannot be read."""
    if len(call) < 2 or call[0] != Syscall.FUTEX:
        return ()
    found = proc_memory(pid, _WORDS.size, call[1])
    return _WORDS.unpack(found) if len(found) == _WORDS.size else ()


class Maps:
    """What lies at the addresses of a process; its table is read when it is first asked for."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @cached_property
    def _files(self) -> list[procfs.Mapping]:
        return procfs.mapped_files(proc_text(self._pid, "maps"))

    def at(self, address: int) -> tuple[str, str]:
        """Return the number and the path of the file that is mapped there; nothing if none is."""
        return next(
            ((each.inode, each.path) for each in self._files if each.low <= address < each.high),
            ("", ""),
        )

    def library(self, asked: str) -> str:
        """Return the library whose code is under way, from a thread's `syscall` file."""
        address = code_address(asked)
        return PurePath(self.at(address)[1]).name if address else ""


def file_of(maps: Maps, call: tuple[int, ...]) -> str:
    """Return the file in which a lock between processes is; nothing for one of threads."""
    if len(call) < 3 or call[0] != Syscall.FUTEX or call[2] & _PRIVATE:
        return ""
    inode, name = maps.at(call[1])
    return f"{name} [{inode}]" if name else ""


def file_locks(processes: tuple[Process, ...]) -> tuple[FileLock, ...]:
    """Return the locks on files that these processes have open, and who holds and wants them."""
    files = {inode: path for each in processes for inode, path in _inodes(each)}
    pids = {each.pid for each in processes}
    found: dict[str, FileLock] = {}
    for line in procfs.file_locks(machine_text("locks")):
        if line.waits and line.number in found:
            held = found[line.number]
            if len(held.waiting) < _MOST:
                found[line.number] = replace(held, waiting=(*held.waiting, line.pid))
        elif (line.inode in files or line.pid in pids) and len(found) < _MOST:
            path, name = files.get(line.inode, ""), _name(line.pid)
            found[line.number] = FileLock(line.kind, path, line.pid, name, line.first)
    return tuple(found.values())


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
    """Return the processes that have one of these files open with a lock on it, and who took it:
    the kernel writes that beside the descriptor."""
    until = monotonic() + SHARERS_S
    for pid in proc_numbers("", most=_MOST_PROCESSES):
        for number in proc_numbers(pid, "fd", most=_MOST_OPEN):
            if monotonic() > until:
                return
            if (path := proc_link(pid, "fd", str(number))) not in paths:
                continue
            told = proc_text(pid, "fdinfo", str(number))
            for kind, holder in procfs.descriptor_locks(told):
                if kind == "FLOCK":
                    yield pid, path, holder


def _inodes(process: Process) -> list[tuple[str, str]]:
    """Return number and path of the plain files it has open. The kernel's own table is read: to ask
    the file system could take for ever, if it is one of the network's."""
    found = []
    for each in process.descriptors:
        if not each.target.startswith("/") or each.target.startswith("/dev/"):
            continue
        fields = procfs.table(proc_text(process.pid, "fdinfo", str(each.number)))
        if inode := fields.get("ino"):
            found.append((inode, each.target))
    return found


def _name(pid: int) -> str:
    return proc_text(pid, "comm").strip() if pid > 0 else ""
