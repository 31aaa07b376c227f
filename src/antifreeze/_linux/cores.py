"""How many cores this process may use."""

from __future__ import annotations

import os


def granted_cores() -> int:
    """Return the number of cores that the process may run on; of all there are, where the system
    does not say."""
    affinity = getattr(os, "sched_getaffinity", None)
    return (len(affinity(0)) if affinity is not None else os.cpu_count()) or 1
