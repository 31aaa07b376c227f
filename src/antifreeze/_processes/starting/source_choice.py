"""Which source the workers of a loader have."""

from __future__ import annotations

from typing import Any

from ..._core.limits import Limits
from ..._loading.job import Job
from ..._transport.status_board import StatusBoard
from .multiprocessing_source import MultiprocessingSource
from .start_method import StartMethod, is_ours, torch_context, wish_of
from .worker_source import WorkerSource
from .zygote_source import ZygoteSource


def choose_source(
    job: Job, status: StatusBoard, context: Any, lineage: StartMethod | None, limits: Limits
) -> WorkerSource:
    """Return a new source. `context`: multiprocessing's, as the user gave it, if at all; `lineage`:
    where the loader's workers come from, if it has had some."""
    as_torch = torch_context(context)
    if job.torch_draws and as_torch.get_start_method() != "fork":
        return MultiprocessingSource(job, status, as_torch)
    if not is_ours(context):
        return MultiprocessingSource(job, status, context)
    lineage = lineage or StartMethod(wish_of(context), limits=limits)
    return ZygoteSource(job, status, lineage, limits)
