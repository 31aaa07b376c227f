"""What all processes of a program share: memory, folders, the limits of its container."""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path

from .environment import variable
from .facts import Group, Machine
from .proc import read

_KB = 1024
_NETWORKED = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs")
_NETWORKED_FUSE = ("fuse.",)  # s3fs, gcsfuse, sshfs: what stands behind them is elsewhere
_UNLIMITED = 1 << 60  # what version 1 of control groups says for none

FOLDER_S = 1.0  # for a folder to answer: a disk takes milliseconds
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
    memory = _table(_text(Path("/proc/meminfo")))
    pages = _table(_text(Path("/proc/vmstat")))
    root = Path(f"/proc/{pid}/root")
    temporary = _temporary(pid)
    # A folder that is not the root's is one of the folder that the process works in.
    top = root if temporary.startswith("/") else Path(f"/proc/{pid}/cwd")
    shm, inside = _folders(root / "dev/shm", top / temporary.lstrip("/"))
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
        container=_in_container(pid),
        group=_group(pid),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _table(text: str) -> dict[str, int]:
    found = {}
    for line in text.splitlines():
        parts = line.replace(":", " ").split()
        if len(parts) >= 2 and parts[1].isdigit():
            found[parts[0]] = int(parts[1])
    return found


def _folders(*paths: Path) -> list[_Folder]:
    """Look at folders, for a second at the most: one on a server that is gone never answers. What
    is not known by then is left as it is, and the thread that waits for it with it."""
    found = {path: _Folder() for path in paths}

    def look(path: Path) -> None:
        found[path] = _folder(path)

    threads = [threading.Thread(target=look, args=(path,), daemon=True) for path in paths]
    for each in threads:
        each.start()
    for each in threads:
        each.join(FOLDER_S)
    return [found[path] for path in paths]


def _folder(path: Path) -> _Folder:
    """Look at a folder; what may not be looked at is not missing."""
    try:
        there = stat.S_ISDIR(os.stat(path).st_mode)
        room = os.statvfs(path)
    except (FileNotFoundError, NotADirectoryError):
        return _Folder(there=False)
    except OSError:
        return _Folder()
    size, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    return _Folder(there, size, free, room.f_favail)


def _temporary(pid: int) -> str:
    return variable(pid, "TMPDIR") or "/tmp"


def _network_mounts(pid: int) -> tuple[str, ...]:
    found = []
    for line in read(pid, "mounts").splitlines():
        _, folder, kind, *_ = line.split()
        if kind in _NETWORKED or kind.startswith(_NETWORKED_FUSE):
            found.append(f"{folder} ({kind})")
    return tuple(found)


def _in_container(pid: int) -> bool:
    root = Path(f"/proc/{pid}/root")
    marks = (root / ".dockerenv", root / "run/.containerenv")
    try:
        return any(mark.exists() for mark in marks) or "container=" in read(1, "environ")
    except OSError:
        return False


def _group(pid: int) -> Group:
    """Read the limits of its control group: version 2, and what version 1 calls otherwise."""
    folders = _group_folders(pid)
    cpu = _table(_first(folders, "cpu.stat"))
    quota, period = _quota(folders)
    events = _table(_first(folders, "memory.events"))
    limit = _whole(_first(folders, "memory.max", "memory.limit_in_bytes"))
    throttled_us = cpu.get("throttled_usec", cpu.get("throttled_time", 0) // 1000)
    return Group(
        memory_limit=0 if limit >= _UNLIMITED else limit,
        memory_used=_whole(_first(folders, "memory.current", "memory.usage_in_bytes")),
        reclaims=events.get("max", 0) or _whole(_first(folders, "memory.failcnt")),
        kills=events.get("oom_kill", 0),
        quota_cores=quota / period if quota > 0 and period > 0 else 0.0,
        throttled=cpu.get("nr_throttled", 0),
        throttled_s=throttled_us / 1e6,
    )


def _group_folders(pid: int) -> list[Path]:
    """Give where its limits may be written: its own group first, then what it sees as the root."""
    found = []
    top = Path("/sys/fs/cgroup")
    for line in read(pid, "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(",") if controllers else [""]:
            inner = top / name / path.lstrip("/")
            found += [inner, *inner.parents, top / name]
    return [each for each in dict.fromkeys([*found, top]) if each == top or top in each.parents]


def _first(folders: list[Path], *names: str) -> str:
    for folder in folders:
        for name in names:
            if text := _text(folder / name):
                return text
    return ""


def _whole(text: str) -> int:
    return int(text) if text.strip().isdigit() else 0


def _quota(folders: list[Path]) -> tuple[int, int]:
    for folder in folders:
        parts = _text(folder / "cpu.max").split()
        if len(parts) == 2 and parts[0].isdigit():
            return int(parts[0]), int(parts[1])
    quota = _first(folders, "cpu.cfs_quota_us").strip()
    return (
        int(quota) if quota.lstrip("-").isdigit() else 0,
        _whole(_first(folders, "cpu.cfs_period_us")),
    )
