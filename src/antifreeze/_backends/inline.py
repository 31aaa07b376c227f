"""No workers: tickets are loaded in the main process, in the thread that asks.

The same core decides. Nothing can be killed here: a sample that hangs, hangs the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._core.accounts import Timings
from .._core.commands import Force
from .._core.events import EpochBegun, LifeEnded, LifeReady, Outcome, ParcelArrived
from .._core.faults import Ending
from .._core.leases import Lease
from .._core.tickets import Ticket
from .._transport.exceptions import add_note
from .._worker.fetch import Fetcher, StreamOver
from .base import EpochBrief, LocalParcel, Notice


class InlineBackend:
    """One seat, one life, no processes."""

    def __init__(self, fetcher: Fetcher, finish: Callable[[Any], Any] | None = None) -> None:
        self._fetcher = fetcher
        self.finish = finish  # the last step before delivery, e.g. pinning
        self._ticket: tuple[int, int, Ticket] | None = None
        self._notices: list[Notice] = []

    def start(self, seat: int, life: int, brief: EpochBrief) -> None:
        self._notices.append(Notice(LifeReady(seat, life)))
        self._notices.append(Notice(EpochBegun(seat, life, brief.epoch)))

    def begin_epoch(self, seat: int, life: int, brief: EpochBrief) -> None:
        raise AssertionError("an inline life serves one epoch")

    def send(self, seat: int, life: int, ticket: Ticket, lease: Lease) -> None:
        self._ticket = (seat, life, ticket)

    def stop(self, seat: int, life: int) -> None:
        self._ticket = None
        self._notices.append(Notice(LifeEnded(seat, life, Ending(exit_code=0))))

    def kill(self, seat: int, life: int, force: Force) -> None:
        raise AssertionError("there is nothing to kill without workers")

    def abandon(self, seat: int, life: int) -> None:
        raise AssertionError("there is nothing to abandon without workers")

    def wait(self, timeout_s: float | None) -> None:
        """Return at once: there is nobody to wait for."""

    def collect(self) -> Sequence[Notice]:
        """Load the ticket that was sent, if there is one."""
        notices, self._notices = self._notices, []
        if self._ticket is not None:
            (seat, life, ticket), self._ticket = self._ticket, None
            parcel = self._load(ticket)
            event = ParcelArrived(seat, life, ticket.number, parcel.outcome)
            notices.append(Notice(event, parcel))
        return notices

    def wake(self) -> None:
        pass

    def label(self, seat: int, life: int) -> str:
        return "the main process"

    def workers(self) -> list[Any]:
        return []

    def close(self) -> None:
        self._ticket = None

    def _load(self, ticket: Ticket) -> LocalParcel:
        fetcher = self._fetcher
        try:
            content = fetcher.load(ticket.indices)
            if self.finish is not None:
                content = self.finish(content)
            outcome = Outcome.LOADED
        except StreamOver:
            content, outcome = None, Outcome.ENDED
        except BaseException as error:  # Ctrl-C too: it is raised in the loop, in turn
            note = f"antifreeze: raised while {fetcher.doing()} (batch {ticket.position})"
            add_note(error, note)
            content, outcome = error, Outcome.FAILED
        timings = Timings(
            fetcher.fetch_s, fetcher.collate_s, 0.0, fetcher.began_at, fetcher.done_at
        )
        return LocalParcel(outcome, timings, content)
