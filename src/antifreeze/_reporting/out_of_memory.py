"""Explain a worker that was killed by signal 9: out of memory, or somebody sent it."""

from __future__ import annotations

import signal
from dataclasses import replace

from .._core.faults import Ending
from .._linux.available_memory import available, in_words
from .._linux.oom_kills import OomKills


def explain_kill(oom_kills: OomKills, ending: Ending, peak_bytes: int) -> Ending:
    """Return an ending with what is known of its cause, if it was SIGKILL.

    `peak_bytes`: the most memory that the process has held; 0: unknown.
    """
    if ending.signal != signal.SIGKILL:
        return ending
    was_oom = oom_kills.claim()
    if was_oom is None:
        return ending
    held = f"; it had held up to {in_words(peak_bytes)}" if peak_bytes else ""
    if was_oom:
        left = available()
        free = f"{in_words(left.bytes)} are {left.source} now"
        words = f"out of memory: the kernel ended it{held}; {free}"
        return replace(ending, words=words, out_of_memory=True)
    words = "someone sent SIGKILL; not the kernel, which has ended nobody for want of memory"
    return replace(ending, words=words + held)
