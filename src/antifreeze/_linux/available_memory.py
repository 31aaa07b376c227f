"""How much memory this process can still get: the machine's, its container's, its own limits."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from .._core.frozen_values import frozen
from . import cgroups, plain_reads, procfs
from .live_processes import own_mapped_bytes

_UNLIMITED = cgroups.UNLIMITED
_KB = 1024


@frozen
class Available:
    """What is left, and what says so."""

    bytes: int
    source: str  # "free in this machine", "left of the 64 MB this container may use"
    of: int = 0  # bytes in all; 0: nobody knows


def available() -> Available:
    """Return the tightest limit. Never raises; what cannot be read limits nothing."""
    return min(_limits(), key=lambda limit: limit.bytes)


def in_words(size: float) -> str:
    """Write bytes as people do: 812 B, 41.9 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


def _limits() -> Iterator[Available]:
    yield Available(_UNLIMITED, "without any limit known")
    machine = procfs.counters(plain_reads.text("/proc/meminfo"))
    if (free := machine.get("MemAvailable")) is not None:
        yield Available(free * _KB, "available in this machine", machine.get("MemTotal", 0) * _KB)
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest != resource.RLIM_INFINITY:
        yield Available(largest, "available to one file of this process (RLIMIT_FSIZE)")
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY and (left := _address_space_left(space)) is not None:
        yield Available(left, "available of this process's address space (RLIMIT_AS)")
    for group in cgroups.own_groups():
        if not group.controller:
            yield from _unified(group)
        elif group.controller == "memory":
            yield from _legacy(group)


def _address_space_left(limit: int) -> int | None:
    try:
        return max(0, limit - own_mapped_bytes())
    except OSError:
        return None


def _unified(group: cgroups.Group) -> Iterator[Available]:
    """Look at the group and all around it; in a container the path may be the host's."""
    folders = group.folders
    if not plain_reads.text(f"{folders[0]}/memory.max"):
        folders = [group.top]
    for folder in folders:
        yield from _limit(folder, "memory.max", "memory.current")


def _legacy(group: cgroups.Group) -> Iterator[Available]:
    """Look at the group alone: what others have in the groups around it is not in their counts."""
    folder = group.folders[0]
    if not plain_reads.text(f"{folder}/memory.limit_in_bytes"):
        folder = group.top
    yield from _limit(folder, "memory.limit_in_bytes", "memory.usage_in_bytes")


def _limit(folder: str, limit: str, usage: str) -> Iterator[Available]:
    most = procfs.whole(plain_reads.text(f"{folder}/{limit}"), -1)
    used = procfs.whole(plain_reads.text(f"{folder}/{usage}"), -1)
    if most < 0 or used < 0 or most >= _UNLIMITED:
        return
    counted = procfs.counters(plain_reads.text(f"{folder}/memory.stat"))
    # The kernel takes these back where it needs them.
    reclaimable = counted.get("inactive_file", 0) + counted.get("active_file", 0)
    left = max(0, most - used + reclaimable)
    yield Available(left, f"available of the {in_words(most)} this container may use", most)
