"""Locks of multiprocessing in a dataset, whose holder has died: found, and released.

The semaphore behind a lock knows nothing of its holder. So it is released only if all who could
hold it are accounted for: lives that wait for it do not, nor does this process.
"""

from __future__ import annotations

import sys
from multiprocessing import synchronize
from typing import Any

from .._linux import libc
from .._loading.dataset_walk import things_in
from .._loading.job import Job


def release(job: Job, address: int, *, forked: bool) -> str:
    """Release the lock that workers wait for at an address; give its name, or nothing.

    `forked` workers have it where we have it; others at an address of their own, and then it must
    be the only one.
    """
    found = {id(lock): (path, lock) for path, lock in _locks(job)}
    here = [each for each in found.values() if each[1]._semlock.handle == address]
    if not forked and not here and len(found) == 1:
        here = list(found.values())
    if len(here) != 1:
        return ""
    path, lock = here[0]
    if lock._semlock._count() or not lock._semlock._is_zero():
        return ""  # this process has it; or it is free by now
    # Not by its own method: a recursive lock lets nobody but its holder release it.
    return path if libc.post_semaphore(lock._semlock.handle) else ""


def _locks(job: Job) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, root in (("dataset", job.dataset), ("collate_fn", job.collate_fn)):
        for path, thing in things_in((root,)):
            found.append((name + path.removeprefix(type(root).__name__), thing))
        module = sys.modules.get(str(getattr(root, "__module__", "")))
        if module is not None:
            found += [(f"{module.__name__}.{each}", it) for each, it in list(vars(module).items())]
    return [(path, it) for path, it in found if type(it) in (synchronize.Lock, synchronize.RLock)]
