"""The real loader on virtual time: workers that are a schedule, not processes.

A `World` says how long things take and what goes wrong. Samples are really loaded, by the same
code as in a worker, in the calling thread; only when their parcels arrive is simulated. A whole
epoch of crashes and hangs takes milliseconds.
"""

from __future__ import annotations

import heapq
import pickle
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .._core.batch_timings import Timings
from .._core.commands import Force
from .._core.events import (
    EpochBegun,
    LeasesReturned,
    LifeEnded,
    LifeReady,
    Outcome,
    ParcelsArrived,
    ProgramForked,
)
from .._core.faults import Ending
from .._core.health.memory_growth import Room
from .._core.health.stall_detection import Activity, Sight
from .._core.health.worker_phases import OURS, SAMPLE
from .._core.tickets import Errand, Ticket
from .._linux.clock import Clock
from .._loading.fetch import Fetcher
from .._loading.job import Job
from .._loading.stream_fetch import StreamOver
from .._processes.backend_protocol import Backend, LocalParcel, Notice
from .._reporting.wait_totals import Usage
from .._worker.worker_spec import EpochBrief
from ..loader import DataLoader
from .clock import VirtualClock

T = TypeVar("T")

KILLED = Ending(signal=9)


class FrozenWorld(RuntimeError):
    """The loader waits, nothing is going to happen, and it has set no deadline: a freeze."""


@dataclass
class World:
    """How long things take, in virtual seconds, and which tickets end or stop their worker."""

    start_s: float = 0.005
    stop_s: float = 0.002
    load_s: Callable[[int, Ticket], float] = lambda seat, ticket: 0.01
    # Called before a ticket is loaded: True ends the life that has it ...
    crashes: Callable[[int, Ticket], bool] = lambda seat, ticket: False
    # ... or keeps it for ever.
    hangs: Callable[[int, Ticket], bool] = lambda seat, ticket: False
    clock: VirtualClock = field(default_factory=VirtualClock)


@dataclass
class SimulatedLife:
    seat: int
    number: int
    fetcher: Fetcher | None = None
    queue: deque[Ticket] = field(default_factory=deque)
    up: bool = False
    works_on: int = 0  # the number of a ticket
    gone: bool = False


class SimulatedBackend:
    """A backend whose lives are entries in a schedule."""

    def __init__(self, job: Job, world: World) -> None:
        self._job = job
        self._world = world
        self._lives: dict[tuple[int, int], SimulatedLife] = {}
        self._schedule: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._notices: list[Notice] = []

    def start(self, seat: int, life: int, brief: EpochBrief) -> None:
        it = self._lives[seat, life] = SimulatedLife(seat, life)
        self._later(self._world.start_s, lambda: self._come_up(it, brief.epoch))

    def begin_epoch(self, seat: int, life: int, brief: EpochBrief) -> None:
        it = self._lives.get((seat, life))
        if it is None:
            return
        it.queue.clear()
        it.fetcher = None
        self._later(0.0, lambda: self._tell(it, Notice(EpochBegun(seat, life, brief.epoch))))

    def send(self, seat: int, life: int, errands: Sequence[Errand]) -> None:
        it = self._lives.get((seat, life))
        if it is not None:
            it.queue.extend(errand.ticket for errand in errands)
            if it.up:
                self._later(0.0, lambda: self._work(it))

    def stop(self, seat: int, life: int) -> None:
        it = self._lives.get((seat, life))
        if it is not None and not it.works_on:
            it.queue.clear()
            self._later(self._world.stop_s, lambda: self._end(it, Ending(exit_code=0)))

    def defer(self) -> None:
        pass

    def settle(self) -> None:
        pass

    def expect_turn(self) -> None:
        pass

    def kill(
        self, seat: int, life: int, force: Force, *, doubted: bool = False, unfit: str = ""
    ) -> None:
        it = self._lives.get((seat, life))
        if it is not None:
            self._later(0.0, lambda: self._end(it, KILLED))

    def abandon(self, seat: int, life: int) -> None:
        self._lives.pop((seat, life), None)

    def look(self) -> Sequence[Sight]:
        return [
            Sight(it.seat, it.number, it.works_on, SAMPLE if it.works_on else OURS)
            for it in self._lives.values()
        ]

    def examine(self, seat: int, life: int) -> Activity | None:
        """See nothing move: who takes long here hangs."""
        return Activity()

    def room(self) -> Room | None:
        return None

    def usage(self) -> Sequence[Usage]:
        return ()

    def explain(self, seat: int, life: int) -> None:
        pass

    def release(self, lock: int) -> str:
        return ""

    def resume(self, seat: int, life: int) -> None:
        pass

    def wait(self, timeout_s: float | None) -> None:
        if self._notices:
            return
        clock = self._world.clock
        wakeup = None if timeout_s is None else clock.now() + timeout_s
        if self._schedule and (wakeup is None or self._schedule[0][0] <= wakeup):
            clock.move_to(max(clock.now(), self._schedule[0][0]))
        elif wakeup is not None:
            clock.move_to(wakeup)
        else:
            raise FrozenWorld("nothing will ever happen, and the loader waits without a bound")

    def collect(self) -> Sequence[Notice]:
        while self._schedule and self._schedule[0][0] <= self._world.clock.now():
            heapq.heappop(self._schedule)[2]()
        notices, self._notices = self._notices, []
        return notices

    def returns(self) -> Sequence[LeasesReturned | ProgramForked]:
        return ()

    def watch(self, *, parcels: bool = False) -> None:
        return None

    def poll_urgent(self) -> None:
        raise AssertionError("there is no watch")

    def wake(self) -> None:
        pass

    def label(self, seat: int, life: int) -> str:
        return f"simulated, life {life}"

    def workers(self) -> list[Any]:
        return []

    def await_births(self) -> None:
        pass

    def close(self) -> None:
        self._lives.clear()

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self._serial += 1
        at = self._world.clock.now() + delay_s
        heapq.heappush(self._schedule, (at, self._serial, action))

    def _tell(self, life: SimulatedLife, notice: Notice) -> None:
        if not life.gone:
            self._notices.append(notice)

    def _come_up(self, life: SimulatedLife, epoch: int) -> None:
        life.up = True
        self._tell(life, Notice(LifeReady(life.seat, life.number)))
        self._tell(life, Notice(EpochBegun(life.seat, life.number, epoch)))
        self._work(life)

    def _work(self, life: SimulatedLife) -> None:
        """Begin the oldest ticket of a life that is idle."""
        if life.gone or life.works_on or not life.queue:
            return
        if life.fetcher is None:
            life.fetcher = Fetcher(self._own_copy())
        ticket = life.queue.popleft()
        if self._world.crashes(life.seat, ticket):
            self._end(life, KILLED)
            return
        life.works_on = ticket.number
        if not self._world.hangs(life.seat, ticket):
            self._later(self._world.load_s(life.seat, ticket), lambda: self._finish(life, ticket))

    def _own_copy(self) -> Job:
        """Give each life its own dataset, as a process would have."""
        job = self._job
        if not job.streams:
            return job
        dataset = pickle.loads(pickle.dumps(job.dataset))
        return Job(
            dataset,
            job.streams,
            job.auto_collation,
            job.collate_fn,
            job.drop_last,
            job.num_workers,
            job.base_seed,
            job.init_fn,
        )

    def _finish(self, life: SimulatedLife, ticket: Ticket) -> None:
        if life.gone or life.fetcher is None:
            life.works_on = 0
            self._work(life)
            return
        content: Any = None
        try:
            content = life.fetcher.load(ticket.indices, ticket.position)
            outcome = Outcome.LOADED
        except StreamOver:
            outcome = Outcome.ENDED
        except Exception as error:
            content, outcome = error, Outcome.FAILED
        parcel = LocalParcel(ticket.number, outcome, content)
        work_s = self._world.load_s(life.seat, ticket)
        now = self._world.clock.now()
        timings = Timings(fetch_s=work_s, begun_at=now - work_s, sealed_at=now)
        event = ParcelsArrived(
            life.seat, life.number, (ticket.number,), outcome, work_s, timings=timings
        )
        self._tell(life, Notice(event, (parcel,)))
        life.works_on = 0
        self._work(life)

    def _end(self, life: SimulatedLife, ending: Ending) -> None:
        if not life.gone:
            self._tell(life, Notice(LifeEnded(life.seat, life.number, ending)))
            life.gone = True
            self._lives.pop((life.seat, life.number), None)


class SimulatedLoader(DataLoader[T]):
    """A DataLoader whose workers live in a `World`."""

    def __init__(self, *args: Any, world: World, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._world = world

    def check_worker_number_rationality(self) -> None:
        """Say nothing: simulated workers need no cores."""

    def _clock(self) -> Clock:
        return self._world.clock

    def _backend(self, job: Job) -> Backend:
        return SimulatedBackend(job, self._world)
