"""Which process a loader's workers descend from: decided at its first loop, and kept.

1. From the main process, by fork, unless something speaks against it: as torch's workers do. An
   accelerator's context does not, nor do threads that are parked.
2. From a clean process, where the user asks for one; where a fork may freeze (another
   thread runs, or a lock is held, that nobody in the child ever releases); and where the main
   process is so large that every fork is slow.
3. What cannot be sent to a clean process is forked after all. Workers that never get going are
   replaced by those of the other descent, once. So are forked ones that wait for something they
   inherited, or need an accelerator that a fork cannot use: also after they have delivered.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from .frozen_values import frozen
from .limits import LIMITS, UNBOUNDED, Bounds, Limits, SendLimits
from .native_pool_names import pools_among

SHOWN = 3  # threads that are named


class Wish(Enum):
    """How the user wants processes to start."""

    NONE = "none"  # said nothing: what is best
    AS_TORCH = "as torch"  # said nothing, and workers are to inherit what torch's would
    FORK = "fork"
    CLEAN = "clean"


class WorkerOrigin(Enum):
    MAIN = "main"
    CLEAN_PROCESS = "clean process"


@frozen
class Program:
    """The main process, as far as it matters for a fork."""

    threads: tuple[str, ...] = ()  # names of those that run, or show that they may hold a lock
    running: str = ""  # what the first of them does
    parked: tuple[str, ...] = ()  # names of those that wait and hold nothing that they show
    held: str = ""  # a lock that workers can reach and somebody holds, in words
    accelerator: str = ""  # whose context it has
    held_bytes: int = 0  # memory of its own


@frozen
class Choice:
    """A descent, and why."""

    descent: WorkerOrigin
    why: str = ""  # in words; empty: nothing speaks against a fork
    bounds: Bounds = UNBOUNDED
    asked_for: bool = False  # by the user: there is no other way
    is_last: bool = False  # both have been tried
    forked_though: str = ""  # what kept the dataset from the clean process
    beside: str = ""  # what else a fork leaves behind, in words: parked threads, a context
    limits: SendLimits = LIMITS.sending

    @property
    def is_plain(self) -> bool:
        """Say whether nothing spoke against a fork."""
        return self.descent is WorkerOrigin.MAIN and not self.why

    @property
    def is_hazard(self) -> bool:
        """Say whether a fork may freeze, not only be slow."""
        return self.bounds in (self.limits.against_freezes, self.limits.to_save_the_run)

    @property
    def may_turn(self) -> bool:
        """Whether forked workers can still be replaced by those of a clean process."""
        return self.descent is WorkerOrigin.MAIN and not (self.asked_for or self.is_last)

    def after_refusal(self, words: str) -> Choice | None:
        """Choose again, since the dataset cannot be sent; None: there is no way."""
        if self.asked_for or self.descent is WorkerOrigin.MAIN:
            return None
        return replace(self, descent=WorkerOrigin.MAIN, is_last=True, forked_though=words)

    def after_silence(self) -> Choice | None:
        """Choose again, since no worker of this descent ever got going; None: there is no way."""
        if self.asked_for or self.is_last:
            return None
        other = (
            WorkerOrigin.MAIN
            if self.descent is WorkerOrigin.CLEAN_PROCESS
            else WorkerOrigin.CLEAN_PROCESS
        )
        why = self.why or "forked workers did not get going"
        bounds = self.limits.against_freezes
        return Choice(other, why, bounds, is_last=True, limits=self.limits)

    def after_misfit(self, words: str) -> Choice | None:
        """Choose again, since forked workers cannot live with what they inherited; None: there is
        no other way."""
        if not self.may_turn:
            return None
        return replace(self._cleanly(words, self.limits.to_save_the_run), is_last=True)

    def at_fork(self, words: str) -> Choice | None:
        """Choose again, since a fork was about to copy a held lock; None: there is no other way."""
        if not self.may_turn:
            return None
        return self._cleanly(words, self.limits.against_freezes)

    def _cleanly(self, why: str, bounds: Bounds) -> Choice:
        return Choice(
            WorkerOrigin.CLEAN_PROCESS, why, bounds, beside=self.beside, limits=self.limits
        )


def choose(program: Program, wish: Wish, limits: Limits = LIMITS) -> Choice:
    """Choose for a loader at its first loop."""
    sending = limits.sending
    if wish is Wish.FORK:
        return Choice(WorkerOrigin.MAIN, "a fork was asked for", asked_for=True, limits=sending)
    if wish is Wish.AS_TORCH:
        return Choice(
            WorkerOrigin.MAIN, "torch's workers are forked", asked_for=True, limits=sending
        )
    if wish is Wish.CLEAN:
        why = "processes start by spawn or forkserver here"
        return Choice(WorkerOrigin.CLEAN_PROCESS, why, asked_for=True, limits=sending)
    hazards = []
    if program.threads:
        hazards.append(_threads(program.threads, program.running))
    if program.held:
        hazards.append(program.held)
    if hazards:
        why = " and ".join(hazards)
        return Choice(WorkerOrigin.CLEAN_PROCESS, why, sending.against_freezes, limits=sending)
    if program.held_bytes >= limits.forking.huge_bytes:
        held = f"this process holds {program.held_bytes / 1024**3:.1f} GiB"
        return Choice(WorkerOrigin.CLEAN_PROCESS, held, sending.against_slow_forks, limits=sending)
    return Choice(WorkerOrigin.MAIN, beside=_beside(program), limits=sending)


def _beside(program: Program) -> str:
    """Return what a fork leaves behind in this process, in words."""
    left = []
    if program.parked:
        shown = ", ".join(program.parked[:SHOWN]) + (" ..." if program.parked[SHOWN:] else "")
        count = len(program.parked)
        left.append(f"{count} parked {'thread' if count == 1 else 'threads'} ({shown})")
    if program.accelerator:
        left.append(f"a context of {program.accelerator}")
    return " and ".join(left)


def _threads(names: tuple[str, ...], running: str) -> str:
    pools = pools_among(names)
    pooled = [name for _, threads in pools for name in threads]
    others = [name for name in names if name not in pooled]
    shown = [f"{len(threads)} of {pool.library}" for pool, threads in pools]
    shown += others[: max(0, SHOWN - len(shown))]
    listed = ", ".join(shown) + (" ..." if len(shown) < len(pools) + len(others) else "")
    if len(names) == 1:
        doing = f": {running}" if running else ""
        return f"another thread runs here ({listed}{doing})"
    return f"{len(names)} other threads run here ({listed})"
