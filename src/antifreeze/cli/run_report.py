"""What `antifreeze run` tells at the end, and when it is asked (SIGUSR1): on stderr, in one piece.

What is told comes through `accounts()` alone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from .._core.messages import frozen
from .._ranks import ranks
from ..loader import DataLoader
from ..policies import Fault

SHOWN = 5  # faults of a loader; its fault_log has all
LOADERS = 20  # in one report; some programs make one an epoch
_SLURM = "SLURM_JOB_ID"


class Told(Protocol):
    """What is known of one loader, alive or dead."""

    @property
    def name(self) -> str: ...
    @property
    def sentence(self) -> str: ...
    @property
    def evidence(self) -> tuple[str, ...]: ...
    @property
    def faults(self) -> Sequence[Fault]: ...


@frozen
class Seen:
    """A loader that somebody has looped over. (Not the loader itself, nor what holds its dataset:
    they must be free to go.)"""

    name: str
    faults: Sequence[Fault]
    evidence: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        count = len(self.faults)
        return f"{count:,} fault{'s' if count > 1 else ''}" if count else "nothing went wrong"


_seen: list[Seen] = []


def accounts() -> Sequence[Told]:
    """Give what is known of all loaders of this program, in the order of their first loops."""
    return _seen


def watch() -> None:
    """Take note of every loader that is looped over from now on."""
    behind = DataLoader._get_iterator

    def _get_iterator(self: DataLoader[Any]) -> Any:
        if "_fault_book" not in vars(self):
            _note(self)
        return behind(self)

    DataLoader._get_iterator = _get_iterator  # type: ignore[method-assign]


def _note(loader: DataLoader[Any]) -> None:
    kind = type(loader.dataset).__name__
    name = f"loader {len(_seen) + 1} ({kind}, num_workers={loader.num_workers})"
    _seen.append(Seen(name, loader._book.latest))


# ---- when it is told -----------------------------------------------------------------------------


def tell_at_end() -> None:
    """Tell when this process ends, after all that the script does then. Registered first, it runs
    last; a process that the script has forked tells nothing."""
    owner = os.getpid()

    def tell() -> None:
        if os.getpid() == owner:
            _write(text())

    atexit.register(tell)


def tell_when_asked() -> None:
    """Tell on SIGUSR1, unless somebody else has a use for it: whoever started this program, a
    cluster that asks for a checkpoint with it, or the script, whose own handler replaces this."""
    if signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL or _SLURM in os.environ:
        return
    owner = os.getpid()

    def tell(number: int, frame: object) -> None:
        if os.getpid() == owner:
            _write(text())
        else:  # a process that the script has forked does what it would have done
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGUSR1, tell)
    signal.siginterrupt(signal.SIGUSR1, False)  # calls of C code go on


def text() -> str:
    """Give the report. Never raises: it is told in the middle of somebody else's run."""
    try:
        return "".join(f"{line}\n" for line in _lines())
    except Exception as error:
        return f"antifreeze: no report: {type(error).__name__}: {error}\n"


def _lines() -> Iterator[str]:
    here = ranks()
    who = f"antifreeze, rank {here.rank}" if here.world_size > 1 else "antifreeze"
    found = list(accounts())
    if not found:
        yield f"{who}: this script looped over no DataLoader."
    for told in found[:LOADERS]:
        yield f"{who}: {told.name}: {told.sentence}"
        for line in told.evidence:
            yield f"  {line}"
        faults = list(told.faults)
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
