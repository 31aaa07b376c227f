"""What one process has used of the machine, as the kernel counts it."""

from __future__ import annotations

import os
import re

from .._reporting.wait_accounting import Usage

_KB = re.compile(rb"^(RssAnon|RssShmem|RssFile|VmSwap|Threads):\s+(\d+)", re.MULTILINE)
_IO = re.compile(rb"^(rchar|wchar): (\d+)$", re.MULTILINE)
_TICKS = os.sysconf("SC_CLK_TCK")


def usage_of(worker: int, pid: int) -> Usage:
    """Look at a process; what cannot be seen is 0."""
    status = {key: int(value) for key, value in _KB.findall(_read(pid, "status"))}
    io = {key: int(value) for key, value in _IO.findall(_read(pid, "io"))}
    after_name = _read(pid, "stat").rpartition(b") ")[2].split()
    return Usage(
        worker=worker,
        cpu_s=sum(int(each) for each in after_name[11:13]) / _TICKS,
        own_bytes=1024 * status.get(b"RssAnon", 0),
        shared_bytes=1024 * (status.get(b"RssShmem", 0) + status.get(b"RssFile", 0)),
        swapped_bytes=1024 * status.get(b"VmSwap", 0),
        read_bytes=io.get(b"rchar", 0),
        written_bytes=io.get(b"wchar", 0),
        threads=status.get(b"Threads", 0),
    )


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
