"""What `antifreeze run` tells at the end, and when it is asked (SIGUSR1): all of it on stderr."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
from collections.abc import Iterator

from .._ranks import ranks
from ..iteration import settle
from ..policies import Fault
from ..stats import entries

SHOWN = 5  # faults of a loader; its fault_log has all
LOADERS = 20  # in one report; some programs make one an epoch
_SLURM = "SLURM_JOB_ID"


# ---- when it is told -----------------------------------------------------------------------------


def tell_at_end() -> None:
    """Tell when this process ends, after all that the script does then. Registered first, it runs
    last; a process that the script has forked tells nothing."""
    atexit.register(_tell, os.getpid())


def tell_nothing() -> None:
    """Take that back: there was nothing to be run."""
    atexit.unregister(_tell)


def _tell(owner: int) -> None:
    if os.getpid() == owner:
        _write(text())


def tell_when_asked() -> None:
    """Tell on SIGUSR1, unless somebody else has a use for it: whoever started this program, a
    cluster that asks for a checkpoint with it, or the script, whose own handler replaces this."""
    if signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL or _SLURM in os.environ:
        return
    owner = os.getpid()

    def tell(number: int, frame: object) -> None:
        if os.getpid() == owner:
            _write(text(evidence=True))
        else:  # a process that the script has forked does what it would have done
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGUSR1, tell)
    signal.siginterrupt(signal.SIGUSR1, False)  # calls of C code go on


def text(*, evidence: bool = False) -> str:
    """Give the report. Never raises: it is told in the middle of somebody else's run."""
    try:
        return "".join(f"{line}\n" for line in _lines(evidence))
    except Exception as error:
        return f"antifreeze: no report: {type(error).__name__}: {error}\n"


def _lines(evidence: bool) -> Iterator[str]:
    here = ranks()
    who = f"antifreeze, rank {here.rank}" if here.world_size > 1 else "antifreeze"
    settle()
    found = entries()
    if not found:
        yield f"{who}: this script looped over no DataLoader."
    for entry in found[:LOADERS]:
        told = entry.explain()
        yield f"{who}: {entry.profile.name}: {told.sentence}"
        for line in told.evidence if evidence else ():
            yield f"  {line}"
        for line in told.advice:
            yield f"  to try: {line}"
        faults = list(entry.faults.latest)
        if len(faults) > SHOWN:
            yield f"  {len(faults) - SHOWN:,} faults, and then"
        for fault in faults[-SHOWN:]:
            yield f"  {_of(fault)}"
    if len(found) > LOADERS:
        yield f"{who}: ... and {len(found) - LOADERS:,} more loaders"


def _of(fault: Fault) -> str:
    where = "" if fault.index is None else f" of sample {fault.index}"
    said = fault.exception.splitlines()[0] if fault.exception else ""
    return f"{fault.kind}{where}, {fault.verdict}{': ' if said else ''}{said}"


def _write(text: str) -> None:
    """Write past all buffers: a handler may run in the middle of a `print`."""
    with contextlib.suppress(OSError):  # closed
        os.write(2, text.encode(errors="replace"))
