"""What the arguments of a loader ask its supervisor for: a `Plan`, with its `Limits`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .._core.fork_or_clean import WorkerOrigin
from .._core.limits import Limits, LookLimits
from .._core.loader_plan import Plan, Source, Tenure
from .._core.reorder import Order
from .._loading.resumable_streams import is_stateful
from .._torch_internals import is_stream
from ..policies import policy_of
from .arguments import TORCH

if TYPE_CHECKING:
    from .loader_protocol import Loader


def plan_of(loader: Loader) -> Plan:
    """Return what the arguments of a loader ask its supervisor for."""
    streams, policy = is_stream(loader), policy_of(loader.on_error)
    source = Source.STREAMS if streams else Source.INDICES
    choice = loader._lineage().choice
    limits, starting = loader._limits, loader._limits.starting
    start_s = starting.clean_s if choice.asked_for else starting.clean_or_forked_s
    if choice.descent is WorkerOrigin.MAIN:
        start_s = starting.forked_s + starting.forked_each_s * loader.num_workers
    return Plan(
        seats=loader.num_workers,
        window=loader.num_workers * (loader.prefetch_factor or 2),
        order=Order.STRICT if loader.in_order else Order.OVERTAKE,
        source=source,
        tenure=Tenure.LOADER if loader.persistent_workers else Tenure.EPOCH,
        longest_bundle=limits.bundles.tickets if _may_bundle(loader) else 1,
        torch_draws=loader.randomness == TORCH,
        timeout_s=loader.timeout,
        spares=policy.action != "raise",
        restarts=streams,
        resumes=streams and (is_stateful(loader.dataset) or policy.action == "skip"),
        limits=_limits(limits, loader.sample_timeout, loader.worker_memory, start_s),
    )


def interval_for(sample_timeout: float | str | None, usual_s: float, limits: LookLimits) -> float:
    """Return the interval between two looks at calls that may last so long."""
    if sample_timeout is None or isinstance(sample_timeout, str):
        return usual_s
    return min(usual_s, max(limits.shortest_s, sample_timeout / 10))


def _limits(
    limits: Limits,
    sample_timeout: float | str | None,
    worker_memory: float | str | None,
    start_s: float,
) -> Limits:
    """Return the bounds of a loader, with what its arguments ask for."""
    limits = replace(limits, start_s=start_s, look_s=limits.looks.workers_s)
    if worker_memory is None:
        limits = replace(limits, short_share=0.0)
    elif not isinstance(worker_memory, str):
        limits = replace(limits, life_bytes=int(worker_memory))
    if sample_timeout is None:
        return replace(limits, still_s=None, spin_s=None)
    if isinstance(sample_timeout, str):
        return limits
    look_s = interval_for(sample_timeout, limits.looks.workers_s, limits.looks)
    return replace(limits, look_s=look_s, call_s=float(sample_timeout))


def _may_bundle(loader: Loader) -> bool:
    """Whether tiny batches may travel together, further ahead than `prefetch_factor` says.

    The default factor is ours to interpret; any other number is the user's own wish. Who wants
    batches to overtake each other wants none of them to queue behind a slow one. And what a lost
    worker had loaded of a stream, but not sent, nobody could load again. And where draws are
    torch's, every batch has a worker of its own, and a loop that is left early has had as many
    loaded as torch's.
    """
    single = is_stream(loader) or loader.randomness == TORCH
    return loader.prefetch_factor == 2 and loader.in_order and not single
