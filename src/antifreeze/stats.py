"""What a loader has counted, as plain numbers. docs/waiting.md defines each of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ._core.frozen_values import record
from ._core.limits import LIMITS
from ._linux.cores import granted_cores
from ._reporting.explain import Explanation, Profile, explain
from ._reporting.redaction import shareable_line
from ._reporting.wait_totals import CAUSES, Accounts

if TYPE_CHECKING:
    from ._reporting.fault_log import FaultTally

__all__ = ["Explanation"]


@record
class Entry:
    """One loader, for who looks at all of a program. It may outlive the loader: it holds nothing
    of it, nor of its dataset."""

    profile: Profile
    accounts: Accounts
    faults: FaultTally

    def explain(self) -> Explanation:
        profile = replace(
            self.profile, cores=granted_cores()
        )  # to count them at each epoch would cost
        with self.accounts.guard:  # loops go on counting
            told = explain(self.accounts, profile, self.faults.seen)
        return Explanation(
            shareable_line(told.sentence),
            tuple(map(shareable_line, told.evidence)),
            tuple(map(shareable_line, told.advice)),
        )


_entries: list[Entry] = []
_inherited: list[Entry] = []  # of the process that this one was forked from
# Called when a loader begins to be looped over, before its workers are there. They never raise.
listeners: list[Callable[[], None]] = []


def enter(entry: Entry) -> None:
    """Keep the accounts of a loader that begins an epoch. Beyond a number of them, the
    one goes whose loops were shortest: a program may make a loader an epoch for its validation."""
    for listener in listeners:
        listener()
    if any(each is entry for each in _inherited):
        _inherited[:] = [each for each in _inherited if each is not entry]
        entry.accounts = Accounts(guard=threading.RLock(), limits=entry.accounts.limits)
    if any(each is entry for each in _entries):
        return
    if len(_entries) >= LIMITS.records.loaders:
        _entries.remove(min(_entries, key=lambda each: each.accounts.seconds))
    _entries.append(entry)


def entries() -> list[Entry]:
    """Give all loaders of this program that were looped over, the longest loops first."""
    return sorted(_entries, key=lambda each: -each.accounts.seconds)


def forget_parent() -> None:
    """In a forked child: what its parent has counted is not its own. (Loaders begin anew when they
    are looped over, not here: most children are workers, and loop over none.)"""
    _inherited.extend(_entries)
    _entries.clear()


os.register_at_fork(after_in_child=forget_parent)


def flat(entry: Entry) -> dict[str, float]:
    """Give all numbers of one loader."""
    with entry.accounts.guard:  # loops go on counting
        return _flat(entry)


def _flat(entry: Entry) -> dict[str, float]:
    accounts, profile = entry.accounts, entry.profile
    seconds, work = accounts.seconds, accounts.work
    numbers: dict[str, float] = {
        "epochs": accounts.epochs,
        "batches": accounts.batches,
        "samples": work.samples,
        "seconds": seconds,
        "samples_per_s": work.samples / seconds if seconds else 0.0,
        "waited_s": accounts.waited_so_far_s,
        "away_s": accounts.away_s,
        "wait_share": accounts.wait_share,
    }
    for cause in CAUSES:
        numbers[f"wait_{cause}_s"] = accounts.waited_for(cause)
    for name, histogram in (
        ("wait", accounts.waits),
        ("away", accounts.aways),
        ("sample", accounts.sample_s),
    ):
        numbers[f"{name}_p50_s"] = histogram.quantile(0.5)
        numbers[f"{name}_p99_s"] = histogram.quantile(0.99)
        numbers[f"{name}_max_s"] = histogram.highest
    slowest = accounts.slowest[-1].seconds if accounts.slowest else 0.0
    numbers |= {
        "slowest_sample_s": slowest,
        "workers": profile.workers,
        "work_fetch_io_s": work.io_s,
        "work_fetch_cpu_s": work.fetch_s - work.io_s,
        "work_collate_s": work.collate_s,
        "work_pack_s": work.pack_s,
        "workers_busy_share": accounts.busy_share,
        "workers_lost": entry.faults.lost,
        "faults": entry.faults.seen,
        "replaced": entry.faults.verdicts["replaced"],
        "skipped": entry.faults.verdicts["skipped"],
    }
    return numbers | _usage(accounts)


def _usage(accounts: Accounts) -> dict[str, float]:
    usages = accounts.usages
    return {
        "workers_cpu_s": sum(each.cpu_s for each in usages),
        "worker_own_bytes": max((each.own_bytes for each in usages), default=0),
        "worker_shared_bytes": max((each.shared_bytes for each in usages), default=0),
        "worker_swapped_bytes": max((each.swapped_bytes for each in usages), default=0),
        "workers_read_bytes": sum(each.read_bytes for each in usages),
        "workers_written_bytes": sum(each.written_bytes for each in usages),
        "workers_threads": sum(each.threads for each in usages),
    }
