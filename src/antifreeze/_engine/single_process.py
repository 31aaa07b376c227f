"""No workers: batches are loaded in the caller's own thread, when it asks for them.

There is nobody to supervise, no order to keep and nothing that could be killed: a sample that
hangs, hangs the loop, and all that can be done is to say so (`main_process_monitor`). So there is
no core here, and a batch costs no more than in torch's loader. Nor does an epoch: its loader keeps
the driver of the last one, and what it has learnt of the dataset
(`_engine/single_process_iterator.py`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import truediv
from threading import get_ident
from typing import Any

from .._core.batch_timings import Timings
from .._core.faults import Fault, FaultKind, FaultLog
from .._core.health.worker_phases import HAND_OVER, ITER, OURS, SAMPLER
from .._core.inspection.state_snapshots import SupervisorSnapshot
from .._core.limits import LIMITS, Limits
from .._core.states import Loop, Run
from .._core.tickets import Progress, Ticket
from .._linux.clock import Clock
from .._loading.fetch import UNUSUAL_S, Fetcher
from .._loading.job import Job
from .._loading.line_profiler import SLOW_S
from .._loading.on_error import NothingLeft
from .._loading.sample_rng import Randomness
from .._loading.stream_fetch import StreamOver
from .._processes import process_activity
from .._reporting.current_wait_cause import in_step, usual_share
from .._reporting.fault_log import LoaderFaults
from .._reporting.loader_snapshot import DriverSnapshot
from .._reporting.reporter import tell_trends
from .._reporting.torch_pitfalls import TorchPitfalls
from .._reporting.wait_totals import Accounts, Turnstile
from .._torch_internals import is_pipe
from .._transport.exceptions import add_note
from ..errors import LoaderClosed
from ..policies import raising
from .main_process_monitor import LoadingPost
from .step_timer import OpenWait

WORTH_S = 0.0002  # a batch that takes longer is measured closely; others feel each look at a clock
# What is kept of a call of `next` until it is summed, as numbers in a list (see `Turnstile`): when
# the loop came and left, seconds of the sampler, of fetching, of its waiting, of collating; samples
# (`END`: the call brought the end of the epoch).
ROW = 7
END = -1
_NOTHING: Iterator[Any] = iter(())
_END = object()
_RUNNING, _FINISHED, _CLOSED = Run.RUNNING, Run.FINISHED, Run.CLOSED  # looked up with every batch
PROCESS = [os.getpid()]  # the present one: to ask for it takes long here
os.register_at_fork(after_in_child=lambda: PROCESS.__setitem__(0, os.getpid()))
MOST = 256 * ROW


class SingleProcessDriver:
    """Load batches on demand. Looks like a `Driver` to the iterator.

    It serves one iterator at a time, and then perhaps another one of the same loader (`renew`): to
    make all this anew would cost more than an epoch of a few small batches.
    """

    in_epoch = False  # of no meaning: see below
    can_go_on = False  # a new epoch is a new iterator

    def __init__(
        self,
        job: Job,
        clock: Clock,
        finish: Callable[[Any], Any] | None = None,
        traps: TorchPitfalls | None = None,
        book: LoaderFaults | None = None,
        accounts: Accounts | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self.book = LoaderFaults(raising()) if book is None else book
        self.traps = TorchPitfalls(1) if traps is None else traps
        self.job = job
        self.process = PROCESS[0]
        self.is_pipe = is_pipe(job.dataset)
        self._owner: weakref.ref[Any] | None = None
        self.on_error: Any = None  # what the policy of the job was made of
        self.home: list[SingleProcessDriver] | None = None  # where it is kept for other iterators
        self.last_will: weakref.finalize[..., Any] | None = None  # when its loader is gone
        self._randomness: Randomness | None = None
        if not (job.streams or job.torch_draws):
            self._randomness = Randomness(job.dataset, job.collate_fn, lent=True)
        self.accounts = accounts or Accounts(limits=limits.records)
        self._limits, self._fold_s = limits, limits.records.fold_s
        self._post = LoadingPost(self.accounts, ITER, self.book.file_at, limits)
        self._fetcher = self._make_fetcher()
        self._finish = finish  # the last step before delivery, e.g. pinning
        self.now = self._now = clock.now
        self._lock = threading.RLock()
        self._sampler: Iterator[Any] = _NOTHING
        self._run = Run.IDLE
        self._seed_base = 0
        self._drawn = 0
        self._faults = FaultLog(self._limits.records.supervisor_faults)
        self.turnstile = Turnstile(self.accounts, 1)
        self._came_at: float | None = None  # of a loop that waits
        self._rows: list[float] = []  # what calls took; see `_sum_up`
        self._begun: list[int] = []  # which of them were the first of an epoch
        self._sums = False
        self._fold_at, self._measure_at = self._now() + self._fold_s, 0.0

    def _make_fetcher(self) -> Fetcher:
        """Return what loads batches; of a stream, its iterator is made."""
        try:
            return Fetcher(self.job, self._randomness, steps=(self._post.steps, 0))
        finally:
            self._post.steps[0] = OURS

    @property
    def is_kept(self) -> bool:
        return self.home is not None

    @property
    def iterator(self) -> Any:
        """The iterator that it serves, as long as somebody holds that."""
        return None if self._owner is None else self._owner()

    def serve(self, iterator: object) -> None:
        """Belong to an iterator until nobody holds that any more."""
        self._owner = weakref.ref(iterator, self._go_home)

    def _go_home(self, _: object) -> None:
        if PROCESS[0] != self.process:
            return
        if self._run is not _CLOSED:
            self.close()
        self._fetcher.end()
        self._post.indices = None
        if self.home is not None:
            if len(self.home) < self._limits.starting.kept_drivers:
                self.home.append(self)
            else:
                self.retire()

    def retire(self) -> None:
        """Serve nobody any more."""
        if self.last_will is not None:
            self.last_will()

    def renew(self) -> None:
        """Prepare for another iterator of the same job. Raises what making a stream raises."""
        job, post = self.job, self._post
        if self._randomness is None:
            post.enter()
            post.steps[0] = ITER
            before, self._fetcher = self._fetcher, self._make_fetcher()
            self._fetcher.take_pace_of(before)
        else:
            if not self._randomness.renew(job.dataset, job.collate_fn):
                self._randomness = Randomness(job.dataset, job.collate_fn, lent=True)
                self._fetcher = self._make_fetcher()
            post.enter()
        self._drawn = 0
        if self._faults.seen:
            self._faults = FaultLog(self._limits.records.supervisor_faults)

    @property
    def closed(self) -> bool:
        return self._run is _CLOSED

    def begin_epoch(
        self, sampler: Iterator[Any], seed_base: int, began_at: float, sampler_s: float
    ) -> None:
        """Begin an epoch. `iter` began at that time, and the sampler took that much of it."""
        self._sampler, self._seed_base = sampler, seed_base
        if self._randomness is not None:
            self._randomness.open(seed_base, 0)
        self._run = _RUNNING
        self.traps.raised.clear()  # the loop that received them is over
        with self.accounts.guard:  # others may sum meanwhile
            begun, at = self._begun, len(self._rows)
            if not begun or begun[-1] != at:
                begun.append(at)
            self.turnstile.note_begun(self._now() - began_at, sampler_s)

    def next(self) -> Any:
        """Load the next batch. Raises StopIteration at the end of the epoch, or what the user's
        code raised; the batch after that can still be had."""
        with self._lock:
            if self._run is _CLOSED:
                raise LoaderClosed("this iterator was closed; call iter() on the loader")
            post = self._post
            if post.thread != get_ident():
                post.settle()
            try:
                came_at = began_at = self._came_at = self._now()
                while True:  # bounded by the sampler, and the policy's budget
                    try:
                        return self._load(came_at, began_at)
                    except NothingLeft:
                        if self.book.broke is not None:
                            raise self.book.broke from None
                        began_at = self._now()
            finally:
                self._came_at = None
                post.steps[0] = OURS

    def _load(self, came_at: float, began_at: float) -> Any:
        """Load the next batch. Raises NothingLeft if the policy leaves out all of it; another is
        then begun, for the same call of `next`."""
        post = self._post
        post.position = self._drawn
        post.steps[0] = SAMPLER
        indices = next(self._sampler, _END)
        if indices is _END:
            self._run = _FINISHED
            left_at = self._now()
            self._rows.extend((came_at, left_at, left_at - began_at, 0.0, 0.0, 0.0, END))
            if left_at >= self._fold_at or len(self._rows) >= MOST:
                self._fold(left_at)
            raise StopIteration
        post.indices = indices
        fetcher = self._fetcher
        self._drawn += 1
        drawn_at = self._now()
        if drawn_at >= self._measure_at:
            self._measure_at = drawn_at + UNUSUAL_S
            fetcher.measure(alone=True)
        comes, over = True, False
        try:
            batch = fetcher.load(indices, self._drawn - 1)
            if self._finish is not None:
                post.steps[0] = HAND_OVER
                batch = self._finish(batch)
        except StreamOver:
            self.traps.notice(0, fetcher.ending)
            self._run = _FINISHED
            over = True
            self._drawn -= 1
            raise StopIteration from None
        except NothingLeft:
            comes = False
            raise
        except BaseException as error:  # Ctrl-C too
            self._note_failed()
            self._note(error, indices)
            raise
        finally:
            if fetcher.failures:
                self._note_failed()
            left_at = self._now()
            fetch_s = fetcher.fetch_s
            sampler_s, io_s, collate_s = drawn_at - began_at, fetcher.io_s, fetcher.collate_s
            samples = END if over else fetcher.samples
            if comes:
                self._rows.extend((came_at, left_at, sampler_s, fetch_s, io_s, collate_s, samples))
            else:  # the same call of `next` goes on
                with self.accounts.guard:
                    self._tell(sampler_s, fetch_s, io_s, collate_s, samples)
            if fetch_s > WORTH_S:
                self._note_slow(fetcher.timings(drawn_at, left_at, left_at), indices)
            if left_at >= self._fold_at or len(self._rows) >= MOST:
                self._fold(left_at)
        return batch

    def _note_slow(self, timings: Timings, indices: Any) -> None:
        if timings.fetch_s >= SLOW_S and not timings.slowest_s:
            timings = self._post.looks.with_slowest(timings, self._drawn)
        if timings.slowest_s:
            with self.accounts.guard:
                self.accounts.note_slowest(timings, indices, self._drawn - 1, worker=None)
        tell_trends(self.accounts)

    def _fold(self, now: float) -> None:
        self._fold_at = now + self._fold_s
        if self._run is _RUNNING:  # its epochs last long enough for a closer look
            self._post.rouse()
        self._sum_up()
        if self._post.looks.any_places:
            self.accounts.note_places(self._post.looks.take_places())
        self.turnstile.fold(now)

    def _sum_up(self) -> None:
        """Sum what the batches since the last time were for: many at once, since a batch of one
        integer takes ten microseconds."""
        with self.accounts.guard:
            if not self._rows or self._sums:  # a signal's handler came in the middle of it
                return
            self._sums = True
            try:
                self._sum()
            finally:  # Ctrl-C too
                self._sums = False

    def _sum(self) -> None:
        rows = self._rows[:]
        del self._rows[: len(rows)]
        begun, self._begun = self._begun, []
        if begun and begun[-1] == len(rows):  # nothing has come of that epoch yet
            begun.pop()
            self._begun.append(0)
        came, left, sampler, fetch, io, collate, samples = (rows[at::ROW] for at in range(ROW))
        ends = samples.count(END)
        self.turnstile.over(ends)
        self._tell(sum(sampler), sum(fetch), sum(io), sum(collate), sum(samples) - ends * END)
        self.turnstile.add(came, left, [at // ROW for at in begun])
        self.accounts.work.parcels += len(came) - ends
        if ends or 0 in samples:  # the end of an epoch is no batch; one that raised has no samples
            fetch = [seconds for seconds, count in zip(fetch, samples, strict=True) if count != END]
            samples = [count or 1 for count in samples if count != END]
        self.accounts.fetched.extend(map(truediv, fetch, samples))

    def _tell(
        self,
        sampler_s: float,
        fetch_s: float = 0.0,
        io_s: float = 0.0,
        collate_s: float = 0.0,
        samples: float = 0,
    ) -> None:
        """Say what calls of `next` waited for. The rest is pinning, and our own part. By who holds
        the guard: other loops may have the same accounts."""
        split, work = self.accounts.wait, self.accounts.work
        split.sampler += sampler_s
        split.fetch_io += io_s
        split.fetch_cpu += fetch_s - io_s
        split.collate += collate_s
        self.turnstile.told_s += sampler_s + fetch_s + collate_s
        work.samples += int(samples)
        work.fetch_s += fetch_s
        work.io_s += io_s
        work.collate_s += collate_s

    def settle(self) -> OpenWait | None:
        """Have all that was counted in the accounts; give the wait that is not over."""
        self._fold(now := self._now())
        came_at = self._came_at
        if came_at is None:
            return None
        seconds = max(0.0, now - came_at)
        return seconds, in_step(self._post.steps[0], seconds, self._io_share(seconds))

    def _io_share(self, seconds: float) -> float | None:
        """Say how much of a fetch that is not over was waiting, as far as that can be known."""
        if self._post.thread == get_ident():  # in a signal's handler
            waited_s = self._fetcher.waits_since()
            return None if waited_s is None else min(1.0, waited_s / max(seconds, waited_s, 1e-9))
        if seconds < self._limits.stalls.examined_s:
            return usual_share(self.accounts.work)
        return 0.0 if process_activity.thread_runs(self._post.task) else 1.0

    def _note_failed(self) -> None:
        for failed in self._fetcher.failed():
            self.book.note_sample(replace(failed, position=self._drawn - 1))

    def _note(self, error: BaseException, indices: Any) -> None:
        position = self._drawn - 1
        doing = self._fetcher.doing()
        for note in (
            f"antifreeze: raised while {doing} (batch {position})",
            *self._fetcher.notes(error),
        ):
            add_note(error, note)
        ticket = Ticket(self._drawn, 0, position, indices)
        if isinstance(error, Exception):
            self.traps.raised.add(0)
            self.book.note_raised(error, ticket, 0)
        self._faults.note(Fault(FaultKind.EXCEPTION, ticket=ticket, delivered=position))

    def close(self) -> None:
        """End the iterator. May be called again. If it is kept for others, what the last calls took
        is summed when it is asked for, or when there is enough of it."""
        if self.home is None and self._run is not _CLOSED:
            self._fold(self._now())
        self._run = _CLOSED
        self._sampler = _NOTHING
        self._post.leave()

    def workers(self) -> list[Any]:
        return []

    def snapshot(self) -> DriverSnapshot:
        """Give the state as frozen data; from any thread."""
        supervisor = SupervisorSnapshot(
            run=self._run,
            loop=Loop.AWAY,
            progress=Progress(0, self._drawn, self._seed_base),
            in_window=0,
            window=0,
            pending=0,
            restarts=0,
            seats=(),
            calls=(),
            faults=tuple(self._faults.latest),
            faults_seen=self._faults.seen,
        )
        self.settle()
        return DriverSnapshot.of(supervisor, self.accounts)

    def __repr__(self) -> str:
        return f"<SingleProcessDriver {self._run.value}, {self._drawn} batches>"
