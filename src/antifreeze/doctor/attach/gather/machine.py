"""What all processes of a program share: memory, folders, the limits of its container."""

from __future__ import annotations

import os
import stat
from dataclasses import astuple, dataclass
from typing import Any

from ...._linux import cgroups, procfs
from ...._linux.bounded_reads import machine_text, path_seen_by, proc_text, system_text
from ..facts import Group, Machine
from .environment import variable
from .isolated_call import run_isolated

_KB = 1024
_NETWORKED = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs")
_NETWORKED_FUSE = ("fuse.",)  # s3fs, gcsfuse, sshfs: what stands behind them is elsewhere

MOST_MOUNTS = 64  # that are written down; a machine has a few
MOST_GROUPS = 64  # folders in which limits are looked for
FOLDERS_S = 5.0  # for folders to answer, and for a process to start that asks them: 50 ms
_gave_no_answer: set[int] = set()  # programs whose folders are not asked again
_NOT_KNOWN = -1  # 0 would be a full one


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder and the file system that it is on; a size of 0: not known."""

    there: bool = True
    size: int = 0
    free: int = 0
    files: int = 0  # that may be made


def machine(pid: int) -> Machine:
    """Look at the machine as this process sees it."""
    memory = procfs.counters(machine_text("meminfo"))
    pages = procfs.counters(machine_text("vmstat"))
    temporary, shm, inside, container = _seen_isolated(pid)
    return Machine(
        cores=os.cpu_count() or 0,
        load=os.getloadavg()[0],
        memory=memory.get("MemTotal", 0) * _KB,
        memory_free=memory.get("MemAvailable", 0) * _KB,
        swap=memory.get("SwapTotal", 0) * _KB,
        swap_free=memory.get("SwapFree", 0) * _KB,
        swapped_in=pages.get("pswpin", 0),
        swapped_out=pages.get("pswpout", 0),
        shm=shm.size,
        shm_free=shm.free,
        shm_inodes_free=shm.files,
        temporary=temporary,
        temporary_there=inside.there,
        temporary_free=inside.free if inside.size else _NOT_KNOWN,
        network_mounts=_network_mounts(pid),
        container=container,
        group=_group(pid),
    )


def _seen_isolated(pid: int) -> tuple[str, _Folder, _Folder, bool]:
    """Return what only the program's own file systems know: its folder for temporary files, that
    and its /dev/shm, and whether it is in a container. What does not answer is not known."""
    if pid in _gave_no_answer:
        found = None
    else:
        found = run_isolated(look_at_folders, pid, FOLDERS_S)
    marked = "container=" in proc_text(1, "environ")
    if found is None:
        _gave_no_answer.add(pid)
        return _temporary(pid, asks=False), _Folder(), _Folder(), marked
    temporary, shm, inside, container = found
    return temporary, _Folder(*shm), _Folder(*inside), container or marked


def look_at_folders(pid: int) -> tuple[str, tuple[Any, ...], tuple[Any, ...], bool]:
    """Look at them; called in a process of its own."""
    temporary = _temporary(pid)
    shm = _folder(path_seen_by(pid, "/dev/shm"))
    inside = _folder(path_seen_by(pid, temporary))
    return temporary, astuple(shm), astuple(inside), _in_container(pid)


def _folder(path: str) -> _Folder:
    """Look at a folder; what may not be looked at is not missing."""
    try:
        there = stat.S_ISDIR(os.stat(path).st_mode)
        room = os.statvfs(path)
    except (FileNotFoundError, NotADirectoryError):
        return _Folder(there=False)
    except (OSError, ValueError):
        return _Folder()
    size, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    return _Folder(there, size, free, room.f_favail)


def _temporary(pid: int, *, asks: bool = True) -> str:
    """Return the folder for temporary files. Not `asks`: as it was when the program started."""
    started = [each for each in procfs.strings(proc_text(pid, "environ")) if each[:7] == "TMPDIR="]
    found = variable(pid, "TMPDIR") if asks else "".join(started[:1])[7:]
    return found or "/tmp"


def _network_mounts(pid: int) -> tuple[str, ...]:
    found = [
        f"{folder} ({kind})"
        for folder, kind in procfs.mounts(proc_text(pid, "mounts"))
        if kind in _NETWORKED or kind.startswith(_NETWORKED_FUSE)
    ]
    return tuple(found[:MOST_MOUNTS])


def _in_container(pid: int) -> bool:
    marks = ("/.dockerenv", "/run/.containerenv")
    return any(os.path.lexists(path_seen_by(pid, mark)) for mark in marks)


def _group(pid: int) -> Group:
    """Read the limits of its control group: version 2, and what version 1 calls otherwise."""
    folders = _group_folders(pid)

    def first(*names: str) -> str:
        return cgroups.first_value(folders, *names, read=system_text)

    cpu = procfs.counters(first("cpu.stat"))
    events = procfs.counters(first("memory.events"))
    limit = procfs.whole(first("memory.max", "memory.limit_in_bytes"))
    throttled_us = cpu.get("throttled_usec", cpu.get("throttled_time", 0) // 1000)
    return Group(
        memory_limit=0 if limit >= cgroups.UNLIMITED else limit,
        memory_used=procfs.whole(first("memory.current", "memory.usage_in_bytes")),
        reclaims=events.get("max", 0) or procfs.whole(first("memory.failcnt")),
        kills=events.get("oom_kill", 0),
        quota_cores=cgroups.quota_cores(folders, system_text),
        throttled=cpu.get("nr_throttled", 0),
        throttled_s=throttled_us / 1e6,
    )


def _group_folders(pid: int) -> list[str]:
    """Return where its limits may be written: its own group first, then what it sees as the
    root."""
    groups = cgroups.groups_in(proc_text(pid, "cgroup"))
    found = [folder for group in groups for folder in group.folders]
    return list(dict.fromkeys([*found, cgroups.ROOT]))[:MOST_GROUPS]
