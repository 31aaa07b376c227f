"""What the engine asks of a loader: of `DataLoader`, whose module imports the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import torch

    from .._core.limits import Limits
    from .._linux.clock import Clock
    from .._loading.job import Job
    from .._processes.backend_protocol import Backend
    from .._processes.starting.start_method import StartMethod
    from .._reporting.explain import Profile
    from .._reporting.fault_log import LoaderFaults
    from ..policies import Policy
    from ..stats import Entry


class Loader(Protocol):
    """A loader as the engine sees it: torch's arguments, ours, and what is kept with it."""

    @property
    def dataset(self) -> Any: ...

    @property
    def batch_size(self) -> int | None: ...

    @property
    def num_workers(self) -> int: ...

    @property
    def timeout(self) -> float: ...

    @property
    def batch_sampler(self) -> Any: ...

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any]: ...

    @property
    def worker_init_fn(self) -> Callable[[int], None] | None: ...

    @property
    def generator(self) -> torch.Generator | None: ...

    @property
    def prefetch_factor(self) -> int | None: ...

    @property
    def multiprocessing_context(self) -> Any: ...

    @property
    def persistent_workers(self) -> bool: ...

    @property
    def in_order(self) -> bool: ...

    @property
    def sample_timeout(self) -> float | Literal["auto"] | None: ...

    @property
    def on_error(self) -> Literal["raise", "replace", "skip"] | Policy: ...

    @property
    def worker_memory(self) -> float | Literal["auto"] | None: ...

    @property
    def randomness(self) -> Literal["sample", "torch"]: ...

    @property
    def _index_sampler(self) -> Iterable[Any]: ...

    @property
    def _quarantined(self) -> frozenset[Any]: ...

    @property
    def _made_at(self) -> str: ...

    @property
    def _limits(self) -> Limits: ...

    @property
    def _book(self) -> LoaderFaults: ...

    @property
    def _entry(self) -> Entry: ...

    def __len__(self) -> int: ...

    def _backend(self, job: Job) -> Backend: ...

    def _clock(self) -> Clock: ...

    def _lineage(self) -> StartMethod: ...

    def _profile(self) -> Profile: ...

    def _settled(self) -> Entry: ...

    def _worker_source(self) -> str: ...
