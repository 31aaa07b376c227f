"""Threads of one process have to take turns, since only one may run Python at a time."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Confidence, Finding
from ..analyse.lock_waits import is_service, wants_interpreter
from ..analyse.threads_and_processes import IDLE_SHARE, Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line
from .base import LIKELY, POSSIBLE, Cause

NAME = "gil-bound"
_TURNS_PER_S = 40  # who waits for the GIL wakes every 5 ms; fewer than a fifth of that is chance


def find(program: Program) -> Iterator[Finding]:
    for process in (program.main, *program.living):
        holder = next((each for each in process.threads if each.now.holds_gil), None)
        wants = [each for each in process.threads if wants_interpreter(each) and each is not holder]
        if holder is None or not wants or process.stopped:
            continue
        main = process.main
        if main in wants and holder is not main:
            yield from _held(process, holder, _enough(program))
        elif main is not holder and len(wants) > 1:
            yield from _in_turns(process, holder, wants, _enough(program))


def _enough(program: Program) -> float:
    """Return how many turns a second show that somebody wants the GIL: on a crowded machine those
    who want it wake up less often, too."""
    machine = program.machine
    return _TURNS_PER_S * min(1.0, machine.cores / machine.load if machine.load else 1.0)


def _held(process: WatchedProcess, holder: WatchedThread, enough: float) -> Iterator[Finding]:
    """The main thread cannot go on, since another thread has the interpreter."""
    both = holder.before is not None and holder.before.holds_gil
    main = process.main
    assert main is not None
    one_call = both and holder.at_same_lines and main.at_same_lines
    if not one_call and (_turns(main) < enough or is_service(holder)):
        return
    asleep = one_call and holder.share < IDLE_SHARE and holder.now.state != "R"
    how = (
        "one call of it does not let go of the interpreter" + (", and sleeps" if asleep else "")
        if one_call
        else "it computes in Python all the time, so that the main thread gets few turns"
    )
    yield Finding(
        NAME,
        LIKELY if both else POSSIBLE,
        f"{process.label} is held up by its own thread {holder.now.name!r}, {at_line(holder)}:"
        f" {how}",
        evidence=(
            f"thread {holder.now.name!r} has the interpreter (the GIL)"
            + (" in both looks" if both else "")
            + f", and used {holder.share:.0%} of a core",
            f"the main thread waits for the interpreter, {at_line(main)}, and used"
            f" {main.share:.0%} of a core; it woke up {_turns(main):.0f} times a second for it",
        ),
        get_out=(
            "nothing is stuck for ever, as long as that thread goes on: nothing needs to be killed"
            if not asleep
            else f"kill -9 {process.pid}    (if the call never returns: what is not saved is lost)",
        ),
        prevent=(
            "do that work in a process (multiprocessing, a worker of the loader), or with code that"
            " lets go of the GIL (numpy, torch, a library in C)",
        ),
        pids=(process.pid,),
    )


def _in_turns(
    process: WatchedProcess, holder: WatchedThread, wants: list[WatchedThread], enough: float
) -> Iterator[Finding]:
    """Several threads compute in Python: they are no faster than one."""
    eager = [each for each in wants if _turns(each) >= enough and each.frames]
    if len(eager) < 2:
        return
    used = sum(each.share for each in (holder, *wants))
    confidence: Confidence = LIKELY if len(eager) > 2 else POSSIBLE
    yield Finding(
        NAME,
        confidence,
        f"{process.label} computes in {len(wants) + 1} threads, {at_line(eager[0])}, but only one"
        " of them may run Python at a time: it is no faster than one thread",
        evidence=(
            f"{len(wants)} threads wait for the interpreter (the GIL), one has it",
            f"together they used {used:.2f} cores between the looks",
            f"each woke up {min(map(_turns, eager)):.0f} times a second or more to ask for it",
        ),
        get_out=("nothing is stuck: it goes on, slowly; nothing needs to be killed",),
        prevent=(
            "more workers (num_workers) instead of threads in a worker; threads only for reading,"
            " and for libraries that let go of the GIL",
        ),
        pids=(process.pid,),
    )


def _turns(thread: WatchedThread) -> float:
    """Return how often in a second it went to sleep."""
    if thread.before is None or thread.seconds <= 0:
        return 0.0
    return (thread.now.gave_way - thread.before.gave_way) / thread.seconds


CAUSE = Cause(NAME, find)
