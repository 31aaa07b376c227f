"""What `antifreeze run` tells at the end, when a loader stalls, and when a signal asks for it.

All of it goes to stderr."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator

from .._clock import monotonic
from .._core.explaining import IS_REPORTED
from .._core.faults import FaultKind
from .._core.stalls import StackLine
from .._ranks import who as speaks
from .._redaction import shareable_line
from .._stalls_told import listeners, where
from .._transport.words import shown
from ..policies import Fault
from ..stats import Entry, entries

SHOWN = 5  # faults of a loader; its fault_log has all
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
    if (iteration := sys.modules.get("antifreeze.iteration")) is not None:  # it brings torch
        iteration.settle()
    found = [each for each in entries() if each.accounts.open_s or not waiting]
    if not found and not waiting:
        yield f"{who}: this script looped over no DataLoader."
    for entry in found[:LOADERS]:
        yield from _of_loader(entry, who, evidence, waiting)
    if len(found) > LOADERS:
        yield f"{who}: ... and {len(found) - LOADERS:,} more loaders"


def _of_loader(entry: Entry, who: str, evidence: bool, waiting: bool) -> Iterator[str]:
    faults = list(entry.faults.latest)[-SHOWN:]
    count = f"{entry.faults.seen:,} faults, the last {len(faults)}:"
    if _raised and entry.accounts.seconds < BRIEF_S:
        if len(faults) == 1:
            yield f"{who}: {entry.profile.name}: {_of(faults[0])}"
        elif faults:
            yield f"{who}: {entry.profile.name}: {count}"
            yield from (f"  {_of(fault)}" for fault in faults)
        return
    told = entry.explain()
    yield f"{who}: {entry.profile.name}: {told.sentence}"
    for line in told.evidence if evidence else ():
        yield f"  {line}"
    for line in told.advice:
        if not (waiting and line == IS_REPORTED):  # it just was
            yield f"  to try: {line}"
    if entry.faults.seen > len(faults):
        yield f"  {count}"
    yield from (f"  {_of(fault)}" for fault in faults)


def _of(fault: Fault) -> str:
    index = fault.index
    which = "" if index is None else f" of sample{'s' * isinstance(index, list)} {shown(index)}"
    if fault.kind in SAID and fault.worker is not None:  # at length, when it happened
        return f"{fault.kind}{which}, {fault.verdict}: worker {fault.worker}"
    said = fault.exception.splitlines()[0] if fault.exception else ""
    place = where(_stack(fault.traceback))
    return f"{fault.kind}{which}, {fault.verdict}{': ' if said else ''}{said}{place}"


SAID = (FaultKind.CRASH.value, FaultKind.HANG.value, "growth")
_FRAME = re.compile(r'^ *File "(.*)", line (\d+), in (.*)$', re.MULTILINE)
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _stack(traceback: str) -> tuple[StackLine, ...]:
    """Give what we had called when it was raised, innermost first."""
    frames = [StackLine(file, int(line), name) for file, line, name in _FRAME.findall(traceback)]
    within = itertools.takewhile(lambda frame: not frame.file.startswith(_OURS), reversed(frames))
    return tuple(within)


def _write(text: str) -> None:
    """Write past all buffers: a handler may run in the middle of a `print`."""
    with contextlib.suppress(OSError):  # closed
        os.write(2, text.encode(errors="replace"))
