"""The interface between deciding and doing: what a backend is asked, and what it reports.

1. A backend knows lives by seat and number, tickets and parcels. How it brings them about (a
   process, a thread, a call) is its own business: no descriptor, pid or address crosses this seam.
2. It reports what happened as notices: an event for the core, and a parcel where there is one; or
   what a worker saw that the user should know of.
3. After `LifeEnded` of a life it never reports anything of that life again. A command for a life
   that has ended is ignored: it may have died while the command was on its way.
4. `wait` is the only call that waits, and never longer than it was allowed to.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

from .._core.commands import Force
from .._core.events import Event, LeasesReturned, Outcome, ProgramForked
from .._core.frozen_values import message, record
from .._core.health.memory_growth import Room
from .._core.health.stall_detection import Activity, Sight
from .._core.tickets import Errand
from .._loading.observations import Observation
from .._reporting.wait_totals import Usage
from .._worker.worker_spec import EpochBrief


class Parcel(Protocol):
    """A finished ticket."""

    @property
    def number(self) -> int: ...

    @property
    def outcome(self) -> Outcome: ...

    @property
    def in_slab(self) -> bool:
        """Whether the batch, opened or not, lies in a slab."""

    @property
    def told(self) -> str:
        """What an error said where it was raised, once it is open; "" if it still says that,
        or there is none."""

    def copy_out(self) -> None:
        """Copy the batch into memory of its own; called before `open` or not at all."""

    def open(self) -> Any:
        """Return the batch, or raise the error the user's code raised. Called once."""

    def remark(self, batch: Any) -> str | None:
        """Return what the user should know about this batch, once it is open, or None."""

    def drop(self) -> None:
        """Release what an unopened parcel holds."""


@record
class LocalParcel:
    """A parcel that never left this process: the batch, or the exception itself."""

    number: int
    outcome: Outcome
    _content: Any
    _remark: str | None = None
    in_slab: bool = False
    told: str = ""

    def copy_out(self) -> None:
        """Copy the batch if parts of it are in a slab. (Pinned ones that hold arrays; what was
        pinned is then no longer.)"""
        if self.in_slab:
            self._content = copy.deepcopy(self._content)
            self.in_slab = False

    def remark(self, batch: Any) -> str | None:
        return self._remark

    def open(self) -> Any:
        content, self._content = self._content, None
        if self.outcome is not Outcome.FAILED:
            return content
        try:
            raise content
        finally:
            del content  # its traceback holds this frame: no cycle, or the iterator stays alive

    def drop(self) -> None:
        self._content = None


@message
class Notice:
    event: Event | None
    parcels: Sequence[Parcel] = ()
    seen: tuple[int, Observation] | None = None  # by whom, and what: instead of an event


class Watch(Protocol):
    """Where a thread sleeps that looks after a loader while its loop is away."""

    def wait(self, timeout_s: float) -> None:
        """Sleep until something urgent happens, `end` is called, or the time is over."""

    def pause(self, timeout_s: float) -> None:
        """Sleep until `end` is called or the time is over."""

    def end(self) -> None:
        """Make both return at once, now and from now on. May be called from any thread."""

    def close(self) -> None: ...


class Backend(Protocol):
    def start(self, seat: int, life: int, brief: EpochBrief) -> None:
        """Begin a life. Raise what starting raised; else `LifeReady` and then `EpochBegun`
        follow, or `LifeEnded`."""

    def defer(self) -> None:
        """Put off, until `settle`, what no life waits for: the loop is to get its first batch."""

    def settle(self) -> None:
        """Do what was put off. Called before any code of the user's runs."""

    def begin_epoch(self, seat: int, life: int, brief: EpochBrief) -> None: ...

    def send(self, seat: int, life: int, errands: Sequence[Errand]) -> None: ...

    def stop(self, seat: int, life: int) -> None: ...

    def kill(
        self, seat: int, life: int, force: Force, *, doubted: bool = False, unfit: str = ""
    ) -> None:
        """End a life. `doubted`: it never got going; the next one should come from elsewhere.
        `unfit`: what it inherited and cannot live with; all should come from elsewhere."""

    def expect_turn(self) -> None:
        """Prepare for lives that come from elsewhere. Never waits."""

    def abandon(self, seat: int, life: int) -> None: ...

    def look(self) -> Sequence[Sight]:
        """Return what all lives say they do. Cheap, and never waits."""

    def examine(self, seat: int, life: int) -> Activity | None:
        """Look at a life from outside, and leave it alone. Return None if nothing is seen of it."""

    def room(self) -> Room | None:
        """Return how much memory is left, for us and everybody; None if nobody knows."""

    def usage(self) -> Sequence[Usage]:
        """Return what all lives have used of the machine. Never waits."""

    def explain(self, seat: int, life: int) -> None:
        """Ask a life what may have grown in it (`Suspects`); it answers when it comes to it."""

    def release(self, lock: int) -> str:
        """Release a lock of the dataset's that lives wait for at this address. Return its
        name; nothing if there is no such lock, or somebody else may hold it."""

    def resume(self, seat: int, life: int) -> None:
        """Resume a life that was stopped by a signal."""

    def wait(self, timeout_s: float | None) -> None:
        """Wait until there is something to collect, or the time is over.

        May be cut short by an exception at any moment (Ctrl-C) and loses nothing by it.
        """

    def collect(self) -> Sequence[Notice]:
        """Return what has happened, in order. Never waits for anybody else."""

    def returns(self) -> Sequence[LeasesReturned | ProgramForked]:
        """Return which slabs the loop has let go of. Cheap; may be called at any time."""

    def watch(self, *, parcels: bool = False) -> Watch | None:
        """Return the place where a thread can wait for what should not wait until the loop comes
        back: deaths, room for the rest of a message, and `parcels` if asked for. None if there
        is no such thing."""

    def poll_urgent(self) -> None:
        """Look for that, without waiting; `collect` then returns it."""

    def wake(self) -> None:
        """Make a `wait` in another thread return. May be called from any thread."""

    def label(self, seat: int, life: int) -> str:
        """Return what people call a life: "pid 41207"."""

    def workers(self) -> list[Any]:
        """Return the latest life of each seat as an object with `pid`, `is_alive` and the like."""

    def await_births(self) -> None:
        """Wait, bounded, until every life that was asked for has its `pid`."""

    def close(self) -> None:
        """Release everything. All lives have ended or been abandoned."""
