"""Nothing is stuck: samples take so long that the loop waits for them."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..locks import same_line
from ..scene import Actor, Scene
from ..waits import at_line, in_sample, loads_itself, loop_waits, sent_nothing, sleeps
from .base import POSSIBLE, Shape, are, people
from .lock_in_turns import taken

NAME = "slow-samples"
_COMPUTES = 0.1  # of a core: on a crowded machine one that computes gets no more


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
    strands = [each.main for each in at_work if each.main is not None and _goes_on(each)]
    if not strands or len(strands) < len(at_work) or len(at_work) < len(scene.living):
        return
    computes = all(each.share > _COMPUTES for each in strands)
    first = strands[0]
    main = at_work[0] is scene.main
    what = "computes" if computes else "reads or waits, and moves"
    if len(at_work) > 1:
        what = "compute" if computes else "read or wait, and move"
    yield Finding(
        NAME,
        POSSIBLE,
        f"nothing is stuck, but samples are slow: {people(at_work)} {what}, {at_line(first)}"
        + (
            "; without workers the loop does this itself"
            if main
            else f", and the loop waits for {are(at_work, 'it', 'them')}"
        ),
        evidence=tuple(_seen(actor) for actor in at_work[:4]),
        get_out=(
            "nothing is to be done: it goes on. If the same line is named in some minutes, and"
            " no batch has come, it is one sample that does not end",
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


def _goes_on(actor: Actor) -> bool:
    """Say that it gets on. To wake up, look and sleep again at the same line is not enough: so does
    one that waits for what never comes."""
    strand = actor.main
    if strand is None or strand.before is None:
        return False
    if strand.share > _COMPUTES:
        return True
    polls = sleeps(strand) and same_line(strand) and sent_nothing(actor)
    return strand.moved and not polls


def _seen(actor: Actor) -> str:
    strand = actor.main
    assert strand is not None
    return f"{actor.label}: {strand.share:.0%} of a core, {at_line(strand)}"


SHAPE = Shape(
    name=NAME,
    title="Samples are slow, and the loop waits for them",
    what=(
        "Every worker is at work in the dataset's code, and the loop waits since all of them"
        " together give fewer batches than it takes. Or there are no workers, and the loop loads"
        " its samples itself. Nothing is stuck: it crawls."
    ),
    tell=(
        "The loop waits for a batch (or loads one); every worker is in the dataset's code and"
        " computes, or has moved between the looks."
    ),
    get_out="Nothing is to be done. If no batch comes for minutes, it is one sample: look again.",
    prevent=(
        "Make the line that is named faster, keep results, or have more workers while there are"
        " cores. antifreeze's `explain()` says how much of the time goes where."
    ),
    find=find,
)
