"""How much memory this process can still get: the machine's, its container's, its own limits."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from .._core.messages import frozen

CGROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # bytes; larger figures stand for "no limit"


@frozen
class Available:
    """What is left, and what says so."""

    bytes: int
    source: str  # "free in this machine", "left of the 64 MB this container may use"
    of: int = 0  # bytes in all; 0: nobody knows


def available() -> Available:
    """Find the tightest limit. Never raises; what cannot be read limits nothing."""
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
    total = 0
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) * 1024
        if line.startswith("MemAvailable:"):
            yield Available(int(line.split()[1]) * 1024, "available in this machine", total)
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest != resource.RLIM_INFINITY:
        yield Available(largest, "available to one file of this process (RLIMIT_FSIZE)")
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY and (pages := _read(Path("/proc/self/statm")).split()):
        left = max(0, space - int(pages[0]) * resource.getpagesize())
        yield Available(left, "available of this process's address space (RLIMIT_AS)")
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _unified(path)
        elif "memory" in controllers.split(","):
            yield from _legacy(path)


def _unified(path: str) -> Iterator[Available]:
    """Look at the group and all above it; in a container the path may be the host's."""
    group = CGROUPS / path.lstrip("/")
    if not _read(group / "memory.max"):
        group = CGROUPS
    while True:
        yield from _group(group / "memory.max", group / "memory.current", group / "memory.stat")
        if group == CGROUPS or CGROUPS not in group.parents:
            return
        group = group.parent


def _legacy(path: str) -> Iterator[Available]:
    group = CGROUPS / "memory" / path.lstrip("/")
    if not _read(group / "memory.limit_in_bytes"):
        group = CGROUPS / "memory"
    yield from _group(
        group / "memory.limit_in_bytes", group / "memory.usage_in_bytes", group / "memory.stat"
    )


def _group(limit: Path, usage: Path, stat: Path) -> Iterator[Available]:
    most, used = _number(limit), _number(usage)
    if most is None or used is None or most >= _UNLIMITED:
        return
    reclaimable = 0
    for line in _read(stat).splitlines():
        if line.startswith(("inactive_file ", "active_file ")):  # the kernel gives these back
            reclaimable += int(line.split()[1])
    left = max(0, most - used + reclaimable)
    yield Available(left, f"available of the {in_words(most)} this container may use", most)


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
