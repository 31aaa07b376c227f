"""Where the workers of a loader come from: chosen at its first loop, kept for all that follow."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import weakref
from logging import INFO, WARNING
from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext
from typing import TYPE_CHECKING, Any

from ..._core.fork_or_clean import Choice, Program, Wish, WorkerOrigin, choose
from ..._core.health.stall_detection import Inherited
from ..._core.limits import LIMITS, Limits
from ..._linux.available_memory import in_words
from ..._linux.clock import monotonic
from ..._loading.job import AtEnd, Job
from ..._reporting.log import logger
from ..._torch_internals import releases_dataset
from ..fork_safety import fork_hazards, lock_search, native_thread_pools
from ..fork_safety.reachable_objects import (
    NOTHING_REACHED,
    Reached,
    addresses_of,
    lock_at,
    reached_from,
)
from ..replication.kinds import semaphores
from . import clean_process, clean_process_main, explicit_start_method, start_method_messages
from .reused_zygote import Kept
from .start_method_messages import Wait

if TYPE_CHECKING:
    from .zygote import Zygote

ADVICE = ' To start there in the first place: multiprocessing_context="forkserver".'


class StartMethod:
    """The choice of one loader, and what became of it."""

    def __init__(
        self, wish: Wish, dataset: Any = None, *, limits: Limits = LIMITS, **others: Any
    ) -> None:
        """Look at this process and choose. `others`: what else runs in workers, by its name."""
        if clean_process_main.is_opening:
            raise RuntimeError(
                "a module that the dataset needs begins a loop over a DataLoader when it is"
                ' imported; put that under `if __name__ == "__main__":`'
            )
        self._wish, self._process, self._limits = wish, os.getpid(), limits
        native_thread_pools.lay_down()
        self._looked_at, self._reached = monotonic(), NOTHING_REACHED
        self.choice: Choice = choose(self._look({"dataset": dataset, **others}), wish, limits)
        known = _stuck[0] if _stuck and self.choice.beside else _unfit.get(type(dataset))
        if known:
            self.choice = self.choice.at_fork(known) or self.choice
        self._dataset, self._kind = _reference(dataset), type(dataset)
        self._kept: list[Kept] = []  # at most one
        self._in_vain = 0  # so often what would be sent was another thing
        self._searched: tuple[Wait | None, str] = None, ""  # what a worker waits for, in words
        weakref.finalize(self, _end_all, self._kept)
        if (words := _refused.get(id(dataset))) is not None:  # to another loader
            self.choice = self.choice.after_refusal(words) or self.choice

    def _look(self, roots: dict[str, Any]) -> Program:
        """Look at this process, and at what workers can reach of it."""
        try:
            if self._wish is Wish.NONE and not fork_hazards.is_alone():
                self._reached = reached_from(roots)
            return fork_hazards.program(self._reached)
        except Exception as error:  # objects of the program's may be as odd as they like
            logger.debug("antifreeze: looking at the other threads failed", exc_info=True)
            return Program(held=f"its threads could not be looked at ({type(error).__name__})")

    def kept(self, job: Job) -> Kept | None:
        """Return the process that holds this very job already, if there is one."""
        for kept in self._kept:
            if kept.is_fit and kept.holds(job, self.choice.bounds):
                self._in_vain = 0
                return kept
            self._in_vain += 1
        self.forget_kept()
        return None

    def keep(self, zygote: Zygote) -> bool:
        """Keep a zygote for later epochs. Return whether it stays: not if there is one already,
        nor where the dataset is another one in each epoch."""
        most = self._limits.starting.kept_zygote_tries
        if self._kept or self._in_vain >= most or self._process != os.getpid():
            return False
        kept = zygote.keep()
        if kept is not None:
            self._kept.append(kept)
        return kept is not None

    def forget_kept(self) -> None:
        """End the process that was kept, if there is one."""
        _end_all(self._kept)

    @property
    def is_clean_wish(self) -> bool:
        """Whether the user wants processes that inherit nothing: spawn, or forkserver."""
        return self._wish is Wish.CLEAN

    def holds(self, wish: Wish) -> bool:
        """Say whether the choice still holds: for as long as it is asked of the same process, in
        the same way, and nothing has come up that speaks against a plain fork."""
        if wish is not self._wish or self._process != os.getpid():
            return False
        if not self.choice.is_plain:
            return True
        if not self.choice.beside:
            return fork_hazards.is_alone()
        return monotonic() - self._looked_at < self._limits.forking.look_holds_s

    @property
    def looked_for(self) -> Reached | None:
        """What to look for right before a fork; None if there is no other way anyhow, or nobody
        else is here."""
        return self._reached if self.can_turn(self.choice) else None

    def look_again(self, job: Job) -> None:
        """Look at this process once more, before a fork long after the first ones: threads may
        have come up since."""
        if self._wish is not Wish.NONE or not self.choice.is_plain or fork_hazards.is_alone():
            return
        roots = {
            "dataset": job.dataset,
            "collate_fn": job.collate_fn,
            "worker_init_fn": job.init_fn,
        }
        self.choice = choose(self._look(roots), self._wish, self._limits)

    def beware(self, words: str) -> None:
        """Note that a fork was not safe at its very moment."""
        choice = self.choice.at_fork(words)
        assert choice is not None  # else nobody would have looked
        self.choice = choice

    def may_turn(self, choice: Choice) -> bool:
        """Whether workers that were forked by this choice can still be made anew in a clean
        process. (The present choice is another one if a second loop over the loader has turned.)"""
        return choice.may_turn and (self.choice == choice or self._has_turned)

    def can_turn(self, choice: Choice) -> bool:
        """The same of workers that wait for a lock: only beside others can they have inherited
        it."""
        return bool(choice.beside) and self.may_turn(choice)

    @property
    def _has_turned(self) -> bool:
        return self.choice.descent is WorkerOrigin.CLEAN_PROCESS

    def inherited(self, choice: Choice, wait: Wait, dataset: Any) -> Inherited | None:
        """Return what a worker that was forked by this choice has inherited that keeps it waiting
        (see `WorkerSource`)."""
        proven = bool(wait.deadlock or wait.lacks)
        if choice.descent is not WorkerOrigin.MAIN:
            if proven:  # here, too: the fork was not the cause
                self._take_back()
            return None
        no_way = "" if self.can_turn(choice) else self.choice.forked_though
        if not (self.can_turn(choice) or (proven and no_way)):
            return None
        return Inherited(self._waits_for(choice, wait, dataset), no_way, proven)

    def _waits_for(self, choice: Choice, wait: Wait, dataset: Any) -> str:
        at = wait.at
        beside = f" (the main process has {choice.beside})" if choice.beside else ""
        if wait.lacks:
            return f"{_FOREVER}{at}, for threads of {wait.lacks}, which a fork does not copy"
        if not wait.deadlock:
            lock = "a lock that another thread may have held at the fork"
            return f"{_TOO_LONG}{at}, for {lock}{beside}"
        if wait.for_semaphore:
            semaphores.note_freeze()
        lock = self._lock_in_words(wait, dataset)
        if lock:
            return f"{_FOREVER}{at}, for {lock}{beside}"
        if wait.for_semaphore:
            return f"{_FOREVER}{at}, for a semaphore that had no permit left at the fork{beside}"
        lock = "a lock that was held at the fork, or a thread that a fork does not copy"
        return f"{_SEEMS}{at}, for {lock}{beside}"

    def _lock_in_words(self, wait: Wait, dataset: Any) -> str:
        """Return the lock that a worker waits for, by its path, and who held it. Searched once."""
        if self._searched[0] != wait:
            named = {"dataset": dataset}
            if wait.for_semaphore:
                found = lock_search.semaphore_in_words(named)
            else:
                found = lock_search.lock_in_words(addresses_of(wait.deadlock), named)
                if not found and (path := lock_at(self._reached, wait.deadlock)):
                    found = f"{path}, held by another thread at the fork"
            self._searched = wait, found
        return self._searched[1]

    def expect_turn(self) -> None:
        """Start the clean process, which may be needed."""
        with contextlib.suppress(OSError):
            clean_process.present()

    def leave_fork(self, words: str) -> bool:
        """Note that forked workers cannot live with what they inherited. Return whether there is
        another way."""
        if self._has_turned:  # for another loop, which has said so
            return True
        choice = self.choice.after_misfit(words)
        if choice is None:
            return False
        if _FOREVER in words or _SEEMS in words:  # so would those of its other loaders
            _stuck.append(words)
        elif _TOO_LONG not in words:  # it uses an accelerator, and another one of its class would
            _unfit[self._kind] = words
        wait = self._searched[0]
        # A semaphore gets its permit only because a worker has waited for it.
        helps = wait is None or not wait.for_semaphore
        logger.log(
            WARNING if self._is_news() else INFO,
            "antifreeze: %s. All workers are started again from a clean process, with the dataset"
            " as it is now; what they held is loaded again.%s",
            words,
            ADVICE if helps else "",
        )
        self.choice = choice
        return True

    def _is_news(self) -> bool:
        """Whether no other loop over the same dataset has told that its workers were made anew."""
        dataset = None if self._dataset is None else self._dataset()
        if dataset is None:
            return True
        if id(dataset) in _turned:
            return False
        _turned.add(id(dataset))
        weakref.finalize(dataset, _turned.discard, id(dataset)).atexit = False
        return True

    def _take_back(self) -> None:
        """Forget, for the program's other loaders, why this one has turned."""
        semaphores.forget_freeze()
        if self.choice.why in _stuck:
            _stuck.remove(self.choice.why)

    def refuse(self, why: Any) -> bool:
        """Note that the dataset cannot be sent to the clean process. Return whether there is
        another way."""
        words = str(why).splitlines()[0]
        choice = self.choice.after_refusal(words)
        if choice is None:
            return False
        if self.choice.is_last:
            logger.warning(
                "antifreeze: workers stay forks of this process although %s: %s.",
                self.choice.why,
                words,
            )
        elif self.choice.is_hazard:
            logger.warning(
                "antifreeze: workers are forked from this process although %s: %s. A lock that"
                " another thread holds at that moment is never released in a worker.",
                choice.why,
                words,
            )
        self.choice = choice
        if self._dataset is not None and (dataset := self._dataset()) is not None:
            _refused[id(dataset)] = words
            weakref.finalize(dataset, _refused.pop, id(dataset), None).atexit = False
        return True

    def turn(self) -> bool:
        """Take note that no worker got going. Say whether to try the other way."""
        choice = self.choice.after_silence()
        if choice is None:
            return False
        logger.warning(
            "antifreeze: no worker got going; all are made anew, in %s.",
            "a clean process"
            if choice.descent is WorkerOrigin.CLEAN_PROCESS
            else "a fork of this process",
        )
        self.choice = choice
        return True

    def sent(self, size: int, packed_s: float, opened_s: float) -> None:
        """Log, once a program, where workers come from and what that costs."""
        told = (
            "antifreeze: workers start from a clean process, because %s. The dataset was sent to"
            " it: %s, packed in %.0f ms and opened in %.0f ms of CPU time."
        )
        _log_once("clean", told, self.choice.why, in_words(size), 1000 * packed_s, 1000 * opened_s)

    def forked(self) -> None:
        """Log, once a program for each such reason, that workers are forked from this process."""
        choice = self.choice
        kind = f"forked {choice.asked_for} {bool(choice.why)} {bool(choice.beside)}"
        if kind not in _logged:  # called for every worker
            _log_once(kind, "antifreeze: workers are %s.", start_method_messages.in_words(choice))

    @property
    def source(self) -> str:
        """Where workers come from, in words; empty in a process that has not chosen."""
        if self._process != os.getpid():
            return ""
        return start_method_messages.in_words(self.choice, self._process)

    def __repr__(self) -> str:
        return f"<StartMethod {self.choice!r}>"


_logged: set[str] = set()  # what the log has said of where workers come from


def _log_once(what: str, told: str, *words: Any) -> None:
    """Log at INFO, once a program: a healthy run is silent, and every loader would say the same."""
    if what not in _logged:
        _logged.add(what)
        logger.info(told, *words)


def _end_all(kept: list[Kept]) -> None:
    while kept:
        kept.pop().end()


_FOREVER, _SEEMS, _TOO_LONG = "waits forever", "seems to wait forever", "has waited too long"
_stuck: list[str] = []  # what forked workers of this program have waited for
os.register_at_fork(after_in_child=_stuck.clear)

_turned: set[int] = set()  # datasets, by their addresses, whose forked workers were made anew
_refused: dict[int, str] = {}  # why a dataset, by its address, cannot be sent
# Why datasets of a class cannot be loaded by a fork of this process.
_unfit: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()


def _reference(dataset: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(dataset)
    except TypeError:  # a list, say
        return None


def is_ours(context: Any) -> bool:
    """Say whether its processes may come from a zygote. Others may start them anywhere."""
    return context is None or type(context) in (ForkContext, SpawnContext, ForkServerContext)


def torch_context(context: Any) -> Any:
    """Return the context that torch starts its workers with, if it is given this one."""
    if context is not None:
        return context
    # (Asked plainly, multiprocessing would fix its start method.)
    chosen = multiprocessing.get_start_method(allow_none=True)
    return multiprocessing.get_context(chosen or multiprocessing.get_all_start_methods()[0])


def foresee(context: Any, *, as_torch: bool = False) -> None:
    """Start the clean process if a loader is likely to need it: it has until the first loop."""
    wish = wish_of(context, as_torch=as_torch)
    clean = wish is Wish.CLEAN or (wish is Wish.NONE and fork_hazards.has_hazards())
    if clean and is_ours(context) and not as_torch:
        with contextlib.suppress(OSError):  # who needs it will say so
            clean_process.present()


def source_of(context: Any, lineage: StartMethod, *, as_torch: bool) -> str:
    """Return where the workers of a loader come from that is given this context, in words."""
    if not is_ours(context):
        return start_method_messages.of_context(context)
    if as_torch and torch_context(context).get_start_method() != "fork":
        return start_method_messages.of_context(torch_context(context))
    return lineage.source


def at_end_of(context: Any) -> AtEnd:
    """Return what torch's workers finalize before they leave, where they do not fork."""
    if releases_dataset():
        return AtEnd.DATASET
    # From a fork server they leave as forked processes do, without a word to Python's own objects.
    spawned = torch_context(context).get_start_method() == "spawn"
    return AtEnd.WHAT_IT_MADE if spawned else AtEnd.NOTHING


def wish_of(context: Any, *, as_torch: bool = False) -> Wish:
    """Return how the user wants processes to start. `as_torch`: as torch would start them."""
    # (From Python 3.14 on the default is not "fork". Nobody has asked for it.)
    says_nothing = not explicit_start_method.is_chosen()
    if context is None and says_nothing and not as_torch:
        return Wish.NONE
    if torch_context(context).get_start_method() != "fork":
        return Wish.CLEAN
    return Wish.AS_TORCH if context is None and says_nothing else Wish.FORK
