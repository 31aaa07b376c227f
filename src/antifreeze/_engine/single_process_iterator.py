"""One loop over a loader without workers: torch's iterator, as far as others look at it.

Torch's own takes 5 us to begin an epoch and 10 us for a batch of a few numbers, so nothing is made
here that an earlier loop of the same loader has left:

1. A loader keeps up to two drivers. One is used again if nobody holds its iterator any more, and
   if all it was made for is the same: dataset, collate function, policy, and so on.
2. What a kept driver knows of the dataset's random generators decides how much it costs to seed
   them, never what is drawn: see `_loading/sample_rng.py`. Which generators there are is looked up
   before every epoch.
3. What was counted is summed when somebody asks, or four times a second (`iteration.settle`).
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, cast

from .._linux import platform_support
from .._reporting.log import logger
from .._reporting.torch_pitfalls import TorchPitfalls
from .._torch_internals import BaseIterator, apply_sharding, is_pipe
from ..errors import LoaderClosed
from ..stats import enter
from .arguments import TORCH
from .iterator import UNGUARDED, LoaderIterator, _close_all_at_exit, _drivers, _samples_a_batch
from .main_process_monitor import makes_generator, making_iterator
from .single_process import PROCESS, SingleProcessDriver

if TYPE_CHECKING:
    from .loader_protocol import Loader

KEPT = "_inline_drivers"  # the attribute of a loader


class SingleProcessIterator(LoaderIterator):
    """One loop over a loader that has no workers."""

    _driver: SingleProcessDriver

    def __init__(self, loader: Loader) -> None:
        if platform_support.runs_script_again:
            raise RuntimeError(UNGUARDED)
        now = self._now = loader._clock().now
        began_at = now()
        sampler = loader._index_sampler
        if makes_generator(sampler):
            BaseIterator.__init__(self, cast(Any, loader))  # seeds, the sampler's iterator, pinning
        else:
            with making_iterator(sampler, loader._limits):
                BaseIterator.__init__(self, cast(Any, loader))
        sampler_s = now() - began_at
        self._finished = False
        self._as_torch = loader.randomness == TORCH
        self._loader = weakref.ref(loader)
        known = loader.__dict__
        book = self._book = known.get("_fault_book") or loader._book
        book.begin_epoch()
        self.entry = known.get("_counted") or loader._entry
        driver = self._driver = self._kept_driver(loader) or self._new_driver(loader)
        self._traps = driver.traps
        size = loader.batch_size
        self._batch_samples = size if type(size) is int else _samples_a_batch(loader)
        driver.serve(self)
        driver.begin_epoch(self._sampler_iter, int(self._base_seed), began_at, sampler_s)

    def _kept_driver(self, loader: Loader) -> SingleProcessDriver | None:
        """Return a driver that an earlier loop has left and that fits this one, made ready."""
        kept: list[SingleProcessDriver] = loader.__dict__.get(KEPT, [])
        while kept:  # bounded: `kept_drivers`
            try:
                driver = kept.pop()  # at once: another thread may begin a loop, too
            except IndexError:
                break
            if self._fits(driver, loader):
                try:
                    if driver.is_pipe:
                        self._shard()
                    driver.renew()
                except BaseException:  # a stream that cannot begin
                    driver.retire()
                    raise
                return driver
            driver.retire()
        return None

    def _fits(self, driver: SingleProcessDriver, loader: Loader) -> bool:
        job = driver.job
        return (
            job.dataset is self._dataset
            and job.collate_fn is self._collate_fn
            and job.auto_collation is self._auto_collation
            and job.drop_last == self._drop_last
            and job.quarantine is loader._quarantined
            and job.torch_draws is self._as_torch
            and driver.on_error == loader.on_error
            and driver.process == PROCESS[0]
            and driver.book is self._book
            and driver.accounts is self.entry.accounts
            and not self._pin_memory
        )

    def _new_driver(self, loader: Loader) -> SingleProcessDriver:
        entry = self.entry
        entry.profile = loader._profile()
        enter(entry)
        if is_pipe(self._dataset):
            self._shard()
        pinner = self._pinner()
        driver = SingleProcessDriver(
            self._job(loader),
            loader._clock(),
            None if pinner is None else pinner.pin,
            TorchPitfalls(1, loader.__dict__.setdefault("_told", set())),
            self._book,
            entry.accounts,
            loader._limits,
        )
        _drivers.add(driver)
        _close_all_at_exit()
        if pinner is None:
            driver.on_error = loader.on_error
            driver.home = loader.__dict__.setdefault(KEPT, [])
            # What it has counted may be asked for when the loader is gone.
            driver.last_will = weakref.finalize(loader, _settle_in, os.getpid(), driver)
            driver.last_will.atexit = False
        return driver

    def _shard(self) -> None:
        dataset: Any = self._dataset
        apply_sharding(dataset, self._world_size, self._rank)

    def _next_data(self) -> Any:
        if self._finished:
            raise StopIteration
        traps, book = self._traps, self._book
        if traps.raised:
            traps.went_on()
        if traps.due or traps.in_passing:
            self._warn_of_traps()  # now, while no batch would be lost if that is an error
        if book.broke is not None:
            self._shutdown_workers()
            raise book.broke
        try:
            data = self._driver.next()
        except StopIteration:
            self._finish()
            raise
        except LoaderClosed:
            if self._finished:  # another thread had the last batch
                raise StopIteration from None
            raise
        self._num_yielded += 1
        book.samples += self._batch_samples
        said: int | None = self._IterableDataset_len_called
        if said is not None and self._num_yielded > said:
            self._warn_of_length(said)
        return data

    def _finish(self) -> None:
        if line := self._book.summary():
            logger.warning("%s", line)
        self._finished = True
        self._driver.close()
        if self._traps.due or self._traps.in_passing:
            self._warn_of_traps()

    def _shutdown_workers(self) -> None:
        self._driver.close()


def _settle_in(owner: int, driver: SingleProcessDriver) -> None:
    if os.getpid() == owner:
        driver.settle()
    driver.home = None  # it is in that list itself: no collector is needed to let go of the dataset
