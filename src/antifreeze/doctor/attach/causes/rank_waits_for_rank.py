"""One rank waits for another in a collective operation, and that one does something else."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.library_files import LOADER
from ..analyse.process_roles import is_rank
from ..analyse.threads_and_processes import (
    BUSY_SHARE,
    GROUP_THREADS,
    IDLE_SHARE,
    Program,
    Role,
    WatchedProcess,
    WatchedThread,
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


def find(program: Program) -> Iterator[Finding]:
    here, thread = collective(program.main), program.main.main
    if not here or thread is None or (thread.share > BUSY_SHARE and thread.moved):
        return
    world = int(program.main.now.settings.get("WORLD_SIZE", "0") or 0)
    rank = program.main.number
    others = [
        each
        for each in program.ranks
        if each.pid != program.main.pid and each.number != rank and is_rank(each.now)
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
    elif here in _MEETING and _waits_on(thread):
        confidence = LIKELY
        sentence = (
            f"rank {rank} waits in {here} for other ranks to come, and"
            f" {_missing(world, len(others) + 1)}"
        )
        get_out = (
            "start the ranks that are missing, with the same address and port"
            " (MASTER_ADDR, MASTER_PORT) and number of ranks (WORLD_SIZE): nothing is lost"
        )
    elif unseen or (not others and not world and _waits_on(thread)):
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
            f"rank {rank} is {where(thread)}",
            *(f"rank {each.number} (pid {each.pid}) {_does(each)}" for each in elsewhere),
        ),
        get_out=(get_out,),
        prevent=(
            "give every rank the same number of batches (DistributedSampler, drop_last, join)",
            "let no rank do alone what takes long (downloads, evaluation, saving)",
        ),
        pids=(program.main.pid,),
    )


def waiting_for(program: Program) -> list[tuple[WatchedProcess, str]]:
    """Return the ranks that wait for this one, and in what: it is in nothing that ranks do
    together, and they are."""
    if collective(program.main) or not is_rank(program.main.now):
        return []
    return [
        (each, name)
        for each in program.ranks
        if each.pid != program.main.pid and each.number != program.main.number
        if (name := collective(each))
    ]


def collective(process: WatchedProcess) -> str:
    """Name the collective operation that a rank is in; nothing if it is in none."""
    for thread in process.threads:
        for name in COLLECTIVES:
            if thread.calls(name, _HOME):
                return name
        for name in _MEETING:
            if (frame := thread.calls(name)) is not None and frame.file.startswith("torch/"):
                return name
    strand_of_main = process.main
    if strand_of_main is not None and _waits_below(process, strand_of_main):
        return "the synchronisation of gradients (backward)"
    return ""


def _waits_below(process: WatchedProcess, thread: WatchedThread) -> bool:
    """Whether backward waits for other ranks, in C++: it has no line of Python's own, and its
    C++ is seldom seen in time. A process group is there, and nothing is computed."""
    if thread.calls("_engine_run_backward") is None:
        return False
    has_group = any(each.now.name.startswith(GROUP_THREADS) for each in process.threads)
    return has_group and thread.stuck and process.share < IDLE_SHARE


def _waits_on(thread: WatchedThread) -> bool:
    """Whether it is where it was, and no more than looks round."""
    return thread.at_same_lines and thread.share < BUSY_SHARE / 2


def _missing(world: int, seen: int) -> str:
    if world > seen:
        return f"{world - seen} of {world} are not here (not started, or on another machine)"
    return "not all have come (not started, on another machine, or with another address or port)"


def _does(process: WatchedProcess) -> str:
    thread = process.main
    if process.role is not Role.MAIN or thread is None:
        return "has ended"
    if process.stopped:
        return "is stopped"
    if name := collective(process):
        return f"waits in {name}: the ranks are not at the same place of the program"
    if thread.calls("_next_data", LOADER):
        return f"waits for its data, {where(thread)}"
    pace = f"using {thread.share:.0%} of a core" if thread.share > 0.02 else "doing nothing"
    return f"is {where(thread)}, {pace}"


CAUSE = Cause(NAME, find, blames_other_rank=True)
