"""All faults of a loader: kept for `loader.faults`, written to a file, held against a budget."""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .._core import faults as core
from .._core.health.memory_growth import Growth
from .._core.health.worker_phases import WHOLE, index_at
from .._core.limits import LIMITS
from .._core.tickets import Ticket
from .._linux.clock import moment
from .._loading.observations import QUARANTINED, SampleFailed
from .._transport.traceback_frames import formatted
from ..errors import BudgetSpent, error_for, report
from ..policies import Fault, Policy
from .fault_log_file import FaultFile
from .formatting import said, shown
from .log import logger
from .ranks import ranks, who
from .redaction import redacted, redacts

# What is said of a fault that does not stop the loop.
GOES_ON = {
    core.FaultKind.CRASH: "The worker is replaced.",
    core.FaultKind.HANG: "The worker is replaced.",
    core.FaultKind.REFUSED: "The others go on without it; the next epoch tries again.",
}
# Kept where they are raised, with more; or no fault of a sample or worker.
_TOLD_ELSEWHERE = frozenset({core.FaultKind.EXCEPTION, core.FaultKind.SAMPLER})
_RAISED = frozenset(
    {
        core.FaultKind.STREAM_LOST,
        core.FaultKind.NEVER_STARTED,
        core.FaultKind.BUDGET_SPENT,
        core.FaultKind.TIMEOUT,
    }
)

COUNTED = ("replaced", "skipped")  # verdicts that are held against the budget
LOST = (core.FaultKind.CRASH.value, core.FaultKind.HANG.value)  # the worker went with the sample
NAMED = 5  # indices in one line


class FaultTally:
    """How many faults there were, and the latest. It may outlive the loader: it holds nothing of
    it."""

    def __init__(self) -> None:
        self.latest: deque[Fault] = deque(maxlen=LIMITS.records.loader_faults)
        self.verdicts: Counter[str] = Counter()  # of all there were
        self.lost = 0  # workers

    @property
    def seen(self) -> int:
        """Give the number of all faults there were."""
        return self.verdicts.total()

    def __repr__(self) -> str:
        return f"<FaultTally {self.seen} faults, {self.lost} workers lost>"


class LoaderFaults:
    """What went wrong with one loader. Used by one thread at a time."""

    def __init__(
        self,
        policy: Policy,
        path: str | os.PathLike[str] | None = None,
        underlying: Callable[[Any], str] = lambda index: "",
        file_of: Callable[[Any], str] = lambda index: "",
        *,
        torch_draws: bool = False,
    ) -> None:
        """`underlying` gives the index that a sample has in the dataset under a Subset, `file_of`
        the file that the dataset lists for it. `torch_draws`: see `draws_differ`."""
        self._policy, self._underlying, self._file_of = policy, underlying, file_of
        self._torch_draws = torch_draws
        self._file = None if path is None else FaultFile(path)
        self._epochs = 0  # begun
        self.tally = FaultTally()
        self.latest = self.tally.latest
        self.samples = 0  # delivered, of all epochs
        self._recent: deque[int] = deque()  # how many samples had been loaded when one failed
        self._count = 0
        self._growths = 0
        self._raised: dict[int | None, SampleFailed] = {}  # samples of this epoch, by batch
        self._of_epoch: list[Fault] = []
        self.broke: BudgetSpent | None = None

    def begin_epoch(self) -> None:
        self._epochs += 1
        if self._of_epoch or self._raised:
            self._of_epoch.clear()
            self._raised.clear()

    def note(self, fault: Fault) -> None:
        """Keep a fault. The run breaks if there are too many."""
        if redacts():
            fault = replace(
                fault, exception=redacted(fault.exception), traceback=redacted(fault.traceback)
            )
        self.latest.append(fault)
        self.tally.verdicts[fault.verdict] += 1
        self.tally.lost += fault.kind in LOST
        if fault.verdict in COUNTED:
            if len(self._of_epoch) < LIMITS.records.loader_faults:
                self._of_epoch.append(fault)
            if fault.kind != QUARANTINED:
                self._hold_against_budget(fault)
        if self._file is not None:
            self._file.write({**self._when(), **as_data(fault, shared=True)})

    def _when(self) -> dict[str, Any]:
        """Say when and where it is, for a file that several runs and ranks may write to."""
        here = ranks()
        of_rank = {"rank": here.rank} if here.world_size > 1 else {}
        return {"time": moment(), **of_rank, "epoch": self._epochs}

    def note_sample(self, failed: SampleFailed, worker: int | None = None) -> None:
        """Keep a sample that a policy has seen to; or which one it is that will be raised."""
        if failed.verdict == "raised":
            self._raised[failed.position] = failed
            while len(self._raised) > LIMITS.records.loader_faults:
                del self._raised[next(iter(self._raised))]
            return
        self.note(
            Fault(
                kind=failed.kind,
                verdict=failed.verdict,
                index=failed.index,
                position=failed.position,
                worker=worker,
                attempt=failed.attempt,
                seconds=failed.seconds,
                exception=failed.exception,
                traceback=failed.traceback,
                file=failed.file or self._file_of_sample(failed.index),
            )
        )
        if self._torch_draws:
            self.draws_differ(f"sample {shown(failed.index)} was {failed.verdict}")

    def draws_differ(self, why: str) -> None:
        """Warn, once, that what samples draw is no longer what they draw in torch's loader."""
        if self._torch_draws:
            self._torch_draws = False
            logger.warning(
                "%s: %s, so from here on random draws differ from those of torch's loader"
                ' (randomness="torch").',
                who(),
                why,
            )

    def note_core(self, fault: core.Fault, label: str, *, quiet: bool) -> None:
        """Keep what the core has decided about a worker; say it, if the loop goes on without a
        word of it."""
        if fault.kind in _TOLD_ELSEWHERE:
            return
        ending = fault.ending or core.Ending()
        # The first line alone; what a stack says, and costs to read, is for the error itself.
        brief = replace(fault, ending=replace(ending, stack=())) if ending.stack else fault
        what = str(error_for(brief, label)).splitlines()[0]
        if behind := self.behind(fault.step, fault.ticket):
            what += f" {behind}"
        if (ending.signal is not None or ending.exit_code is not None) and ending.words:
            what += f" Likely cause: {ending.words}."
        told = ending.told
        if fault.kind in GOES_ON and not (told or quiet):
            logger.warning("%s: %s %s", who(), what, self._goes_on(fault))
        ticket, index = fault.ticket, None
        if ticket is not None:
            index = index_at(fault.step, ticket.indices)
        spared = {"replace": "replaced", "skip": "skipped"}.get(self._policy.action, "")
        verdict = {"retry": "retried", "spare": spared, "raise": "raised"}.get(fault.verdict, "")
        self.note(
            Fault(
                kind=fault.kind.value,
                verdict=verdict or ("raised" if fault.kind in _RAISED else "retried"),
                index=index if ticket is None or index is not None else ticket.indices,
                position=None if ticket is None else ticket.position,
                worker=fault.seat,
                attempt=1 if ticket is None else ticket.attempt,
                seconds=fault.seconds,
                exception=what,
                file=self._file_of_sample(self._sample(fault.step, ticket)),
            )
        )

    def behind(self, step: int, ticket: Ticket | None) -> str:
        """Return what else is known of the sample that is being loaded, in one line."""
        inner, file = self.known_of(step, ticket)
        return " ".join(filter(None, (inner, f"(file: {file})" if file else "")))

    def known_of(self, step: int, ticket: Ticket | None) -> tuple[str, str]:
        """Return which sample of the dataset under a Subset is being loaded, in a sentence, and its
        file; empty where there is none, or not one sample."""
        index = self._sample(step, ticket)
        inner = "" if index is None else self._underlying(index)
        told = f"Sample {shown(index)} is {inner} in the dataset of the Subset." if inner else ""
        return told, self._file_of_sample(index)

    def file_at(self, step: int, ticket: Ticket) -> str:
        """Return the file of the sample that is being loaded, if it is known. From any thread."""
        return self._file_of_sample(self._sample(step, ticket))

    def _sample(self, step: int, ticket: Ticket | None) -> Any:
        """Return the index of the sample that is being loaded; None if it is not one sample."""
        indices: Any = None if ticket is None else ticket.indices
        if step == WHOLE and not isinstance(indices, list | tuple):
            return indices
        return index_at(step, indices)

    def _file_of_sample(self, index: Any) -> str:
        return "" if index is None else self._file_of(index)

    def _goes_on(self, fault: core.Fault) -> str:
        """Say what becomes of the worker and of the batch."""
        match fault.verdict:
            case "raise":
                return "The worker is replaced; the batch is given up, and raised in its turn."
            case "spare" if self._policy.action == "skip":
                return "The worker is replaced; the sample is left out (on_error)."
            case "spare":
                return "The worker is replaced, and the sample by another (on_error)."
        return GOES_ON[fault.kind]

    def note_growth(self, growth: Growth, line: str) -> None:
        """Keep and say that a worker has grown too much; every time, while that is news."""
        self._growths += 1
        is_news = self._growths & (self._growths - 1) == 0  # the 1st, 2nd, 4th, 8th ...
        logger.log(logging.WARNING if is_news else logging.INFO, "%s", line)
        verdict = "recycled" if growth.goes else "left"
        self.note(Fault(kind="growth", verdict=verdict, worker=growth.seat, exception=line))

    def note_raised(self, error: Exception, ticket: Ticket, worker: int, told: str = "") -> None:
        """Keep what the loop receives instead of a batch. `told`: what it said in its worker, if
        it says more by now."""
        blamed = self._raised.pop(ticket.position, None)
        self.note(
            Fault(
                kind="exception" if blamed is None else blamed.kind,
                verdict="raised",
                index=ticket.indices if blamed is None else blamed.index,
                position=ticket.position,
                worker=worker,
                attempt=1 if blamed is None else blamed.attempt,
                exception=told or f"{type(error).__name__}: {said(error)}",
                traceback=formatted(error),
                file="" if blamed is None else blamed.file,
            )
        )

    def summary(self) -> str:
        """Sum up what an epoch went without, in one line; nothing if it was whole."""
        if not self._of_epoch:
            return ""
        counts = Counter((fault.verdict, fault.kind) for fault in self._of_epoch)
        parts = [f"{count} {verdict} ({kind})" for (verdict, kind), count in counts.items()]
        named = ", ".join(repr(fault.index) for fault in self._of_epoch[:NAMED])
        more = len(self._of_epoch) - NAMED
        tail = f" and {more} more" if more > 0 else ""
        return f"{who()}: samples of this epoch: {', '.join(parts)}: {named}{tail}."

    def _hold_against_budget(self, fault: Fault) -> None:
        budget = self._policy.budget
        self._count += 1
        self._recent.append(self.samples)
        while self._recent[0] < self.samples - budget.window:
            self._recent.popleft()
        allowed = budget.share * budget.window
        if budget.most is not None and self._count > budget.most:
            self._break(f"{self._count} samples have failed, {budget.most} are allowed", fault)
        elif len(self._recent) > allowed:
            share = f"{100 * budget.share:g} %"
            words = f"{len(self._recent)} of the last {budget.window} samples have failed"
            self._break(f"{words}, {share} are allowed", fault)

    def _break(self, words: str, fault: Fault) -> None:
        if self.broke is not None:
            return
        file = f" (file: {fault.file})" if fault.file and fault.file not in fault.exception else ""
        last = f"sample {fault.index!r}: {fault.exception}{file}"
        self.broke = BudgetSpent(
            report(
                f"too many samples fail: {words}. The last one was {last}",
                did="stopped the run; loader.faults has them all",
                remedy="look at what they have in common; or another antifreeze.policies.Budget",
            )
        )


def as_data(fault: Fault, *, shared: bool = False) -> dict[str, Any]:
    """Return a fault as plain data; an index that is none is written as it looks. `shared`: it is
    written to a file, so that no URL in it may have a password or the values of a query."""
    clean = redacted if shared else str
    index: Any = fault.index
    if not isinstance(index, int | float | None):
        index = clean(index if isinstance(index, str) else repr(index))
    return {
        "kind": fault.kind,
        "verdict": fault.verdict,
        "index": index,
        "position": fault.position,
        "worker": fault.worker,
        "attempt": fault.attempt,
        "seconds": round(fault.seconds, 6),
        "exception": clean(fault.exception),
        "traceback": clean(fault.traceback),
        "file": fault.file,
    }
