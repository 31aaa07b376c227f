"""Where the workers of a loader come from: chosen at its first loop, kept for all that follow."""

from __future__ import annotations

import logging
import multiprocessing
import os
from typing import Any

from .._core.descent import Choice, Descent, choose
from .._transport.available import in_words
from . import hazards, pools

logger = logging.getLogger("antifreeze")

DEAR_S = 1.0  # to send a dataset: from here on it is worth a warning


class Lineage:
    """The choice of one loader, and what became of it."""

    def __init__(self, *, clean: bool) -> None:
        """Look at this process and choose. `clean`: the user wants processes to start clean."""
        self._clean, self._process = clean, os.getpid()
        self._told_cost = False
        pools.lay_down()
        self.choice: Choice = choose(hazards.program(), clean=clean)

    def holds(self, *, clean: bool) -> bool:
        """Say whether the choice still holds: for as long as it is asked of the same process, in
        the same way, and nothing has come up that speaks against a plain fork."""
        if clean != self._clean or self._process != os.getpid():
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
        return True

    def turn(self) -> bool:
        """Take note that no worker got going. Say whether to try the other way."""
        choice = self.choice.after_silence()
        if choice is None:
            return False
        logger.warning(
            "antifreeze: no worker got going; trying with %s.",
            "a clean process" if choice.descent is Descent.NURSERY else "a fork of this process",
        )
        self.choice = choice
        return True

    def sent(self, size: int, seconds: float) -> None:
        """Say, the first time, what it costs to come from a clean process."""
        if not self._told_cost:
            self._told_cost = True
            told = (
                "antifreeze: workers come from a clean process, since %s; the dataset is sent to"
                " it: %s, %.0f ms. (persistent_workers=True sends it once, not for each epoch.)"
            )
            level = logging.WARNING if seconds >= DEAR_S else logging.INFO
            logger.log(level, told, self.choice.why, in_words(size), 1000 * seconds)

    def __repr__(self) -> str:
        return f"<Lineage {self.choice!r}>"


def start_method(context: Any) -> str:
    """Say how the user wants processes to start. (Asked plainly, multiprocessing fixes it.)"""
    if context is None:
        return multiprocessing.get_start_method(allow_none=True) or "fork"
    method: str = context.get_start_method()
    return method
