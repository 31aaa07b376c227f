"""What one process has used of the machine, as the kernel counts it."""

from __future__ import annotations

from .._linux import live_processes as live
from .._linux import procfs
from .._reporting.wait_totals import Usage


def usage_of(worker: int, pid: int) -> Usage:
    """Return what a worker process has used; what cannot be seen is 0."""
    status, stat = live.status(f"{pid}"), live.stat(f"{pid}")
    memory, io = procfs.memory_use(status), live.io_counts(f"{pid}")
    return Usage(
        worker=worker,
        cpu_s=stat.cpu * live.TICK_S if stat is not None else 0.0,
        own_bytes=memory.own,
        shared_bytes=memory.shared,
        swapped_bytes=memory.swapped,
        read_bytes=io.get("rchar", 0),
        written_bytes=io.get("wchar", 0),
        threads=procfs.quantity(status, "Threads"),
    )
