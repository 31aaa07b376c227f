"""What the user is told while a loader works: faults, stalls, growth; and names for all of them."""

from __future__ import annotations

from collections.abc import Callable

from .._core import commands as do
from .._core.faults import Fault
from .._core.health.memory_growth import Growth
from .._core.health.stall_detection import Stall
from .._core.supervisor import Supervisor
from .._core.tickets import Errand, Ticket
from .._loading.observations import Observation, Places, SampleFailed, Suspect, Suspects
from .._processes.backend_protocol import Backend
from .._transport.exceptions import add_note
from . import growth_messages, stall_messages
from .fault_log import LoaderFaults
from .log import logger
from .ranks import who as speaks
from .torch_pitfalls import TorchPitfalls
from .wait_totals import Accounts

Sift = Callable[[tuple[Suspect, ...]], tuple[Suspect, ...]]


def tell_trends(accounts: Accounts) -> None:
    """Say what creeps, once."""
    if not accounts.trends.due:
        return
    with accounts.guard:  # other loops may have the same accounts
        due, accounts.trends.due = accounts.trends.due, []
    for trend in due:
        logger.warning(
            "%s: %s. It goes on; `loader.explain()` says what the time is spent on.",
            speaks(),
            trend,
        )


class Reporter:
    """Tell what one driver's supervisor and workers have to say. By whoever holds its lock."""

    def __init__(
        self,
        supervisor: Supervisor,
        backend: Backend,
        traps: TorchPitfalls,
        book: LoaderFaults,
        accounts: Accounts,
        sift: Sift,
    ) -> None:
        """`sift` leaves of what workers hold what they have not held from the beginning."""
        self._supervisor, self._backend = supervisor, backend
        self._traps, self._book, self._accounts, self._sift = traps, book, accounts, sift
        self._faults_told = 0
        self._grown: dict[int, Growth] = {}  # by seat; until its life has said what it holds

    def noticed(self, seat: int, seen: Observation) -> None:
        """Take what a worker has noticed."""
        match seen:
            case SampleFailed():
                self._book.note_sample(seen, seat)
            case Suspects(found=found):
                self._tell_growth(seat, self._sift(found))
            case Places(found=found):
                self._accounts.note_places(found)
            case _:
                self._traps.notice(seat, seen)

    def tell_faults(self, *, quiet: bool) -> None:
        """Have each worker that was lost kept and logged: nobody should have to guess."""
        faults = self._supervisor.faults
        if faults.seen == self._faults_told:
            return
        new, self._faults_told = faults.seen - self._faults_told, faults.seen
        for fault in list(faults.latest)[-new:]:
            self._book.note_core(fault, self.label(fault), quiet=quiet)

    def tell_trends(self) -> None:
        tell_trends(self._accounts)

    def tell_stall(self, command: do.ReportStall) -> None:
        stall = command.stall
        label = self._backend.label(stall.seat, stall.life)
        behind = self._book.behind(stall.step, command.ticket)
        stall_messages.tell(stall, command.ticket, label, self._supervisor.plan.limits, behind)

    def with_sample(
        self, error: Exception, seen: Fault | Stall, ticket: Ticket | None
    ) -> Exception:
        """Add to an error what else is known of the sample it is about."""
        inner, file = self._book.known_of(seen.step, ticket)
        for told in (inner, f"file: {file}" if file else ""):
            if told:
                add_note(error, f"antifreeze: {told}")
        return error

    def tell_late(self, command: do.ReportLate) -> None:
        """Say who keeps an epoch or the program from ending, and what is seen of it."""
        seen = self._backend.examine(command.seat, command.life)
        waits = f" ({seen.waits_for})" if seen is not None and seen.waits_for else ""
        logger.warning(
            "%s: worker %s (%s) had nothing to do and did not leave in %g s%s; it was"
            " ended. Look at what your dataset, or a library, does when a process exits (atexit,"
            " threads that are joined).",
            speaks(),
            command.seat,
            self._backend.label(command.seat, command.life),
            command.seconds,
            waits,
        )

    def tell_lost(self, seat: int, changed: tuple[str, ...]) -> None:
        """Warn that a worker begins an epoch without what its predecessor had in its memory."""
        if changed:
            logger.warning(
                "%s: worker %s was replaced between two epochs, and its dataset is as it was at"
                " first: %s had changed in the worker that was lost. If the next samples depend"
                " on that, return it from state_dict() and take it in load_state_dict().",
                speaks(),
                seat,
                ", ".join(changed),
            )

    def tell_heir(self, seat: int) -> None:
        """Note that a worker begins to draw where the one before it was lost."""
        self._book.draws_differ(f"worker {seat} was replaced")

    def tell_lock(self, command: do.ReleaseLock, name: str) -> None:
        """Say that a lock was released whose holder is gone."""
        if not name:
            return  # it was not: the stall reports go on
        who = f"worker {command.seat} ({self._backend.label(command.seat, command.life)})"
        did = "raised" if command.alive else "was lost"
        all_of = "the worker waits" if len(command.waiting) == 1 else "all workers wait"
        logger.warning(
            "%s: %s for %s, which nobody will release: %s %s, and must have had it. It was"
            " released, once. A lock around reads makes workers take turns; if it is not needed,"
            " leave it out, or let each worker open its own file.",
            speaks(),
            all_of,
            name,
            who,
            did,
        )

    def expect_suspects(self, growth: Growth) -> None:
        """Keep what is known of a life that has grown until it says what has grown in it."""
        self._grown[growth.seat] = growth

    def nothing_said(self, seat: int) -> None:
        """Tell what is known of a life that has left without a word of what had grown in it."""
        self._tell_growth(seat, ())

    def _tell_growth(self, seat: int, found: tuple[Suspect, ...]) -> None:
        growth = self._grown.pop(seat, None)
        if growth is not None:
            label = self._backend.label(seat, growth.life)
            line = growth_messages.line(growth, found, label, self._supervisor.plan.limits)
            self._book.note_growth(growth, line)

    def label(self, fault: Fault) -> str:
        """Name the worker of a fault."""
        if fault.seat is None or fault.life is None:
            return "pid unknown"
        return self._backend.label(fault.seat, fault.life)

    def raised(self, seat: int) -> None:
        """Take note that the loop receives an error of this worker's."""
        self._traps.raised.add(seat)

    def sent_as(self, errand: Errand) -> str:
        """Name a batch by its samples and the worker that loaded it."""
        ticket, label = errand.ticket, self._backend.label(errand.seat, errand.life)
        batch = f"batch {ticket.position} ({stall_messages.samples(ticket.indices)})"
        return f"{batch}, loaded by worker {errand.seat} ({label})"
