"""`DataLoader`: torch's signature and behaviour on our engine. The only file that knows torch's.

1. A real subclass: torch's constructor checks and stores the arguments; public attributes are its.
2. Nothing starts before `iter`. Each iterator has its own driver; persistent workers keep theirs.
3. Clean-up is tied to the iterator's life by weakref, in the process that made it, and to exit.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import os
import signal
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.utils.data as torch_data
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _sharding_worker_init_fn,
    _share_dist_seed,
)
from torch.utils.data.graph_settings import apply_sharding

from . import _platform, options
from ._backends.base import Backend
from ._backends.inline import InlineBackend
from ._backends.pinned import PinnedBackend
from ._clock import Clock, MonotonicClock
from ._core.plan import Drawing, Limits, Plan, Source, Tenure
from ._core.reorder import Order
from ._core.story import KEPT
from ._driver import Driver, DriverSnapshot
from ._ranks import Ranks, ranks
from ._worker.fetch import Fetcher
from ._worker.spec import Job

T = TypeVar("T", covariant=True)

STORY_LIMIT: int | None = KEPT  # entries; tests that replay whole runs lift it

_PARAMETERS = frozenset(inspect.signature(torch_data.DataLoader.__init__).parameters) - {"self"}

_iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()  # those somebody still holds
_drivers: weakref.WeakSet[Driver] = weakref.WeakSet()  # open ones, for the end of the program


@dataclass(frozen=True, slots=True)
class LoaderSnapshot:
    """A whole loader, for outside eyes: what it is, where it runs, what its iterators do."""

    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    in_order: bool
    ranks: Ranks
    iterators: tuple[DriverSnapshot, ...]


class DataLoader(torch_data.DataLoader[T]):
    """A drop-in for `torch.utils.data.DataLoader` that does not freeze.

    Takes every argument of torch's loader and behaves as it does; see the migration page for the
    few places where torch's behaviour was a trap.
    """

    def __init__(
        self,
        dataset: torch_data.Dataset[T],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: torch_data.Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: torch_data.Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name in _PARAMETERS}
        strict = not _platform.switched_off()
        if strict:
            options.check_types(arguments)
        try:
            super().__init__(**arguments)
        except (TypeError, ValueError) as error:
            options.name_values(error, arguments)
            raise
        if strict:
            options.check_together(arguments)

    def __iter__(self) -> _BaseDataLoaderIter:
        kept = self._iterator
        if isinstance(kept, LoaderIterator) and not kept.can_go_on:
            self._iterator = None  # interrupted, broken, closed, or made before a fork
        return super().__iter__()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_iterator" and value is None:
            # Trainers reset a loader by this assignment; its workers must not stay behind.
            kept = self.__dict__.get("_iterator")
            if isinstance(kept, LoaderIterator):
                kept._shutdown_workers()
        super().__setattr__(name, value)

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if _platform.switched_off() or not _supported():
            return super()._get_iterator()
        if self.num_workers > 0:
            self.check_worker_number_rationality()
        return LoaderIterator(self)

    def snapshot(self) -> LoaderSnapshot:
        """Give the state of the whole loader as frozen data. Starts nothing, waits for nothing."""
        return LoaderSnapshot(
            num_workers=self.num_workers,
            prefetch_factor=self.prefetch_factor,
            persistent_workers=self.persistent_workers,
            in_order=self.in_order,
            ranks=ranks(),
            iterators=tuple(it.snapshot() for it in _iterators.copy() if it.serves(self)),
        )

    def _clock(self) -> Clock:
        return MonotonicClock()

    def _backend(self, job: Job) -> Backend:
        """Choose who loads. A seam: simulations put their own backend here."""
        if self.num_workers == 0:
            return InlineBackend(Fetcher(job))
        from ._backends.processes import ProcessBackend

        return ProcessBackend(job, self.multiprocessing_context)


class LoaderIterator(_BaseDataLoaderIter):
    """One loop over a loader. Looks like torch's iterators where others look at them."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)  # torch's: seeds, the sampler's iterator, whether to pin
        if self._num_workers == 0:
            if isinstance(self._dataset, IterDataPipe | MapDataPipe):
                apply_sharding(self._dataset, self._world_size, self._rank)
        elif isinstance(self._dataset, IterDataPipe):
            # torch draws a seed once more here; later draws of the program must not move.
            _share_dist_seed(loader.generator, self._pg)  # type: ignore[no-untyped-call]
        clock = loader._clock()
        backend = self._with_pinning(loader._backend(self._job(loader)))
        self._driver = Driver(_plan(loader), backend, clock, story_limit=STORY_LIMIT)
        self._finished = False
        _drivers.add(self._driver)
        _close_all_at_exit()
        # Not `__del__`: an iterator may be collected in a forked child, where nothing is ours.
        self._finalizer = weakref.finalize(self, _close_in, os.getpid(), self._driver)
        self._finalizer.atexit = False
        self._loader = weakref.ref(loader)
        _iterators.add(self)
        self._driver.begin_epoch(self._sampler_iter, int(self._base_seed), self._shared_seed)

    def __next__(self) -> Any:
        if torch._C._autograd._profiler_enabled():  # 10 us a batch that only a profiler needs
            with torch.autograd.profiler.record_function(self._profile_name):
                return self._next_data()
        return self._next_data()

    def _next_data(self) -> Any:
        if self._finished:
            raise StopIteration
        try:
            data = self._driver.next()
        except StopIteration:
            if not self._persistent_workers:
                self._finished = True
                self._shutdown_workers()
            raise
        self._num_yielded += 1
        said: int | None = self._IterableDataset_len_called
        if said is not None and self._num_yielded > said:
            self._warn_of_length(said)
        return data

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Begin the next epoch with the same workers."""
        super()._reset(loader, first_iter)
        self._driver.begin_epoch(self._sampler_iter, int(self._base_seed), self._shared_seed)

    @property
    def can_go_on(self) -> bool:
        """Say whether another epoch can begin with the workers of this one."""
        return self._driver.can_go_on

    def serves(self, loader: DataLoader[Any]) -> bool:
        return self._loader() is loader

    @property
    def _workers(self) -> list[Any]:
        return self._driver.backend.workers()

    @property
    def _pin_memory_thread(self) -> Any:
        return getattr(self._driver.backend, "thread")  # noqa: B009

    def _shutdown_workers(self) -> None:
        self._driver.close()
        _drivers.discard(self._driver)

    def snapshot(self) -> DriverSnapshot:
        return self._driver.snapshot()

    def _job(self, loader: DataLoader[Any]) -> Job:
        init_fn = loader.worker_init_fn
        if self._num_workers and isinstance(self._dataset, IterDataPipe | MapDataPipe):
            init_fn = functools.partial(
                _sharding_worker_init_fn, init_fn, self._world_size, self._rank
            )
        return Job(
            dataset=self._dataset,
            streams=self._dataset_kind == _DatasetKind.Iterable,
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            num_workers=self._num_workers,
            base_seed=int(self._base_seed),
            init_fn=init_fn,
        )

    def _with_pinning(self, backend: Backend) -> Backend:
        if not self._pin_memory:
            return backend
        from ._pinning import AcceleratorPinner

        pinner = AcceleratorPinner(self._pin_memory_device)
        if isinstance(backend, InlineBackend):
            backend.finish = pinner.pin
            return backend
        return PinnedBackend(backend, pinner)

    def _warn_of_length(self, said: int) -> None:
        message = (
            f"Length of IterableDataset {self._dataset} was reported to be {said} (when accessing"
            f" len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if self._num_workers > 0:
            message += (
                "For multiprocessing data-loading, this could be caused by not properly configuring"
                " the IterableDataset replica at each worker: each worker iterates a copy of the"
                " whole dataset unless its __iter__ asks torch.utils.data.get_worker_info()."
            )
        warnings.warn(message, stacklevel=4)


def _plan(loader: DataLoader[Any]) -> Plan:
    """Say in the core's words what the arguments ask for."""
    streams = loader._dataset_kind == _DatasetKind.Iterable
    source = Source.STREAMS if streams else Source.INDICES
    if loader.num_workers == 0:
        return Plan(seats=1, window=1, source=source, drawing=Drawing.ON_DEMAND)
    return Plan(
        seats=loader.num_workers,
        window=loader.num_workers * (loader.prefetch_factor or 2),
        order=Order.STRICT if loader.in_order else Order.OVERTAKE,
        source=source,
        tenure=Tenure.LOADER if loader.persistent_workers else Tenure.EPOCH,
        timeout_s=loader.timeout,
        limits=Limits(),
    )


@functools.cache
def _supported() -> bool:
    lacking = _platform.missing()
    if lacking:
        warnings.warn(
            f"antifreeze: this platform lacks {', '.join(lacking)}; DataLoader works as torch's"
            f" here. {_platform.SWITCH}=off says so without this notice.",
            stacklevel=4,
        )
    return not lacking


def _close_in(owner: int, driver: Driver) -> None:
    if os.getpid() != owner:
        return
    try:
        driver.close()
    except KeyboardInterrupt:
        # Raised in a finalizer it would be lost; it comes again when we are out of here.
        threading.Timer(0.01, os.kill, (owner, signal.SIGINT)).start()
    _drivers.discard(driver)


@functools.cache
def _close_all_at_exit() -> None:
    """Register once, and late: exit handlers run backwards; multiprocessing's joins for ever."""
    atexit.register(_close_all)


def _close_all() -> None:
    for driver in _drivers.copy():
        with contextlib.suppress(Exception):  # one that fails must not keep the others alive
            driver.close()
