"""Nothing is stuck: samples take so long that the loop waits for them."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.progress import gets_on, in_native_code, watched_s
from ..analyse.threads_and_processes import Actor, Scene
from ..analyse.waits import at_line, in_sample, loads_itself, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import POSSIBLE, Cause, are, people
from .lock_in_turns import taken

NAME = "slow-samples"
_COMPUTES = 0.1  # of a core: on a crowded machine one that computes gets no more
_LATE_S = 3.0  # watched without a sign of progress: worth saying


def find(scene: Scene) -> Iterator[Finding]:
    if taken(scene):
        return  # a lock is why they are slow, and more workers would not help
    if loads_itself(scene):
        at_work = [scene.main]
        before = scene.main.main.before if scene.main.main is not None else None
        if before is None or not any(each.name.endswith("fetch") for each in before.frames):
            return  # it does other things as well
    elif loop_waits(scene):
        at_work = [each for each in scene.living if in_sample(scene, each)]
    else:
        return
    strands = [each.main for each in at_work if each.main is not None]
    if not strands or len(strands) < len(at_work) or len(at_work) < len(scene.living):
        return
    computes = [each for each in at_work if each.main and each.main.share > _COMPUTES]
    slow = [each for each in at_work if each not in computes and not _gets_on(scene, each)]
    if slow:
        return  # they sleep, or wake up for nothing: that is not to be slow
    unseen = [each for each in computes if not gets_on(scene, each)]
    if unseen and watched_s(scene) >= _LATE_S:
        yield _no_progress(scene, unseen)
    else:
        yield _slow(scene, at_work, computes=len(computes) == len(at_work))


def _no_progress(scene: Scene, actors: list[Actor]) -> Finding:
    """Say what is seen of those who compute, where nothing came of it while they were watched."""
    first = actors[0].main
    assert first is not None
    again = f"antifreeze attach {scene.main.pid}"
    return Finding(
        NAME,
        POSSIBLE,
        f"{people(actors)} {are(actors, 'runs', 'run')} on the CPU, {at_line(first)}, and"
        f" {are(actors, 'has', 'have')} read and written nothing in the {watched_s(scene):.0f} s of"
        " watching: a long computation or a loop without an end, which look the same from outside"
        + ("" if actors[0] is scene.main else and_the_loop_waits(scene, actors, _them(actors))),
        evidence=(
            *(_seen(actor) for actor in actors[:4]),
            *(
                f"{actor.label} is in native code: {native}"
                for actor in actors[:2]
                if actor.main and (native := in_native_code(actor.main))
            ),
        ),
        get_out=(
            f"look again, in some minutes: {again}    (if the same line is named, and no batch has"
            " come, it is one sample that does not end)",
        ),
        prevent=(
            "make this line faster, or bound its loop; antifreeze's loader names the sample that"
            " does not return, and goes on without it (sample_timeout)",
        ),
        pids=tuple(each.pid for each in actors),
        harmless=True,
    )


def _them(actors: list[Actor]) -> str:
    return are(actors, "it", "them")


def _slow(scene: Scene, at_work: list[Actor], *, computes: bool) -> Finding:
    first = at_work[0].main
    assert first is not None
    main = at_work[0] is scene.main
    what = "computes" if computes else "reads or waits, and moves"
    if len(at_work) > 1:
        what = "compute" if computes else "read or wait, and move"
    return Finding(
        NAME,
        POSSIBLE,
        f"nothing is stuck, but samples are slow: {people(at_work)} {what}, {at_line(first)}"
        + (
            "; without workers the loop does this itself"
            if main
            else f", and the loop waits for {_them(at_work)}"
        ),
        evidence=tuple(_seen(actor) for actor in at_work[:4]),
        get_out=(
            "nothing is to be done now. If the same line is named in some minutes, and no batch"
            " has come, it is one sample that does not end",
        ),
        prevent=(
            "make this line faster: arrays instead of loops in Python, smaller files, results kept"
            " on disk"
            if computes
            else "read ahead and from nearer: more workers, larger files, a local copy",
            _workers(scene, computes=computes),
        ),
        pids=tuple(each.pid for each in at_work),
        harmless=True,
    )


def _workers(scene: Scene, *, computes: bool) -> str:
    cores = scene.main.process.cores or scene.machine.cores or 1
    if not scene.living:
        return f"num_workers=1 or more: the loop then computes meanwhile; there are {cores} cores"
    if computes and len(scene.living) >= cores:
        return f"more workers do not help: {len(scene.living)} compute, and there are {cores} cores"
    return f"more workers than {len(scene.living)}, while there are cores ({cores}) and memory"


def _gets_on(scene: Scene, actor: Actor) -> bool:
    """Whether one that hardly computes gets on. To wake up, look and sleep again at the same line
    is not enough: so does one that waits for what never comes."""
    strand = actor.main
    return strand is not None and strand.before is not None and gets_on(scene, actor)


def _seen(actor: Actor) -> str:
    strand = actor.main
    assert strand is not None
    return f"{actor.label}: {strand.share:.0%} of a core, {at_line(strand)}"


CAUSE = Cause(NAME, find)
