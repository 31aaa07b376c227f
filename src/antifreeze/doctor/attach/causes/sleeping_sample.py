"""A sample sleeps: for long, or again and again, since what it waits for does not come."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.progress import watched_s
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from ..analyse.torch_loader import feeders
from ..analyse.waits import (
    at_line,
    got_nothing,
    in_sample,
    loads_itself,
    loop_waits,
    same_function,
    sleeps,
)
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import LIKELY, POSSIBLE, Cause, interrupt_at_line, kill_worker, names_of, plural

NAME = "sleeping-sample"
_LATE_S = 2.0  # without a batch: what is slow by nature has sent one by then, most often
_LONG_S = 60.0  # left to sleep: who paces its requests sleeps for seconds
_MOST_SHARE = 0.1  # of a core: who uses more does something between


def find(program: Program) -> Iterator[Finding]:
    if loads_itself(program):
        asked = (
            [program.main]
            if program.main.main is not None and program.main.main.wakeups == 0
            else []
        )
    elif loop_waits(program):
        asked = [each for each in program.living if in_sample(program, each)]
    else:
        return
    asleep = [
        (process, thread)
        for process in asked
        if (thread := process.main) is not None
        and _sleeps_on(thread)
        and _has_sent_nothing(process)
    ]
    long = [each for each in asleep if each[1].stuck and each[1].now.sleeps_s >= _LONG_S]
    if long:
        yield _finding(program, long, f"have {_duration(long[0][1].now.sleeps_s)} to go")
    others = [each for each in asleep if each not in long]
    if others and watched_s(program) >= _LATE_S and (loads_itself(program) or got_nothing(program)):
        yield _finding(program, others)


def _finding(
    program: Program, found: list[tuple[WatchedProcess, WatchedThread]], left: str = ""
) -> Finding:
    processes = [process for process, _ in found]
    _, first = found[0]
    main = processes[0] is program.main
    again = any(thread.wakeups for _, thread in found)
    return Finding(
        NAME,
        POSSIBLE if again else LIKELY,
        f"{names_of(processes)} {_how(processes, again, left)}, {at_line(first)}"
        + ("" if main else and_the_loop_waits(program, processes, plural(processes, "it", "them"))),
        evidence=(
            *(
                f"{process.label}: asleep at the same place in both looks, {program.seconds:.1f} s"
                f" apart; it woke up {thread.wakeups} times and used {thread.share:.0%} of a core"
                for process, thread in found[:4]
            ),
            *([] if main or left else ["no batch has come to the loop between the looks"]),
        ),
        get_out=(
            "bring what it waits for (the file, the server, the lock that this line asks for): it"
            " then goes on by itself, and nothing is lost",
            interrupt_at_line(program.main) if main else kill_worker(processes),
        ),
        prevent=(
            "let no sample try for ever: a limit of tries and of time (a pause that doubles grows"
            " to hours), then an error that says what was missing; print each try",
            "antifreeze's loader names the sample that does not come, and goes on without it"
            " (sample_timeout, on_error)",
        ),
        pids=tuple(each.pid for each in processes),
        general=not left,
    )


def _how(processes: list[WatchedProcess], again: bool, left: str) -> str:
    one = len(processes) == 1
    if left:
        how = f"sleep on purpose, and {left}"
        return how.replace("sleep", "sleeps").replace("have", "has") if one else how
    if again and one:
        return (
            "sleeps, looks, and sleeps again: it waits for something, or tries something again that"
            " fails each time"
        )
    if again:
        return (
            "sleep, look, and sleep again: they wait for something, or try something again that"
            " fails each time"
        )
    return f"{'sleeps' if one else 'sleep'} on purpose: perhaps to try something again later"


def _duration(seconds: float) -> str:
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"


def _sleeps_on(thread: WatchedThread) -> bool:
    return sleeps(thread) and thread.share < _MOST_SHARE and same_function(thread)


def _has_sent_nothing(process: WatchedProcess) -> bool:
    """Whether its thread that sends batches was not woken up."""
    return all(each.before is not None and each.wakeups == 0 for each in feeders(process))


CAUSE = Cause(NAME, find, may_be_slow=True)
