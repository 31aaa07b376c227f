"""What the loop gets: a batch, or the error that is due in its place."""

from __future__ import annotations

from collections import deque
from typing import Any, NoReturn

from .._core import commands as do
from .._core import events as ev
from .._core.faults import Fault, FaultKind
from .._core.health.stall_detection import Stall
from .._core.supervisor import Supervisor
from .._core.tickets import Errand, Ticket
from .._processes.backend_protocol import Backend, Parcel
from .._reporting.fault_log import LoaderFaults
from .._reporting.reporter import Reporter
from .._reporting.user_warnings import remark
from ..errors import TransportFailed, error_for, timed_out

# What the loop gets instead of a batch.
Answer = do.RaiseFault | do.FinishEpoch


class Delivery:
    """Open parcels and raise faults, for one driver."""

    def __init__(
        self, supervisor: Supervisor, backend: Backend, herald: Reporter, book: LoaderFaults
    ) -> None:
        self._supervisor, self._backend = supervisor, backend
        self._reporter, self._book = herald, book

    def give(self, answer: Answer | None, sampler_errors: deque[Exception]) -> NoReturn:
        """Raise what is due."""
        if not isinstance(answer, do.RaiseFault):
            raise StopIteration
        fault = answer.fault
        if fault.kind is FaultKind.SAMPLER:
            raise sampler_errors.popleft()
        label = self._reporter.label(fault)
        if fault.kind is FaultKind.TIMEOUT:
            timeout_s = self._supervisor.plan.timeout_s
            seen, ticket = self._see(fault, answer.held)
            # Kept in no variable: with its traceback it would keep the iterator, and the workers.
            raise self._reporter.with_sample(
                timed_out(fault, label, timeout_s, seen, ticket), seen or fault, ticket
            )
        raise self._reporter.with_sample(error_for(fault, label), fault, fault.ticket)

    def _see(self, fault: Fault, held: tuple[Ticket, ...]) -> tuple[Stall | None, Ticket | None]:
        """Look at the worker of a fault, now. Return also which of the tickets it holds it is busy
        with: one of an earlier epoch, perhaps."""
        seat, life, ticket = fault.seat, fault.life, fault.ticket
        for sight in self._backend.look():
            if ticket is None or (sight.seat, sight.life) != (seat, life):
                continue
            if (activity := self._backend.examine(sight.seat, sight.life)) is not None:
                stall = Stall.at_once(sight, fault.seconds, activity)
                return stall, next((each for each in held if each.number == sight.ticket), None)
        return None, None

    def open(self, parcel: Parcel, errand: Errand) -> Any:
        """Return the batch of a parcel, or raise the error it holds."""
        if parcel.outcome is ev.Outcome.FAILED:
            try:
                return parcel.open()
            except StopIteration as error:  # it would end the caller's loop without a word
                raise RuntimeError(f"StopIteration was raised: {error}") from error
            except Exception as error:
                error.__traceback__ = None  # our own lines; the worker's are in its text
                self._reporter.raised(errand.seat)
                self._book.note_raised(error, errand.ticket, errand.seat, parcel.told)
                raise error
        try:
            batch = parcel.open()
        except Exception as error:
            raise TransportFailed.cannot_unpack(error, self._reporter.sent_as(errand)) from error
        if (text := parcel.remark(batch)) is not None:
            remark(text)
        return batch


# Where errors are raised on purpose: their text says all, and our lines in a traceback nothing.
RAISERS = frozenset({Delivery.give.__code__, Delivery.open.__code__})
