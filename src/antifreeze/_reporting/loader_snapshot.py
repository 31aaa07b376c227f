"""A loader and its iterators as frozen data, for outside eyes."""

from __future__ import annotations

from .._core.frozen_values import frozen
from .._core.inspection.state_snapshots import SupervisorSnapshot
from .ranks import Ranks
from .wait_totals import Accounts, SlowSample, Usage, Wait


@frozen
class DriverSnapshot:
    """One iterator, for outside eyes. Times are of all loops of its loader."""

    supervisor: SupervisorSnapshot
    waited_s: float
    away_s: float
    asks: int
    parcels: int
    fetch_s: float
    collate_s: float
    pack_s: float

    @classmethod
    def of(cls, supervisor: SupervisorSnapshot, accounts: Accounts) -> DriverSnapshot:
        work = accounts.work
        return cls(
            supervisor=supervisor,
            waited_s=accounts.waited_s,
            away_s=accounts.away_s,
            asks=accounts.batches,
            parcels=work.parcels,
            fetch_s=work.fetch_s,
            collate_s=work.collate_s,
            pack_s=work.pack_s,
        )


@frozen
class LoaderSnapshot:
    """A whole loader, for outside eyes: what it is, where it runs, what its iterators do."""

    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    in_order: bool
    ranks: Ranks
    iterators: tuple[DriverSnapshot, ...]
    usages: tuple[Usage, ...]  # of the machine, by each worker
    slowest: tuple[SlowSample, ...]  # the slowest last
    waits: tuple[Wait, ...]  # the latest that lasted ten milliseconds or more
    worker_source: str  # where its workers come from, in words; empty before the first
