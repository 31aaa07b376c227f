"""How many cores this process may use."""

from __future__ import annotations

import os

from . import cgroups


def granted_cores() -> int:
    """Return the number of cores that the process may run on: by its affinity, and by the quota of
    its container; of all there are, where the system does not say."""
    affinity = getattr(os, "sched_getaffinity", None)
    granted = float((len(affinity(0)) if affinity is not None else os.cpu_count()) or 1)
    quota = cgroups.quota_cores([cgroups.ROOT])  # of the container, as processes in it see it
    if quota:
        granted = min(granted, quota)
    return max(1, int(granted))
