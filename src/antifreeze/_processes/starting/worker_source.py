"""Where workers come from: whoever is asked for one, and tells of its birth and its exit status.

1. `ask` has a worker begin and does not wait for it; its birth, or that there was none, is news.
2. `hear` never waits: it returns the news there are. Its `descriptor` is what to wait for.
3. That a worker has ended is seen by its pidfd, whoever its parent is. Its exit status is known to
   the parent alone: it is news, and comes before or after.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from ..._core.faults import Ending
from ..._core.frozen_values import frozen, message
from ..._core.health.stall_detection import Inherited
from ..._transport.descriptors import Descriptor
from ..._transport.stack_file import StackFile
from ..._transport.status_board import StatusBoard
from ..._worker.worker_spec import EpochBrief, WorkerSpec
from .slow_unpickling import Opening
from .start_method_messages import Wait


def exit_in_words(code: int) -> str:
    """Return how a process ended, by its exit code or the negative number of a signal."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def ending_of(code: int | None) -> Ending:
    """Return how a worker ended, by what `Exited` has as its code."""
    if code is None:
        return Ending(words="its exit status was taken by another wait in this program")
    return Ending(signal=-code) if code < 0 else Ending(exit_code=code)


@frozen
class Wanted:
    """A worker that is asked for."""

    seat: int
    life: int
    place: int  # of its word on the status board
    brief: EpochBrief
    number: int | None = None  # multiprocessing's, where another process forks it

    def spec(self, job: Any, status: StatusBoard, **more: Any) -> WorkerSpec:
        """Return what the worker must know; called in the process that it must not outlive."""
        return WorkerSpec(
            job=job,
            seat=self.seat,
            life=self.life,
            brief=self.brief,
            status=status.line(self.place),
            ends_with=os.getpid(),
            **more,
        )


@message
class Born:
    """A worker has begun."""

    seat: int
    life: int
    pid: int
    pidfd: Descriptor


@message
class Refused:
    """A worker could not begin."""

    seat: int
    life: int
    words: str


@message
class Exited:
    """A worker's parent knows how it ended: an exit code, or the negative number of a signal."""

    seat: int
    life: int
    code: int | None  # None: somebody else in this program took it
    peak_bytes: int = 0  # of memory that it held, as far as that is known


@message
class Orphaned:
    """The parent of workers is gone itself, and takes them with it. No word of them follows."""

    words: str
    told: bool = False  # the user knows why
    spared: frozenset[tuple[int, int]] = frozenset()  # workers that have another parent


News = Born | Refused | Exited | Orphaned


@frozen
class JobOpened:
    """A worker has opened its sealed job."""

    modules: Sequence[str]  # that it had to import
    seconds: float  # of processor time


@frozen
class JobUnfit:
    """A worker cannot open its sealed job: none of its siblings can."""

    words: str
    details: str


@frozen
class EndedWhileOpening:
    """A worker ended while it opened its sealed job; not by us."""

    how: str


@frozen
class NeverGotGoing:
    """No worker of this source got going: another way to make them is to be tried."""


Report = JobOpened | JobUnfit | EndedWhileOpening | NeverGotGoing


class WorkerParent(Protocol):
    """Another process than this one, which workers are forked from."""

    @property
    def acting_pid(self) -> int | None:
        """The pid of this process; before it is there, of the one that it comes from."""

    @property
    def opening(self) -> Opening | None:
        """What is seen of this process while it cannot fork workers yet."""

    def go_on(self) -> None:
        """Resume this process, if somebody has stopped it."""


class WorkerSource(ABC):
    """Where the workers of one loader come from.

    What is not abstract has a default: that of a source in which this process itself starts each
    worker, at once, in the one way that the user has chosen.
    """

    @abstractmethod
    def ask(self, wanted: Wanted, channel: socket.socket, trace: StackFile) -> None:
        """Have a worker begin at this end of a channel. Raise SourceGone, or whatever starting
        raised."""

    @abstractmethod
    def hear(self) -> Sequence[News]:
        """Return the news that are there. Never waits."""

    @abstractmethod
    def close(self) -> None:
        """End what is left, bounded, and give everything back."""

    @property
    def descriptor(self) -> int | None:
        """What becomes readable when there are news. By default they do not come by themselves:
        there are some after `ask` and after `ended`."""
        return None

    @property
    def forks(self) -> bool:
        """Whether workers begin at once: nothing has to be imported first."""
        return False

    @property
    def parent(self) -> WorkerParent | None:
        """The process that workers are forked from at present, if it is not this one."""
        return None

    def ended(self, seat: int, life: int) -> None:
        """Learn the exit status of a worker whose pidfd tells its end. By default it becomes news
        without being asked for."""

    def report(self, report: Report) -> None:
        """Take into account how a worker fares. By default that changes nothing: how workers are
        made is the user's choice, and none has a sealed job."""

    # ---- a source that makes something ahead of workers -------------------------------------

    def defer(self) -> None:
        """Put off, until `settle`, what workers need only to be replaced. By default nothing."""

    def settle(self) -> None:
        """Make ready, from the next `hear` on, what was put off. By default nothing."""

    def forsake(self) -> None:
        """End whoever was asked for a worker and does not bring it; the next one is asked anew.
        By default nobody: `ask` starts it at once."""

    # ---- a source whose workers can come from elsewhere than a fork of this process ---------

    def inherited(self, wait: Wait) -> Inherited | None:
        """Return what a forked worker has inherited that keeps it waiting for a lock. Without a
        deadlock or a library that is a guess. By default nothing is known of it."""
        return None

    @property
    def can_turn(self) -> bool:
        """Whether `turn` would make forked workers anew."""
        return False

    def expect_turn(self) -> None:
        """Prepare for `turn`: it seems that forked workers cannot go on. By default nothing."""

    def turn(self, words: str) -> None:
        """Make all workers anew from a clean process, if that can be: forked ones cannot live with
        what they inherited. By default it cannot be."""


def worker_name(seat: int) -> str:
    return f"antifreeze worker {seat}"
