"""Where the workers of a loader come from: chosen at its first loop, kept for all that follow."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import weakref
from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext
from typing import Any

from .._core.descent import Choice, Descent, Wish, choose
from .._reporting.log import logger
from .._transport.available import in_words
from . import hazards, nursery, nursery_process, pools

# Of processor time, to send a dataset: from here on it is worth a warning. (On a busy machine
# anything takes long.)
DEAR_S = 1.0


class Lineage:
    """The choice of one loader, and what became of it."""

    def __init__(self, wish: Wish, dataset: Any = None) -> None:
        """Look at this process and choose."""
        if nursery_process.is_opening:
            raise RuntimeError(
                "a module that the dataset needs begins a loop over a DataLoader when it is"
                ' imported; put that under `if __name__ == "__main__":`'
            )
        self._wish, self._process = wish, os.getpid()
        self._told_cost = False
        pools.lay_down()
        self.choice: Choice = choose(hazards.program(), wish)
        self._dataset = _reference(dataset)
        if (words := _refused.get(id(dataset))) is not None:  # to another loader
            self.choice = self.choice.after_refusal(words) or self.choice

    @property
    def is_clean_wish(self) -> bool:
        """Whether the user wants processes that inherit nothing: spawn, or forkserver."""
        return self._wish is Wish.CLEAN

    def holds(self, wish: Wish) -> bool:
        """Say whether the choice still holds: for as long as it is asked of the same process, in
        the same way, and nothing has come up that speaks against a plain fork."""
        if wish is not self._wish or self._process != os.getpid():
            return False
        return not (self.choice.is_plain and hazards.has_hazards())

    def refuse(self, why: Any) -> bool:
        """Take note that the dataset cannot be sent to the nursery. Say whether there is another
        way."""
        words = str(why).splitlines()[0]
        choice = self.choice.after_refusal(words)
        if choice is None:
            return False
        if self.choice.is_hazard:
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
            "a clean process" if choice.descent is Descent.NURSERY else "a fork of this process",
        )
        self.choice = choice
        return True

    def sent(self, size: int, packed_s: float, opened_s: float) -> None:
        """Say, the first time, what it costs to come from a clean process."""
        if self._told_cost:
            return
        self._told_cost = True
        told = (
            "antifreeze: workers come from a clean process, since %s. The dataset is sent to it:"
            " %s, packed in %.0f ms and opened in %.0f ms of processor time"
        )
        level = logging.INFO
        if packed_s + opened_s >= DEAR_S:
            told += "; persistent_workers=True would do that once, not for each epoch"
            level = logging.WARNING
        packed_ms, opened_ms = 1000 * packed_s, 1000 * opened_s
        logger.log(level, told, self.choice.why, in_words(size), packed_ms, opened_ms)

    def __repr__(self) -> str:
        return f"<Lineage {self.choice!r}>"


_refused: dict[int, str] = {}  # why a dataset, by its address, cannot be sent


def _reference(dataset: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(dataset)
    except TypeError:  # a list, say
        return None


def is_ours(context: Any) -> bool:
    """Say whether its processes may come from a template. Others may start them anywhere."""
    return context is None or type(context) in (ForkContext, SpawnContext, ForkServerContext)


def torch_context(context: Any) -> Any:
    """Return the context that torch starts its workers with, if it is given this one."""
    if context is not None:
        return context
    # (Asked plainly, multiprocessing would fix its start method.)
    chosen = multiprocessing.get_start_method(allow_none=True)
    return multiprocessing.get_context(chosen or multiprocessing.get_all_start_methods()[0])


def foresee(context: Any, *, as_torch: bool = False) -> None:
    """Start the nursery if a loader is likely to need it: it has until the first loop."""
    wish = wish_of(context, as_torch=as_torch)
    clean = wish is Wish.CLEAN or (wish is Wish.NONE and hazards.has_hazards())
    if clean and is_ours(context) and not as_torch:
        with contextlib.suppress(OSError):  # who needs it will say so
            nursery.present()


def wish_of(context: Any, *, as_torch: bool = False) -> Wish:
    """Return how the user wants processes to start. `as_torch`: as torch would start them."""
    # From Python 3.14 on the first one, the default, is not "fork": nobody has asked for it.
    default = multiprocessing.get_all_start_methods()[0]
    says_nothing = multiprocessing.get_start_method(allow_none=True) in (None, default)
    if context is None and says_nothing and not as_torch:
        return Wish.NONE
    if torch_context(context).get_start_method() != "fork":
        return Wish.CLEAN
    return Wish.AS_TORCH if context is None and says_nothing else Wish.FORK
