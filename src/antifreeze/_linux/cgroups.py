"""Control groups: those that a process is in, and where their files are. Versions 1 and 2.

Version 2 has one hierarchy with all controllers. Version 1 has one for each controller, whose files
have other names. In a container the path of a group may be the host's, and no such folder exists:
then the top of the hierarchy, as it is seen here, is the container's own group.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from . import plain_reads, procfs

ROOT = "/sys/fs/cgroup"
UNLIMITED = 1 << 60  # bytes; version 1 has a larger number for "no limit"
MOST_LEVELS = 64  # of groups within groups; a machine has a few

Read = Callable[[str], str]  # what a file says; nothing if it cannot be read


@dataclass(frozen=True, slots=True)
class Group:
    """A control group that a process is in."""

    controller: str  # "memory", "cpu"; nothing in version 2, where a group has all of them
    path: str  # in its hierarchy

    @property
    def top(self) -> str:
        """The folder of the outermost group that is seen here."""
        return f"{ROOT}/{self.controller}" if self.controller else ROOT

    @property
    def folders(self) -> list[str]:
        """The folders of this group and of those around it, the outermost last."""
        folder = os.path.normpath(f"{self.top}/{self.path.lstrip('/')}")
        found: list[str] = []
        while folder.startswith(f"{self.top}/") and len(found) < MOST_LEVELS:
            found.append(folder)
            folder = os.path.dirname(folder)
        return [*found, self.top]


def groups_in(text: str) -> list[Group]:
    """Parse the `cgroup` file of a process: its groups."""
    return [
        Group(controller, path)
        for controllers, path in procfs.control_groups(text)
        for controller in controllers or [""]
    ]


def own_groups() -> list[Group]:
    """Return the groups of this process; none if they are not told."""
    return groups_in(plain_reads.text("/proc/self/cgroup"))


def first_value(folders: list[str], *names: str, read: Read = plain_reads.text) -> str:
    """Return what the first file that there is says: of the innermost folder that has one, by its
    name in one version or the other."""
    for folder in folders:
        for name in names:
            if found := read(f"{folder}/{name}"):
                return found
    return ""


def quota_cores(folders: list[str], read: Read = plain_reads.text) -> float:
    """Return how many cores the first of these groups that has a quota may use; 0 if none has."""
    unified = False
    for folder in folders:
        parts = read(f"{folder}/cpu.max").split()
        if len(parts) == 2 and (quota := procfs.whole(parts[0], -1)) >= 0:
            return _cores(quota, procfs.whole(parts[1]))
        unified = unified or bool(parts)
    if unified:  # "max"
        return 0.0
    return _cores(
        procfs.whole(first_value(folders, "cpu.cfs_quota_us", read=read)),  # -1, for none, is none
        procfs.whole(first_value(folders, "cpu.cfs_period_us", read=read)),
    )


def _cores(quota: int, period: int) -> float:
    return quota / period if quota > 0 and period > 0 else 0.0
