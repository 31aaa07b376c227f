"""Who is at the other end of a socket: the kernel's tables, read once a look."""

from __future__ import annotations

import re

from ...._linux import procfs
from ...._linux.bounded_reads import proc_text

_INODE = re.compile(r"socket:\[(\d+)\]$")


class Sockets:
    """Name sockets. `pid`: whose network namespace it is."""

    def __init__(self, pid: int) -> None:
        self._names = procfs.unix_sockets(proc_text(pid, "net", "unix"))
        for kind in ("tcp", "tcp6", "udp", "udp6"):
            self._names |= procfs.internet_sockets(kind, proc_text(pid, "net", kind))

    def name(self, target: str) -> str:
        """Return what a descriptor leads to, in words where it is a socket."""
        found = _INODE.match(target)
        return self._names.get(found[1], target) if found else target
