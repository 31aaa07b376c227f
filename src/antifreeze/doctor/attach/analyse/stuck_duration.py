"""What it means for a cause that somebody has not run for long, or has just run. Pure."""

from __future__ import annotations

from dataclasses import replace

from ...findings import Confidence, Finding
from .threads_and_processes import Program, WatchedProcess

SLOW_S = 30.0  # clients give up by then, most of them: what is slower than this is stuck, as a rule
LONG_S = 60.0  # without running: worth saying
STUCK_S = 600.0  # nothing that is only slow takes as long as this without a sign of life


def judged_by_time(
    program: Program, found: Finding, *, may_be_slow: bool = False, proven_by_time: bool = False
) -> Finding:
    """Return a finding with what is known of how long it lasts. `may_be_slow`: it is no more than
    possible while those who wait may only wait for somebody slow. `proven_by_time`: what is
    possible is likely if all of them have waited for very long."""
    if found.harmless:
        return found
    slept = [
        (each, s) for each in program.all if each.pid in found.pids if (s := asleep_s(each)) > 0
    ]
    if not slept:
        return found  # not known, or it wakes up now and then
    process, longest = max(slept, key=lambda each: each[1])
    known = [each for each in found.evidence if "look again" not in each]
    if longest >= LONG_S:
        said = f"{process.label} has not run for {duration(longest)}"
        sure = found.confidence
        if longest >= STUCK_S:
            said += ": it is not slow, it is stuck"
            everybody = {each.pid for each, seconds in slept if seconds >= STUCK_S} >= {*found.pids}
            if proven_by_time and sure is Confidence.POSSIBLE and everybody:
                sure = Confidence.LIKELY
        return replace(found, confidence=sure, evidence=(*known, said))
    if longest >= SLOW_S:
        said = f"{process.label} has not run for {duration(longest)}"
        return replace(found, evidence=(*found.evidence, said))
    if not may_be_slow:
        return found
    sure = Confidence.POSSIBLE if found.confidence is Confidence.LIKELY else found.confidence
    said = f"{process.label} ran {longest:.0f} s ago: it may only be slow; look again in a minute"
    return replace(found, confidence=sure, evidence=(*known, said))


def asleep_s(process: WatchedProcess) -> float:
    """Return for how long the main thread of a process has not run; 0 if it has, or is not
    known."""
    thread = process.main
    return thread.asleep_s if thread is not None and not process.dead else 0.0


def long_time_not_run(process: WatchedProcess) -> str:
    """Return for how long a process has not run, where it is long; else nothing."""
    slept = asleep_s(process)
    return duration(slept) if slept >= LONG_S else ""


def duration(seconds: float) -> str:
    for size, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"
