"""Threads of one process have to take turns, since only one may run Python at a time."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Confidence, Finding
from ..analyse.lock_waits import is_service, wants_interpreter
from ..analyse.threads_and_processes import IDLE_SHARE, Actor, Scene, Strand
from ..analyse.waits import at_line
from .base import LIKELY, POSSIBLE, Cause

NAME = "gil-bound"
_TURNS_PER_S = 40  # who waits for the GIL wakes every 5 ms; fewer than a fifth of that is chance


def find(scene: Scene) -> Iterator[Finding]:
    for actor in (scene.main, *scene.living):
        holder = next((each for each in actor.strands if each.thread.holds_gil), None)
        wants = [each for each in actor.strands if wants_interpreter(each) and each is not holder]
        if holder is None or not wants or actor.stopped:
            continue
        main = actor.main
        if main in wants and holder is not main:
            yield from _held(actor, holder, _enough(scene))
        elif main is not holder and len(wants) > 1:
            yield from _in_turns(actor, holder, wants, _enough(scene))


def _enough(scene: Scene) -> float:
    """Give how many turns a second show that somebody wants the GIL: on a crowded machine those who
    want it wake up less often, too."""
    machine = scene.machine
    return _TURNS_PER_S * min(1.0, machine.cores / machine.load if machine.load else 1.0)


def _held(actor: Actor, holder: Strand, enough: float) -> Iterator[Finding]:
    """The main thread cannot go on, since another thread has the interpreter."""
    both = holder.before is not None and holder.before.holds_gil
    main = actor.main
    assert main is not None
    one_call = both and _at(holder) and _at(main)
    if not one_call and (_turns(main) < enough or is_service(holder)):
        return
    asleep = one_call and holder.share < IDLE_SHARE and holder.thread.state != "R"
    how = (
        "one call of it does not let go of the interpreter" + (", and sleeps" if asleep else "")
        if one_call
        else "it computes in Python all the time, so that the main thread gets few turns"
    )
    yield Finding(
        NAME,
        LIKELY if both else POSSIBLE,
        f"{actor.label} is held up by its own thread {holder.thread.name!r}, {at_line(holder)}:"
        f" {how}",
        evidence=(
            f"thread {holder.thread.name!r} has the interpreter (the GIL)"
            + (" in both looks" if both else "")
            + f", and used {holder.share:.0%} of a core",
            f"the main thread waits for the interpreter, {at_line(main)}, and used"
            f" {main.share:.0%} of a core; it woke up {_turns(main):.0f} times a second for it",
        ),
        get_out=(
            "nothing is stuck for ever, as long as that thread goes on: nothing needs to be killed"
            if not asleep
            else f"kill -9 {actor.pid}    (if the call never returns: what is not saved is lost)",
        ),
        prevent=(
            "do that work in a process (multiprocessing, a worker of the loader), or with code that"
            " lets go of the GIL (numpy, torch, a library in C)",
        ),
        pids=(actor.pid,),
    )


def _in_turns(
    actor: Actor, holder: Strand, wants: list[Strand], enough: float
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
        f"{actor.label} computes in {len(wants) + 1} threads, {at_line(eager[0])}, but only one"
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
        pids=(actor.pid,),
    )


def _at(strand: Strand) -> bool:
    """Say that it is at the same lines as before, whether it computes or not."""
    then = strand.before.frames if strand.before is not None else ()
    return tuple(each for each in then if not each.native) == strand.frames


def _turns(strand: Strand) -> float:
    """Say how often in a second it went to sleep."""
    if strand.before is None or strand.seconds <= 0:
        return 0.0
    return (strand.thread.gave_way - strand.before.gave_way) / strand.seconds


CAUSE = Cause(NAME, find)
