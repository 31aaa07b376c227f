"""One loop over a loader: torch's iterator, as far as others look at it, on our engine.

What only some loaders need is imported where they need it: importing the package should cost
little beside importing torch.

1. Each iterator has its own driver; persistent workers keep theirs from epoch to epoch.
2. With persistent workers a loader has one iterator, as in torch, and `iter()` restarts it. In the
   middle of an epoch it returns a new handle on the same iterator: nobody who holds an earlier one
   is closed, but whoever advances it is known to be another loop, and told so.
3. Clean-up is tied to the iterator's life by weakref, in the process that made it, and to exit. It
   is never done because an iterator seems to be unused.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import torch

from .._core.limits import LIMITS
from .._linux import platform_support
from .._loading.dataset_mutations import Attributes
from .._loading.job import AtEnd, Job
from .._loading.observations import Suspect
from .._processes.backend_protocol import Backend
from .._reporting.loader_snapshot import DriverSnapshot
from .._reporting.log import logger
from .._reporting.ranks import who
from .._reporting.torch_pitfalls import TorchPitfalls
from .._reporting.user_warnings import remark
from .._torch_internals import (
    BaseIterator,
    IterDataPipe,
    MapDataPipe,
    is_stream,
    profiler_enabled,
    sharding_worker_init_fn,
    share_dist_seed,
)
from .._transport.traceback_frames import leave_out_ours
from .._worker import signal_handlers
from ..errors import LoaderClosed
from ..policies import policy_of
from ..stats import enter, entries
from .arguments import TORCH
from .delivery import RAISERS
from .driver import Driver
from .main_process_monitor import Asked, making_iterator, stay_for
from .plan_from_arguments import interval_for, plan_of
from .sampler_lookahead import free_draws

if TYPE_CHECKING:
    from .._core.inspection.event_log import Entry
    from .loader_protocol import Loader
    from .pin_memory import Pinner
    from .single_process import SingleProcessDriver
    from .step_timer import OpenWait


SAMPLERS_DEEP = 5  # batch samplers around each other; accelerate has three

UNGUARDED = (
    "this script loops over a DataLoader while it is run a second time, in the process that its"
    " workers come from (spawn, forkserver): put what it does under `if __name__ == '__main__':`"
)


class _Owner:
    """Held by all handles on one iterator: its end is the iterator's."""

    __slots__ = ("__weakref__",)


_iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()  # with workers, that are still held
_drivers: weakref.WeakSet[Driver | SingleProcessDriver] = (
    weakref.WeakSet()
)  # open ones, for the end of the program


class LoaderIterator(BaseIterator):
    """One loop over a loader that has workers. Looks like torch's iterators where others look at
    them. (Without workers: `_engine/single_process_iterator.py`.)"""

    __slots__ = ("_restarts_seen",)  # of this handle; everything else is shared by all handles

    def __init__(self, loader: Loader) -> None:
        if platform_support.runs_script_again:
            raise RuntimeError(UNGUARDED)
        clock = loader._clock()
        began_at = clock.now()
        with making_iterator(loader._index_sampler, loader._limits):
            # torch's: seeds, the sampler's iterator, whether to pin
            super().__init__(cast(Any, loader))
        sampler_s = clock.now() - began_at
        if isinstance(self._dataset, IterDataPipe):
            # torch draws a seed once more here; later draws of the program must not move.
            share_dist_seed(loader.generator, self._pg)
        self._as_torch = loader.randomness == TORCH
        self._limits = loader._limits
        self._batch_samples = _samples_a_batch(loader)
        self._traps = TorchPitfalls(
            max(1, self._num_workers), loader.__dict__.setdefault("_told", set())
        )
        self._book = loader._book
        entry = self.entry = loader._entry
        entry.profile = loader._profile()
        enter(entry)
        self._book.begin_epoch()
        backend = self._with_pinning(loader._backend(self._job(loader)))
        self._driver: Driver | SingleProcessDriver = Driver(
            plan_of(loader),
            backend,
            clock,
            traps=self._traps,
            book=self._book,
            sift=functools.partial(_grown, loader.dataset, loader.collate_fn),
            accounts=entry.accounts,
        )
        self._were: list[tuple[Any, Attributes]] = []  # what persistent workers have a copy of
        if self._persistent_workers:
            named = Attributes(loader.collate_fn, name="collate_fn", contents=True)
            self._were = [
                (self._dataset, Attributes(self._dataset, deep=True, contents=True)),
                (loader.collate_fn, named),
            ]
        self._finished = False
        self._restarts = self._restarts_seen = 0  # `iter()` in the middle of an epoch
        _drivers.add(self._driver)
        _close_all_at_exit()
        self._loader = weakref.ref(loader)
        # Not `__del__`: an iterator may be collected in a forked child, where nothing is ours.
        self._owner = _Owner()
        weakref.finalize(self._owner, _close_in, os.getpid(), self._driver).atexit = False
        _iterators.add(self)
        self._now = clock.now
        self._driver.absence.iterator = weakref.ref(self)
        again = functools.partial(_ask_sampler_again, weakref.ref(self), self._index_sampler)
        self._begin_epoch(began_at, sampler_s, again)
        stay_for(self._driver, loader._limits)  # now: the workers have been forked

    def __next__(self) -> Any:
        try:
            if profiler_enabled():  # 10 us a batch that only a profiler needs
                with torch.autograd.profiler.record_function(self._profile_name):
                    return self._next_data()
            return self._next_data()
        except StopIteration:
            raise
        except Exception as error:
            leave_out_ours(error.__traceback__, RAISERS)
            del self  # whoever keeps the error, as notebooks do, need not keep the workers
            raise

    def _next_data(self) -> Any:
        if self._restarts_seen != self._restarts:
            self._restarts_seen = self._restarts
            self._traps.two_loops()
        if self._finished:
            self._warn_of_traps()
            raise StopIteration
        if self._traps.raised:
            self._traps.went_on()
        if self._traps.due or self._traps.in_passing:
            self._warn_of_traps()  # now, while no batch would be lost if that is an error
        if self._book.broke is not None:
            self._shutdown_workers()
            raise self._book.broke
        try:
            data = self._driver.next()
        except StopIteration:
            ends_at = self._now()
            if line := self._book.summary():
                logger.warning("%s", line)
            if not self._persistent_workers:
                self._finished = True
                self._shutdown_workers()
            self._driver.turnstile.ended(self._now() - ends_at)
            self._driver.turnstile.pause(ends_at)
            self._warn_of_traps()
            raise
        except LoaderClosed:
            if self._finished:  # another thread had the last batch
                raise StopIteration from None
            raise
        self._num_yielded += 1
        self._book.samples += self._batch_samples
        said: int | None = self._IterableDataset_len_called
        if said is not None and self._num_yielded > said:
            self._warn_of_length(said)
        return data

    def _reset(self, loader: Loader, first_iter: bool = False) -> None:
        """Begin the next epoch with the same workers."""
        began_at = 0.0 if first_iter else self._now()
        with making_iterator(self._index_sampler, loader._limits):
            super()._reset(loader, first_iter)
        sampler_s = 0.0 if first_iter else self._now() - began_at
        self._book.begin_epoch()
        if self._were and not first_iter:
            changes = (each for thing, were in self._were for each in were.changes(thing))
            self._traps.changed_here(tuple(changes))
            self._warn_of_traps()
        sampler_iter: Iterator[Any] = self._sampler_iter
        self._begin_epoch(began_at, sampler_s, lambda: sampler_iter)

    def _begin_epoch(
        self, began_at: float, sampler_s: float, sampler: Callable[[], Iterator[Any]]
    ) -> None:
        seeds = int(self._base_seed), self._shared_seed
        assert isinstance(self._driver, Driver)
        free = free_draws(self._index_sampler)
        sampler_s += self._driver.begin_epoch(Asked(sampler, self._limits), *seeds, free)
        self._driver.turnstile.began(self._now() - began_at, sampler_s)

    def handle(self) -> LoaderIterator:
        """Return another handle on this iterator, which is about to be restarted in the middle of
        an epoch."""
        handle: LoaderIterator = object.__new__(type(self))
        handle.__dict__ = self.__dict__
        self._restarts += 1
        handle._restarts_seen = self._restarts
        _iterators.add(handle)
        return handle

    def end(self) -> None:
        """Let the workers go; there is no epoch under way, and no other will begin."""
        self._finished = self._driver.can_go_on  # else its holder gets the error that is due
        self._driver.close()
        _drivers.discard(self._driver)

    @property
    def can_go_on(self) -> bool:
        """Say whether another epoch can begin with the workers of this one."""
        return self._driver.can_go_on

    @property
    def in_epoch(self) -> bool:
        """Say whether its loop has not come to an end."""
        return self._driver.in_epoch

    def serves(self, loader: Loader) -> bool:
        return self._loader() is loader

    @property
    def _workers(self) -> list[Any]:
        return self._driver.workers()

    @property
    def _pin_memory_thread(self) -> Any:
        backend = getattr(self._driver, "backend", None)
        return getattr(backend, "thread")  # noqa: B009

    def _shutdown_workers(self) -> None:
        if self._restarts_seen != self._restarts:
            return  # a later loop has them
        self._driver.close()
        _drivers.discard(self._driver)

    def snapshot(self) -> DriverSnapshot:
        return self._driver.snapshot()

    def latest_events(self) -> list[Entry]:
        """Return the latest entries of its event log, if it has one. From any thread."""
        event_log = getattr(self._driver, "event_log", ())
        for _ in range(LIMITS.records.snapshot_tries):
            try:
                return list(event_log)
            except RuntimeError:  # it goes on meanwhile
                continue
        return []

    def _job(self, loader: Loader) -> Job:
        init_fn, looks = loader.worker_init_fn, loader._limits.looks
        inherits = not (self._num_workers and loader._lineage().is_clean_wish)
        if self._num_workers and isinstance(self._dataset, IterDataPipe | MapDataPipe):
            init_fn = functools.partial(
                sharding_worker_init_fn, init_fn, self._world_size, self._rank
            )
        return Job(
            dataset=self._dataset,
            streams=is_stream(loader),
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            num_workers=self._num_workers,
            base_seed=int(self._base_seed),
            init_fn=init_fn,
            policy=policy_of(loader.on_error),
            quarantine=loader._quarantined,
            stays=self._persistent_workers,
            batch_size=loader.batch_size or 1,
            torch_draws=loader.randomness == TORCH,
            at_end=AtEnd.NOTHING if inherits else _at_end(loader),
            handlers=signal_handlers.of_program() if inherits else {},
            look_s=min(
                interval_for(loader.sample_timeout, looks.own_s, looks),
                interval_for(loader.timeout or None, looks.own_s, looks),
            ),
        )

    def _with_pinning(self, backend: Backend) -> Backend:
        pinner = self._pinner()
        if pinner is None:
            return backend
        from .pin_memory import PinnedBackend

        return PinnedBackend(backend, pinner)

    def _pinner(self) -> Pinner | None:
        if not self._pin_memory:
            return None
        from .pin_memory import AcceleratorPinner

        return AcceleratorPinner(self._pin_memory_device)

    def _warn_of_traps(self) -> None:
        while self._traps.due:
            if self._as_torch:  # a warning may be an error in this program, and torch has none
                logger.warning("%s: %s", who(), self._traps.due.pop(0).removeprefix("antifreeze: "))
            else:
                remark(self._traps.due.pop(0))
        while self._traps.in_passing:
            logger.warning("%s: %s", who(), self._traps.in_passing.pop(0))

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
        remark(message)


def settle(loader: Loader | None = None) -> None:
    """Have all that its iterators have counted in the accounts of a loader, or of all."""
    for kept in _kept():
        if loader is None or kept.accounts is loader._entry.accounts:
            kept.settle()
    waits: dict[int, list[OpenWait]] = defaultdict(list)  # of all its loops, by accounts
    for iterator in _held():
        if loader is None or iterator.serves(loader):
            driver = iterator._driver
            if (wait := driver.settle()) is not None:
                waits[id(driver.accounts)].append(wait)
    for accounts in (
        [each.accounts for each in entries()] if loader is None else [loader._entry.accounts]
    ):
        accounts.note_open(waits[id(accounts)])


def at_work() -> list[LoaderIterator]:
    """Give the iterators that somebody still holds, and that are not over."""
    return [each for each in _held() if not each._finished]


def _held() -> list[LoaderIterator]:
    for _ in range(LIMITS.records.snapshot_tries):
        try:
            held = list(_iterators)
            inline = [each.iterator for each in _drivers if not isinstance(each, Driver)]
            held += [each for each in inline if each is not None]
            return list({id(each._driver): each for each in held}.values())
        except RuntimeError:  # another thread has made or dropped one meanwhile
            continue
    return []


def _kept() -> list[SingleProcessDriver]:
    """Return the drivers that loaders without workers keep for their next loop."""
    for _ in range(LIMITS.records.snapshot_tries):
        try:
            return [each for each in _drivers if not isinstance(each, Driver) and each.is_kept]
        except RuntimeError:  # another thread has made or dropped one meanwhile
            continue
    return []


def snapshots_of(loader: Loader) -> tuple[DriverSnapshot, ...]:
    """Give the state of every iterator of a loader that somebody still holds."""
    return tuple(it.snapshot() for it in _held() if it.serves(loader))


def _ask_sampler_again(owner: weakref.ref[LoaderIterator], sampler: Iterable[Any]) -> Iterator[Any]:
    """Ask a sampler for its iterator a second time, when the workers have been started: torch does,
    and a sampler that draws its whole order there has another order the second time."""
    sampler_iter = iter(sampler)
    if (iterator := owner()) is not None:
        iterator._sampler_iter = sampler_iter
    return sampler_iter


def _at_end(loader: Loader) -> AtEnd:
    from .._processes.starting.start_method import at_end_of

    return at_end_of(loader.multiprocessing_context)


def _samples_a_batch(loader: Loader) -> int:
    """Say how large its batches are, for counting; one, where nobody says so.

    A batch sampler may know it, or the one inside it: trainers wrap the user's into their own.
    """
    size, sampler = loader.batch_size, loader.batch_sampler
    for _ in range(SAMPLERS_DEEP):
        if isinstance(size, int) or sampler is None:
            break
        size = getattr(sampler, "batch_size", None)
        sampler = getattr(sampler, "batch_sampler", None)
    return size if isinstance(size, int) and size > 0 else 1


def _grown(dataset: Any, collate_fn: Any, found: tuple[Suspect, ...]) -> tuple[Suspect, ...]:
    """Leave of what a worker holds what it has not held from the beginning."""
    from .._worker.growth_suspects import grown

    return grown(found, ("dataset", dataset), ("collate_fn", collate_fn))


def _close_in(owner: int, driver: Driver | SingleProcessDriver) -> None:
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
