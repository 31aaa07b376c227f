"""A sample sleeps: for long, or again and again, since what it waits for does not come."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.progress import watched_s
from ..analyse.threads_and_processes import Actor, Scene, Strand
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
from .base import LIKELY, POSSIBLE, Cause, are, kill_worker, people

NAME = "sleeping-sample"
_LATE_S = 2.0  # without a batch: what is slow by nature has sent one by then, most often
_LONG_S = 60.0  # left to sleep: who paces its requests sleeps for seconds
_MOST_SHARE = 0.1  # of a core: who uses more does something between


def find(scene: Scene) -> Iterator[Finding]:
    if loads_itself(scene):
        asked = [scene.main] if scene.main.main is not None and _woken(scene.main.main) == 0 else []
    elif loop_waits(scene):
        asked = [each for each in scene.living if in_sample(scene, each)]
    else:
        return
    asleep = [
        (actor, strand)
        for actor in asked
        if (strand := actor.main) is not None and _sleeps_on(strand) and _has_sent_nothing(actor)
    ]
    long = [each for each in asleep if each[1].stuck and each[1].thread.sleeps_s >= _LONG_S]
    if long:
        yield _finding(scene, long, f"have {_duration(long[0][1].thread.sleeps_s)} to go")
    others = [each for each in asleep if each not in long]
    if others and watched_s(scene) >= _LATE_S and (loads_itself(scene) or got_nothing(scene)):
        yield _finding(scene, others)


def _finding(scene: Scene, found: list[tuple[Actor, Strand]], left: str = "") -> Finding:
    actors = [actor for actor, _ in found]
    _, first = found[0]
    main = actors[0] is scene.main
    again = any(_woken(strand) for _, strand in found)
    return Finding(
        NAME,
        POSSIBLE if again else LIKELY,
        f"{people(actors)} {_how(actors, again, left)}, {at_line(first)}"
        + ("" if main else and_the_loop_waits(scene, actors, are(actors, "it", "them"))),
        evidence=(
            *(
                f"{actor.label}: asleep at the same place in both looks, {scene.seconds:.1f} s"
                f" apart; it woke up {_woken(strand)} times and used {strand.share:.0%} of a core"
                for actor, strand in found[:4]
            ),
            *([] if main or left else ["no batch has come to the loop between the looks"]),
        ),
        get_out=(
            "bring what it waits for (the file, the server, the lock that this line asks for): it"
            " then goes on by itself, and nothing is lost",
            f"kill -INT {scene.main.pid}    (a KeyboardInterrupt at this line: what the script does"
            " not save then is lost)"
            if main
            else kill_worker(actors),
        ),
        prevent=(
            "let no sample try for ever: a limit of tries and of time (a pause that doubles grows"
            " to hours), then an error that says what was missing; print each try",
            "antifreeze's loader names the sample that does not come, and goes on without it"
            " (sample_timeout, on_error)",
        ),
        pids=tuple(each.pid for each in actors),
        general=not left,
    )


def _how(actors: list[Actor], again: bool, left: str) -> str:
    one = len(actors) == 1
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


def _sleeps_on(strand: Strand) -> bool:
    return sleeps(strand) and strand.share < _MOST_SHARE and same_function(strand)


def _woken(strand: Strand) -> int:
    return strand.thread.gave_way - strand.before.gave_way if strand.before is not None else 0


def _has_sent_nothing(actor: Actor) -> bool:
    """Say that its thread that sends batches was not woken up."""
    return all(each.before is not None and _woken(each) == 0 for each in feeders(actor))


CAUSE = Cause(NAME, find, may_be_slow=True)
