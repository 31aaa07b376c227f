"""One loader of a program as plain data: what the report of a run says about it."""

from __future__ import annotations

import itertools
import re

from .._core.faults import FaultKind
from .._core.frozen_values import frozen
from .._core.health.stall_detection import StackLine
from .._transport.own_frames import HERE
from ..policies import Fault
from ..stats import Entry
from .formatting import shown
from .redaction import shareable_line
from .stall_messages import where

FAULTS = 5  # of a loader, the last ones; its fault_log has all
# Told at length when they happen: at the end a word is enough.
_TOLD_BEFORE = (FaultKind.CRASH.value, FaultKind.HANG.value, "growth")
_FRAME = re.compile(r'^ *File "(.*)", line (\d+), in (.*)$', re.MULTILINE)


@frozen
class LoaderSummary:
    """What is said about one loader."""

    name: str
    seconds: float  # of looping
    sentence: str
    evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    faults_seen: int = 0
    faults: tuple[str, ...] = ()  # the last ones, in words


def summarize(entry: Entry) -> LoaderSummary:
    """Summarize what was counted so far."""
    explanation = entry.explain()
    latest = list(entry.faults.latest)[-FAULTS:]
    return LoaderSummary(
        name=shareable_line(entry.profile.name),
        seconds=entry.accounts.seconds,
        sentence=explanation.sentence,
        evidence=explanation.evidence,
        advice=explanation.advice,
        faults_seen=entry.faults.seen,
        faults=tuple(shareable_line(_in_words(each)) for each in latest),
    )


def _in_words(fault: Fault) -> str:
    index = fault.index
    which = "" if index is None else f" of sample{'s' * isinstance(index, list)} {shown(index)}"
    if fault.kind in _TOLD_BEFORE and fault.worker is not None:
        return f"{fault.kind}{which}, {fault.verdict}: worker {fault.worker}"
    said = fault.exception.splitlines()[0] if fault.exception else ""
    place = where(_stack(fault.traceback))
    return f"{fault.kind}{which}, {fault.verdict}{': ' if said else ''}{said}{place}"


def _stack(traceback: str) -> tuple[StackLine, ...]:
    """Return what we had called when it was raised, innermost first."""
    frames = [StackLine(file, int(line), name) for file, line, name in _FRAME.findall(traceback)]
    within = itertools.takewhile(lambda frame: not frame.file.startswith(HERE), frames[::-1])
    return tuple(within)
