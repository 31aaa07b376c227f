"""`DataLoader`: torch's signature and behaviour. Only it and the `_engine` know torch's loader.

1. A real subclass: torch's constructor checks and stores the arguments; public attributes are its.
2. Nothing starts before `iter`. The engine is imported with this module, where it can run: the
   first batch need not wait for that.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
import torch.utils.data as torch_data

# By this name: the shorter one may be a library's own by now.
from torch.utils.data.dataloader import DataLoader as TorchLoader

from . import _torch_internals
from ._core.limits import LIMITS, Limits
from ._engine import arguments, defaults, new_torch_arguments
from ._linux import platform_support
from ._linux.clock import Clock, MonotonicClock
from ._processes.starting import explicit_start_method  # noqa: F401  before the program chooses
from ._reporting.log import logger
from ._reporting.ranks import ranks
from ._reporting.user_warnings import remark, user_line
from ._torch_internals import Purpose
from .policies import Fault, Policy, policy_of

if TYPE_CHECKING:
    from typing import TextIO

    from ._loading.job import Job
    from ._processes.backend_protocol import Backend
    from ._processes.starting.start_method import StartMethod
    from ._reporting.explain import Profile
    from ._reporting.fault_log import LoaderFaults
    from ._reporting.loader_snapshot import LoaderSnapshot
    from ._reporting.progress.loop import Progress
    from ._torch_internals import BaseIterator
    from .stats import Entry, Explanation

T = TypeVar("T", covariant=True)
_CLOCK = MonotonicClock()

_OF_TORCH = new_torch_arguments.parameters_of(TorchLoader.__init__)
_PARAMETERS = frozenset(_OF_TORCH)


class DataLoader(TorchLoader[T]):
    """A drop-in for `torch.utils.data.DataLoader` that does not freeze.

    Takes every argument of torch's loader and behaves as it does; see the migration page for the
    few places where torch's behaviour was a trap. Beyond torch's:

    `sample_timeout`: how long one call of your code in a worker (a sample, a collate, the init
    function) may take. "auto": a worker that is stuck is replaced after 5 minutes, one that is slow
    but moves is left alone. A number of seconds: replaced then, whatever it does. None: never.

    `on_error`: what to do about samples that fail: "raise", "replace" by another, "skip", or a
    policy of `antifreeze.policies`. `faults` lists them; `fault_log` names a file that gets each
    as a line of JSON.

    `worker_memory`: bytes that a worker may hold of its own. One that has grown beyond them is
    replaced between two batches, and what has grown is named. "auto": when little is left of what
    the machine or the container has, the one that has grown most. None: never.

    `quarantine`: samples that are known to be bad, or the file of `antifreeze scan`: they are not
    loaded, and the policy says what to have instead.

    `randomness`: "sample": what a sample draws depends on the seed, the epoch and its position, so
    it is the same for any number of workers and after any crash. "torch": worker processes are
    seeded as torch seeds them, and a run without faults equals torch's bit for bit.
    """

    sample_timeout: float | Literal["auto"] | None
    on_error: Literal["raise", "replace", "skip"] | Policy
    fault_log: str | os.PathLike[str] | None
    worker_memory: float | Literal["auto"] | None
    quarantine: str | os.PathLike[str] | Iterable[int] | None
    randomness: Literal["sample", "torch"]
    _quarantined: frozenset[Any]
    new_torch_arguments: dict[str, Any]

    _made_at = "unknown"  # where; a subclass may go past our `__init__`
    # A seam: tests set other bounds before the first loop, on a loader or a subclass. They reach
    # everything that works for this loader, in this process.
    _limits: Limits = LIMITS

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
        sample_timeout: float | Literal["auto"] | None = "auto",
        on_error: Literal["raise", "replace", "skip"] | Policy = "raise",
        fault_log: str | os.PathLike[str] | None = None,
        worker_memory: float | Literal["auto"] | None = "auto",
        quarantine: str | os.PathLike[str] | Iterable[int] | None = None,
        randomness: Literal["sample", "torch"] = "sample",
    ) -> None:
        given = {name: value for name, value in locals().items() if name in _PARAMETERS}
        own = {name: value for name, value in locals().items() if name in defaults.NAMES}
        given |= new_torch_arguments.given_to(self)
        self._take_options(own)
        self._made_at = user_line(sys._getframe(1), made=self)
        strict = not platform_support.switched_off()
        if strict:
            arguments.check_randomness(randomness)
            arguments.check_types(given)
            arguments.check_amount("sample_timeout", sample_timeout, "seconds")
            arguments.check_amount("worker_memory", worker_memory, "bytes")
            if fault_log is not present_defaults()["fault_log"]:  # which was looked at then
                arguments.check_fault_log(fault_log)
        try:
            super().__init__(**given)
        except (TypeError, ValueError) as error:
            arguments.name_values(error, given)
            raise
        new_torch_arguments.show_on(self)
        if "in_order" not in _PARAMETERS:  # a torch that is too old for ours
            self.in_order = True
        if strict:
            arguments.check_together(given)
            defaults.fit(self, present_defaults())
            arguments.check_policy(policy_of(self.on_error), self)
            self._quarantined = arguments.read_quarantine(
                self.quarantine, policy_of(self.on_error), self
            )
            if self.num_workers > 0 and can_run():
                from ._processes.starting.start_method import foresee

                foresee(self.multiprocessing_context, as_torch=randomness == arguments.TORCH)

    def _take_options(self, own: Mapping[str, Any]) -> None:
        vars(self).update(own)
        self._quarantined = frozenset()

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to this process: where its workers come from, its faults."""
        return {name: it for name, it in vars(self).items() if name not in _OF_PROCESS}

    @property
    def faults(self) -> list[Fault]:
        """Give what went wrong so far, the latest last; the last 1,000 are kept."""
        return list(self._book.latest)

    def stats(self) -> dict[str, float]:
        """Give what was counted over all epochs so far: plain numbers, for any logger.

        docs/waiting.md defines each of them. May be called at any time, from any thread.
        """
        from .stats import flat

        return flat(self._settled())

    def explain(self) -> Explanation:
        """Say in one sentence who waits for whom, with evidence and what would help most.

        `str()` of it is meant for people; `sentence`, `evidence` and `advice` for programs.
        """
        told = self._settled().explain()
        if platform_support.switched_off() or not can_run() or self._why_torch_loads():
            from .stats import Explanation

            return Explanation("nothing is counted where torch's own loader does the work")
        return told

    def progress(self, title: str = "", *, file: TextIO | None = None) -> Progress[T]:
        """Give its batches, to loop over, and show how it goes: rate, waiting, faults.

        On stderr, or `file`: a bar on a terminal, now and then a line in a log. Rank 0 alone does.
        """
        from ._reporting.progress.loop import Progress

        return Progress(self, title, file)

    def _settled(self) -> Entry:
        from ._engine.iterator import settle

        settle(self)
        return self._entry

    @property
    def _entry(self) -> Entry:
        """Give what is counted of this loader."""
        entry: Entry | None = self.__dict__.get("_counted")
        if entry is None:
            from ._reporting.wait_totals import Accounts
            from .stats import Entry

            new = Entry(
                self._profile(),
                Accounts(guard=threading.RLock(), limits=self._limits.records),
                self._book.tally,
            )
            entry = self.__dict__.setdefault("_counted", new)  # another thread may have been first
        return entry

    def _profile(self) -> Profile:
        from ._reporting.explain import Profile

        return Profile(
            name=f"{type(self).__name__} ({self._made_at})",
            workers=self.num_workers,
            prefetch=self.prefetch_factor or 2,
            in_order=self.in_order,
            persistent=self.persistent_workers,
        )

    def __repr__(self) -> str:
        """Tell what it is, how far its loop has come, and how it fares."""
        from ._engine.loader_repr import state_of

        return state_of(self)

    @property
    def _book(self) -> LoaderFaults:
        book: LoaderFaults | None = self.__dict__.get("_fault_book")
        if book is None:
            from ._loading.sample_file_names import file_in_dataset
            from ._loading.subset_indices import underlying
            from ._reporting.fault_log import LoaderFaults

            new = LoaderFaults(
                policy_of(self.on_error),
                self.fault_log,
                functools.partial(underlying, self.dataset),
                functools.partial(file_in_dataset, self.dataset),
                torch_draws=self.randomness == arguments.TORCH,
            )
            book = self.__dict__.setdefault("_fault_book", new)
        return book

    def __iter__(self) -> BaseIterator:
        if _torch_internals.LACKS and not platform_support.switched_off():
            _supported()  # says so: torch may not call `_get_iterator` any more
            return super().__iter__()
        if self.num_workers == 0 and self._iterator is None:  # nothing to keep
            return self._get_iterator()
        kept = self._iterator
        if not getattr(kept, "can_go_on", True):  # interrupted, broken, closed, or from a fork
            self._iterator = None
        elif getattr(kept, "in_epoch", False):
            self._iterator = kept.handle()  # type: ignore[union-attr]
        return super().__iter__()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_iterator" and value is None:
            # Trainers reset a loader by this assignment. Workers of an epoch that is over must not
            # stay behind, whoever holds the iterator; those of one that is not go with its holder.
            kept = self.__dict__.get("_iterator")
            if kept is not None and not getattr(kept, "in_epoch", True):
                kept.end()
        super().__setattr__(name, value)

    def _get_iterator(self) -> BaseIterator:
        if platform_support.switched_off() or not _supported() or self._is_left_to_torch():
            return super()._get_iterator()
        if "_quarantined" not in self.__dict__:  # made by a subclass that goes past our `__init__`
            self._take_options({name: present_defaults()[name] for name in defaults.NAMES})
            defaults.fit(self, present_defaults())
        if self.randomness != arguments.SAMPLE:  # it may have been assigned since
            arguments.check_randomness(self.randomness)
        if self.num_workers == 0:
            return _inline_iterator()(self)
        self.check_worker_number_rationality()
        from ._engine.iterator import LoaderIterator
        from .errors import explain_start

        try:
            return LoaderIterator(self)
        except Exception as error:
            explain_start(error, self.num_workers)
            raise

    def _is_left_to_torch(self) -> bool:
        """Whether this loader, unlike others, must have torch's own iterator; say so, once."""
        if why := self._why_torch_loads():
            _say_once(why)
        return bool(why)

    def _why_torch_loads(self) -> str:
        """Return why this loader, unlike others, must have torch's own iterator, if it must."""
        if unknown := new_torch_arguments.unknown_to_us(self, _NEW):
            return (
                f"antifreeze does not know {' and '.join(unknown)}, which torch"
                f" {torch.__version__} has: a loader with it works as torch's"
            )
        if not _torch_internals.LACKS_FOR_SOME:
            return ""
        for purpose, is_meant in (
            (Purpose.DATA_PIPES, _torch_internals.is_pipe(self.dataset)),
            (Purpose.PINNING, self.pin_memory),
        ):
            if is_meant and (why := _torch_internals.fault(purpose)):
                return f"{why}: loaders with {purpose.value} work as torch's"
        return ""

    def snapshot(self) -> LoaderSnapshot:
        """Give the state of the whole loader as frozen data. Starts nothing, waits for nothing."""
        from ._engine.iterator import snapshots_of
        from ._reporting.loader_snapshot import LoaderSnapshot

        accounts = self._settled().accounts
        return LoaderSnapshot(
            num_workers=self.num_workers,
            prefetch_factor=self.prefetch_factor,
            persistent_workers=self.persistent_workers,
            in_order=self.in_order,
            ranks=ranks(),
            iterators=snapshots_of(self),
            usages=accounts.usages,
            slowest=tuple(accounts.slowest),
            waits=tuple(accounts.latest),
            worker_source=self._worker_source(),
        )

    def _clock(self) -> Clock:
        return _CLOCK

    def _backend(self, job: Job) -> Backend:
        """Choose who the workers are. A seam: simulations put their own backend here."""
        from ._processes.process_backend import ProcessBackend

        return ProcessBackend(job, self.multiprocessing_context, self._lineage(), self._limits)

    def _lineage(self) -> StartMethod:
        """Say where its workers come from."""
        from ._processes.starting.start_method import StartMethod, wish_of

        wish = wish_of(self.multiprocessing_context, as_torch=self.randomness == arguments.TORCH)
        kept: StartMethod | None = self.__dict__.get("_descends")
        if kept is None or not kept.holds(wish):
            kept = self.__dict__["_descends"] = StartMethod(
                wish,
                self.dataset,
                limits=self._limits,
                collate_fn=self.collate_fn,
                worker_init_fn=self.worker_init_fn,
            )
        return kept

    def _worker_source(self) -> str:
        """Return where its workers come from, in words; empty before the first."""
        kept: StartMethod | None = self.__dict__.get("_descends")
        if kept is None:
            return ""
        from ._processes.starting.start_method import source_of

        as_torch = self.randomness == arguments.TORCH
        return source_of(self.multiprocessing_context, kept, as_torch=as_torch)


# What torch's constructor has that ours, as it is written above, has not.
_OURS = inspect.signature(DataLoader.__init__).parameters
_NEW = {
    name: parameter.default
    for name, parameter in _OF_TORCH.items()
    if name not in _OURS and parameter.default is not parameter.empty
}
DataLoader.__init__ = new_torch_arguments.widened(DataLoader.__init__, _NEW)  # type: ignore[method-assign]
if new_torch_arguments.takes_any(TorchLoader.__init__):  # it passes on what it is given
    _PARAMETERS |= frozenset(_OURS) - {"self", *defaults.NAMES}


def present_defaults() -> dict[str, Any]:
    """Give what holds for loaders that do not say otherwise; what is set in it holds."""
    return defaults.of(DataLoader)


if _said := arguments.said_of_randomness():  # checked where a loader is made
    present_defaults()["randomness"] = _said

_OF_PROCESS = frozenset({"_counted", "_descends", "_fault_book", "_inline_drivers", "_told"})


def can_run() -> bool:
    """Whether this platform and this torch have all that we need."""
    return not _torch_internals.LACKS and not platform_support.missing()


@functools.cache
def _supported() -> bool:
    if lacking := platform_support.missing():
        why = f"antifreeze: this platform lacks {', '.join(lacking)};"
    elif fault := _torch_internals.fault():
        why = f"{fault}:"
    else:
        return True
    _say_once(f"{why} DataLoader works as torch's here")
    return False


@functools.cache
def _say_once(text: str) -> None:
    text = f"{text}. Set {platform_support.SWITCH}=off to silence this notice."
    try:
        remark(text)
    except UserWarning:  # warnings are errors in this program; a notice must not end it
        logger.warning("%s", text)


@functools.cache
def _inline_iterator() -> type[BaseIterator]:
    from ._engine.single_process_iterator import SingleProcessIterator

    return SingleProcessIterator


# The engine, where it can run; elsewhere some of it cannot even be imported.
if not platform_support.switched_off() and can_run():
    from ._engine import iterator, single_process_iterator  # noqa: F401
    from ._processes import process_backend  # noqa: F401
