"""How many cores this process may use."""

from __future__ import annotations

import os

_QUOTA = "/sys/fs/cgroup/cpu.max"  # of the container, as processes in it see it


def granted_cores() -> int:
    """Return the number of cores that the process may run on: by its affinity, and by the quota of
    its container; of all there are, where the system does not say."""
    affinity = getattr(os, "sched_getaffinity", None)
    granted = float((len(affinity(0)) if affinity is not None else os.cpu_count()) or 1)
    try:
        with open(_QUOTA) as file:
            quota, period = file.read().split()
        if quota != "max":
            granted = min(granted, int(quota) / int(period))
    except (OSError, ValueError):
        pass
    return max(1, int(granted))
