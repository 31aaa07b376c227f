"""One rank waits for another in a collective operation, and that one does something else."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.process_roles import is_rank
from ..analyse.threads_and_processes import (
    BUSY_SHARE,
    GROUP_THREADS,
    IDLE_SHARE,
    Actor,
    Role,
    Scene,
    Strand,
)
from .base import LIKELY, POSSIBLE, Cause, where

NAME = "rank-waits-for-rank"
COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "send",
)
_HOME = "torch/distributed/distributed_c10d.py"
_MEETING = ("init_process_group", "_store_based_barrier", "rendezvous")


def find(scene: Scene) -> Iterator[Finding]:
    here, strand = collective(scene.main), scene.main.main
    if not here or strand is None or (strand.share > BUSY_SHARE and strand.moved):
        return
    world = int(scene.main.process.settings.get("WORLD_SIZE", "0") or 0)
    rank = scene.main.number
    others = [
        each
        for each in scene.ranks
        if each.pid != scene.main.pid and each.number != rank and is_rank(each.process)
    ]
    elsewhere = [each for each in others if collective(each) != here]
    unseen = max(0, world - len(others) - 1)
    if elsewhere:
        first = elsewhere[0]
        confidence = LIKELY
        sentence = (
            f"rank {rank} waits in {here} for rank {first.number} (pid {first.pid}), which"
            f" {_does(first)}"
        )
        get_out = f"antifreeze attach {first.pid}    (what that rank hangs in; nothing is lost)"
    elif here in _MEETING and _waits_on(strand):
        confidence = LIKELY
        sentence = (
            f"rank {rank} waits in {here} for other ranks to come, and"
            f" {_missing(world, len(others) + 1)}"
        )
        get_out = (
            "start the ranks that are missing, with the same address and port"
            " (MASTER_ADDR, MASTER_PORT) and number of ranks (WORLD_SIZE): nothing is lost"
        )
    elif unseen or (not others and not world and _waits_on(strand)):
        confidence = POSSIBLE
        sentence = (
            f"rank {rank} waits in {here} for {f'{unseen} of {world}' if world else 'other'} ranks"
            " that are not of this program, or run where this machine cannot look"
        )
        get_out = "look at the other machines: antifreeze attach PID, on each of them"
    else:
        return  # all of them are in it: it is under way
    yield Finding(
        NAME,
        confidence,
        sentence,
        evidence=(
            f"rank {rank} is {where(strand)}",
            *(f"rank {each.number} (pid {each.pid}) {_does(each)}" for each in elsewhere),
        ),
        get_out=(get_out,),
        prevent=(
            "give every rank the same number of batches (DistributedSampler, drop_last, join)",
            "let no rank do alone what takes long (downloads, evaluation, saving)",
        ),
        pids=(scene.main.pid,),
    )


def waiting_for(scene: Scene) -> list[tuple[Actor, str]]:
    """Give the ranks that wait for this one, and in what: it is in nothing that ranks do together,
    and they are."""
    if collective(scene.main) or not is_rank(scene.main.process):
        return []
    return [
        (each, name)
        for each in scene.ranks
        if each.pid != scene.main.pid and each.number != scene.main.number
        if (name := collective(each))
    ]


def collective(actor: Actor) -> str:
    """Name the collective operation that a rank is in; nothing if it is in none."""
    for strand in actor.strands:
        for name in COLLECTIVES:
            if strand.calls(name, _HOME):
                return name
        for name in _MEETING:
            if (frame := strand.calls(name)) is not None and frame.file.startswith("torch/"):
                return name
    strand_of_main = actor.main
    if strand_of_main is not None and _waits_below(actor, strand_of_main):
        return "the synchronisation of gradients (backward)"
    return ""


def _waits_below(actor: Actor, strand: Strand) -> bool:
    """Say whether backward waits for other ranks, in C++: it has no line of Python's own, and its
    C++ is seldom seen in time. A process group is there, and nothing is computed."""
    if strand.calls("_engine_run_backward") is None:
        return False
    has_group = any(each.thread.name.startswith(GROUP_THREADS) for each in actor.strands)
    return has_group and strand.stuck and actor.share < IDLE_SHARE


def _waits_on(strand: Strand) -> bool:
    """Say that it is where it was, and no more than looks round."""
    then = strand.before.frames if strand.before is not None else ()
    same = tuple(each for each in then if not each.native) == strand.frames
    return same and strand.share < BUSY_SHARE / 2


def _missing(world: int, seen: int) -> str:
    if world > seen:
        return f"{world - seen} of {world} are not here (not started, or on another machine)"
    return "not all have come (not started, on another machine, or with another address or port)"


def _does(actor: Actor) -> str:
    strand = actor.main
    if actor.role is not Role.MAIN or strand is None:
        return "has ended"
    if actor.stopped:
        return "is stopped"
    if name := collective(actor):
        return f"waits in {name}: the ranks are not at the same place of the program"
    if strand.calls("_next_data", "torch/utils/data/dataloader.py"):
        return f"waits for its data, {where(strand)}"
    pace = f"using {strand.share:.0%} of a core" if strand.share > 0.02 else "doing nothing"
    return f"is {where(strand)}, {pace}"


CAUSE = Cause(NAME, find, blames_other_rank=True)
