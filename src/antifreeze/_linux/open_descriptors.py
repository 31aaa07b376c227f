"""Open descriptors: those of this process, what each stands for, and how to open that anew."""

from __future__ import annotations

import os
import stat

from . import procfs
from .plain_reads import contents

OWN_DESCRIPTORS = "/proc/self/fd"


def own_descriptors() -> list[int]:
    """Return the open descriptors of this process. The one that lists them is among them, and is
    closed by then. Raise OSError if they cannot be listed."""
    return [int(name) for name in os.listdir(OWN_DESCRIPTORS)]


def own_path(descriptor: int) -> str:
    """Return a path that leads to what a descriptor of this process stands for, whatever its own
    name is, and if it has none."""
    return f"{OWN_DESCRIPTORS}/{descriptor}"


def own_target(descriptor: int) -> str:
    """Return the kernel's name for what a descriptor stands for: a path, or "socket:[...]". Raise
    OSError if it is not open."""
    return os.readlink(f"{OWN_DESCRIPTORS}/{descriptor}")


def own_lock_kinds(descriptor: int) -> set[str]:
    """Return the kinds of the locks on an open file that this process holds by a descriptor: FLOCK,
    OFDLCK, POSIX. Raise OSError if it is not open."""
    told = contents(f"/proc/self/fdinfo/{descriptor}").decode(errors="replace")
    return {kind for kind, _ in procfs.descriptor_locks(told)}


def open_their_file(pid: int, descriptor: int, target: str, flags: int) -> int | None:
    """Open what a descriptor of another process stands for, if that is a regular file of this name.

    The process may put anything in its place meanwhile: what is opened is what was looked at.
    Return None if it is something else; raise OSError if it cannot be opened.
    """
    probe = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_PATH | os.O_CLOEXEC)
    try:
        if own_target(probe) != target or not stat.S_ISREG(os.fstat(probe).st_mode):
            return None
        return os.open(own_path(probe), flags | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(probe)
