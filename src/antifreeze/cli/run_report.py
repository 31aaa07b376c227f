"""What `antifreeze run` tells at the end, when a loader stalls, and when a signal asks for it.

All of it goes to stderr."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace

from .._core.limits import LIMITS
from .._linux.clock import monotonic
from .._reporting import process_summaries
from .._reporting.explain import IS_REPORTED
from .._reporting.loader_summary import LoaderSummary, summarize
from .._reporting.process_summaries import Place, ProcessSummary, State
from .._reporting.ranks import who as speaks
from .._reporting.redaction import shareable_line
from .._reporting.stall_messages import listeners
from ..integrations.multiprocessing_children import carry
from ..stats import entries

PROCESSES = 16  # that the script has started: as many as a machine has accelerators, at the most
LOADERS_EACH = 4  # of such a process: to train, to validate, to test
LOADERS = 20  # in one report; some programs make one an epoch
SIGNALS = ("USR1", "USR2", "QUIT", "RTMIN")  # Python has no use of its own for them
_SLURM = "SLURM_JOB_ID"
BRIEF_S = 1.0  # of looping: if the script failed then, its speed is not the question
AGAIN_S = 10.0  # between two reports of stalls: several workers may stall at once


# ---- when it is told -----------------------------------------------------------------------------


def tell_at_end() -> None:
    """Tell when this process ends, after all that the script does then. Registered first, it runs
    last; a process that the script has forked tells nothing."""
    atexit.register(_tell, os.getpid())


_raised = False  # the script did, and nobody caught it


def script_raised() -> None:
    """Know that the script ends by an exception."""
    global _raised
    _raised = True


def tell_nothing() -> None:
    """Take that back: there was nothing to be run."""
    atexit.unregister(_tell)


def _tell(owner: int) -> None:
    if os.getpid() == owner:
        _write(text())
        if _place is not None:
            process_summaries.remove(_place.folder)


_place: Place | None = None  # where processes that the script starts leave what is told of them


def gather_from_processes() -> None:
    """Have the report tell of the processes that the script starts by multiprocessing, or forks."""
    global _place
    _place = process_summaries.gather()
    if _place is not None:
        carry({}, (_place.folder, _place.reader))


def signal_of(name: str | None) -> signal.Signals | None:
    """Read which signal should ask for the report. Raises ValueError."""
    if name is None:
        return None
    if str(name).removeprefix("SIG") not in SIGNALS:
        raise ValueError(f"--signal takes {', '.join(SIGNALS)} or none, not {name!r}")
    return signal.Signals[f"SIG{name.removeprefix('SIG')}"]


def usual_signal() -> signal.Signals | None:
    """Give SIGUSR1, unless somebody else has a use for it: whoever started this program, or a
    cluster that asks for a checkpoint with it."""
    taken = signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL or _SLURM in os.environ
    return None if taken else signal.SIGUSR1


def tell_when_asked(by: signal.Signals) -> None:
    """Tell on a signal. A handler of the script's own, set later, replaces this."""
    owner = os.getpid()

    def tell(number: int, frame: object) -> None:
        if os.getpid() == owner:
            _write(text(evidence=True))
        else:  # a process that the script has forked does what it would have done
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(by, tell)
    signal.siginterrupt(by, False)  # calls of C code go on


def tell_when_stalled() -> None:
    """Tell, after each report of a stall, how the loops stand that wait."""
    owner = os.getpid()
    due_at = 0.0

    def tell() -> None:
        nonlocal due_at
        if os.getpid() == owner and (now := monotonic()) >= due_at:
            due_at = now + AGAIN_S
            _write(text(waiting=True))

    listeners.append(tell)


def text(*, evidence: bool = False, waiting: bool = False) -> str:
    """Give the report; `waiting`: of loops that wait now. Never raises: it is told in the middle of
    somebody else's run."""
    try:
        return "".join(f"{shareable_line(line)}\n" for line in _lines(evidence, waiting))
    except Exception as error:
        return f"antifreeze: no report: {shareable_line(f'{type(error).__name__}: {error}')}\n"


def _lines(evidence: bool, waiting: bool) -> Iterator[str]:
    who = speaks()
    if (iteration := sys.modules.get("antifreeze._engine.iterator")) is not None:  # it brings torch
        iteration.settle()
    found = [each for each in entries() if each.accounts.open_s or not waiting]
    left = [] if waiting or _place is None else process_summaries.read(_place)
    if not (found or left or waiting):
        yield f"{who}: this script looped over no DataLoader."
    for entry in found[:LOADERS]:
        yield from _of_loader(summarize(entry), who, evidence, waiting, _raised)
    if len(found) > LOADERS:
        yield f"{who}: ... and {len(found) - LOADERS:,} more loaders"
    advised: set[tuple[str, str]] = set()
    for process in left[:PROCESSES]:
        yield from _of_process(process, who, evidence, advised)
    if len(left) > PROCESSES:
        yield f"{who}: ... and {_more(left[PROCESSES:])}"


def _of_loader(
    loader: LoaderSummary, who: str, evidence: bool, waiting: bool, raised: bool
) -> Iterator[str]:
    count = f"{loader.faults_seen:,} faults, the last {len(loader.faults)}:"
    if raised and loader.seconds < BRIEF_S:
        if len(loader.faults) == 1:
            yield f"{who}: {loader.name}: {loader.faults[0]}"
        elif loader.faults:
            yield f"{who}: {loader.name}: {count}"
            yield from (f"  {fault}" for fault in loader.faults)
        return
    yield f"{who}: {loader.name}: {loader.sentence}"
    for line in loader.evidence if evidence else ():
        yield f"  {line}"
    for line in loader.advice:
        if not (waiting and line == IS_REPORTED):  # it just was
            yield f"  to try: {line}"
    if loader.faults_seen > len(loader.faults):
        yield f"  {count}"
    yield from (f"  {fault}" for fault in loader.faults)


# ---- processes that the script has started -------------------------------------------------------


def _of_process(
    process: ProcessSummary, who: str, evidence: bool, advised: set[tuple[str, str]]
) -> Iterator[str]:
    """`advised`: what was advised for other processes, by loader; ranks would all say the same."""
    who = _named(process, who)
    raised = process.state is State.RAISED
    if words := _how_far(process):
        yield f"{who}: {words}"
    for loader in process.loaders[:LOADERS_EACH]:
        new = [line for line in loader.advice if (loader.name, line) not in advised]
        advised.update((loader.name, line) for line in new)
        yield from _of_loader(replace(loader, advice=tuple(new)), who, evidence, False, raised)
    if (more := len(process.loaders[LOADERS_EACH:]) + process.more_loaders) > 0:
        yield f"{who}: ... and {more:,} more {'loader' if more == 1 else 'loaders'}"


def _named(process: ProcessSummary, who: str) -> str:
    """Return who speaks: a process, by its rank if it has one, its name and its number."""
    if process.rank is not None:
        who = f"antifreeze, rank {process.rank}"
    return f"{who}, {process.name or 'a forked process'} (pid {process.pid})"


def _how_far(process: ProcessSummary) -> str:
    """Return what is missing of what a process tells, if something is."""
    as_of = f"What it had counted by then, to within {LIMITS.records.summary_s:.0f} s:"
    if process.state is State.GONE:
        words = "ended without a report of its own (it was killed, or left by os._exit)."
        return (
            f"{words} {as_of}" if process.loaders else f"{words} It had looped over a DataLoader."
        )
    if process.state is State.LOOPING:
        words = "has not ended."
        return f"{words} {as_of}" if process.loaders else f"{words} It loops over a DataLoader."
    if not process.loaders:
        return "began a loop over a DataLoader and counted nothing."
    return ""


def _more(processes: list[ProcessSummary]) -> str:
    gone = sum(each.state is State.GONE for each in processes)
    words = f"{len(processes):,} more processes that looped over DataLoaders"
    return f"{words}; {gone:,} of them ended without a report of their own" if gone else words


def _write(text: str) -> None:
    """Write past all buffers: a handler may run in the middle of a `print`."""
    with contextlib.suppress(OSError):  # closed
        os.write(2, text.encode(errors="replace"))
