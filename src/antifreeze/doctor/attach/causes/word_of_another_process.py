"""Somebody waits for word of another process, and everybody waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ...findings import Confidence, Finding
from ..analyse import torch_loader as torchs
from ..analyse.library_files import CONNECTION, LOADER, MANAGERS, POOL, QUEUES, SYNCHRONIZE
from ..analyse.lock_waits import Wait, awaits_room, is_service, wait_of
from ..analyse.threads_and_processes import Program, Role, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, loop_waits, sleeps
from .base import LIKELY, POSSIBLE, Cause, interrupt_wait, kill_worker, names_of, plural, where

NAME = "word-of-another-process"
_ASKS = ("_callmethod", "_incref", "_connect")  # how a proxy speaks to its manager
_LISTENS = ("_recv", "_poll", "accept")  # in multiprocessing's connections
_CONDITIONS = {  # whose wait it is, by a function on the way to it
    "Barrier.wait": "the other parties of a barrier",
    "Event.wait": "an event (multiprocessing.Event) that nobody sets",
    "JoinableQueue.join": "the tasks of a queue to be done",
}
_CONDITION = "a notice (multiprocessing.Condition) that nobody gives"
_QUEUE = "something to come out of a queue between processes, which is empty"
_ROOM = "room in a queue between processes, which is full"
_MESSAGE = "a message of another process"
_MANAGER = "an answer of a manager (multiprocessing.Manager)"
_POOL = "a result of a pool of processes (multiprocessing.Pool)"


@dataclass(frozen=True, slots=True)
class Waiting:
    """One thread that waits for word."""

    process: WatchedProcess
    thread: WatchedThread
    what: str


class AnswerChance(Enum):
    """The chance that a process still gives the word that is waited for."""

    NONE = "it waits for the others"
    SOME = "one of its threads sleeps, or waits for something else"
    MUCH = "it does something"


def find(program: Program) -> Iterator[Finding]:
    waiting = [each for process in _asked(program) if (each := _of(process)) is not None]
    if not waiting or program.ours or any(each.stopped for each in program.all):
        return
    among = [each.process for each in waiting]
    rest = [
        (each, _answer_chance(program, each))
        for each in _who_could_answer(program)
        if each not in among
    ]
    if any(chance is AnswerChance.MUCH for _, chance in rest):
        return  # somebody does something, and may say the word when it is done
    for what in dict.fromkeys(each.what for each in waiting):
        same = [each for each in waiting if each.what == what]
        yield _finding(program, what, same, rest)


def _asked(program: Program) -> list[WatchedProcess]:
    """Return those whose waiting matters."""
    if loop_waits(program):
        return [each for each in torchs.workers(program) if not program.idle(each)]
    main = program.main.main
    return [] if main is None or torchs.ends_program(main) else [program.main]


def _of(process: WatchedProcess) -> Waiting | None:
    thread = process.main
    if thread is None or not thread.frames or not torchs.waits_as_before(thread) or sleeps(thread):
        return None
    what = _what(thread)
    return None if what is None else Waiting(process, thread, what)


def _what(thread: WatchedThread) -> str | None:
    if thread.calls("_next_data", LOADER):
        return None
    if any(thread.calls(each, MANAGERS) for each in _ASKS):
        return _MANAGER
    if thread.calls("wait", POOL) or thread.calls("next", POOL):
        return _POOL
    if thread.calls("wait", SYNCHRONIZE) and wait_of(thread) is Wait.SEMAPHORE:
        names = [each.name for each in thread.frames]
        return next((said for name, said in _CONDITIONS.items() if name in names), _CONDITION)
    if thread.calls("_recv", CONNECTION) or thread.calls("_poll", CONNECTION):
        return _QUEUE if thread.calls("get", QUEUES) else _MESSAGE
    if awaits_room(thread):
        return _ROOM
    if thread.calls("get", QUEUES) and wait_of(thread) is Wait.SEMAPHORE:
        return _QUEUE  # another one waits at the queue, and this one for its turn
    return None


def _who_could_answer(program: Program) -> list[WatchedProcess]:
    """Return the living processes that could say something: others have not what it takes."""
    mine = program.main.now.command
    return [
        each
        for each in program.all
        if not each.dead
        and each.role not in (Role.HELPER, Role.LAUNCHER)
        and (each.role is not Role.CHILD or each.now.command == mine or _by_multiprocessing(each))
    ]


def _by_multiprocessing(process: WatchedProcess) -> bool:
    return "multiprocessing" in " ".join(process.now.command)


def _answer_chance(program: Program, process: WatchedProcess) -> AnswerChance:
    """Return how far a process may still say the word."""
    chance = AnswerChance.NONE
    for thread in process.threads:
        if not thread.frames or _only_waits(program, process, thread):
            continue
        if not thread.stuck or process.role is Role.CHILD:
            return (
                AnswerChance.MUCH
            )  # it moves; or it is a producer that waits for what it is to give
        chance = AnswerChance.SOME
    return chance


def _only_waits(program: Program, process: WatchedProcess, thread: WatchedThread) -> bool:
    """Whether it waits for others of the program, and is not the one that they wait for."""
    if not torchs.waits_as_before(thread):
        return False
    if (
        wait_of(thread) is not None
        or is_service(thread)
        or (thread is process.main and program.idle(process))
    ):
        return True
    return any(thread.calls(each, CONNECTION) for each in _LISTENS)


def _finding(
    program: Program,
    what: str,
    waiting: list[Waiting],
    rest: list[tuple[WatchedProcess, AnswerChance]],
) -> Finding:
    processes = [each.process for each in waiting]
    later = [each for each, chance in rest if chance is AnswerChance.SOME]
    readers = [each for each in waiting if wait_of(each.thread) is not Wait.SEMAPHORE]
    first = (readers or waiting)[0].thread
    sure: Confidence = POSSIBLE if later or (what == _QUEUE and not readers) else LIKELY
    main = processes[0] is program.main
    loop = program.waits_for_batch
    return Finding(
        NAME,
        sure,
        f"{names_of(processes)} {plural(processes, 'waits', 'wait')} for {what}, {at_line(first)},"
        f" and {_why(program, what)}"
        + (
            f"; the loop waits for {plural(processes, 'its', 'their')} batch, in {loop}"
            if loop
            else ""
        ),
        evidence=(
            f"{names_of(processes)}: no CPU, at the same line in both looks: {first.at}",
            *_of_manager(program, what),
            *(
                f"{each.label} waits too, {_place(each)}"
                for each, chance in rest[:4]
                if chance is AnswerChance.NONE
            ),
            *(f"{each.label} could still say it: it is {_place(each)}" for each in later[:2]),
            *_dead(program),
        ),
        get_out=(interrupt_wait(program.main) if main else kill_worker(processes),),
        prevent=(
            "put a limit on such waits (wait(timeout=...), get(timeout=...)), and look whether who"
            " should answer is alive",
            "say it before the loop begins: while that waits for a batch, nothing after it runs; a"
            " barrier has as many parties as there are workers",
        ),
        pids=tuple(each.pid for each in processes),
        general=True,
    )


def _why(program: Program, what: str) -> str:
    if what == _POOL:
        return _of_pool(program)
    if what == _MANAGER:
        return "none comes: " + (
            _held_in_manager(program) or "the manager waits for something itself"
        )
    if what == _ROOM:
        return (
            "nobody takes anything out: every other process of the program waits too, or has ended"
        )
    return "nobody is left to speak: every other process of the program waits too, or has ended"


def _of_pool(program: Program) -> str:
    """Return what the processes of a pool do."""
    pool = [each for each in program.others if each.main and each.main.calls("worker", POOL)]
    idle = [each for each in pool if each.main and each.main.calls("get", QUEUES)]
    if pool and len(idle) == len(pool):
        return (
            f"its {len(pool)} processes have nothing to do: the task was lost, most often because"
            " the process that had it was killed (a pool starts another one, and forgets the task)"
        )
    busy = [each for each in pool if each not in idle]
    places = "; ".join(f"process {each.pid} is {_place(each)}" for each in busy[:2])
    return f"none comes: {places or 'its processes have ended'}"


def _held_in_manager(program: Program) -> str:
    """Whether the manager waits for a lock of its own, for this client."""
    for _, thread in _servers(program):
        if wait_of(thread) is Wait.LOCK and thread.at == thread.calls("serve_client", MANAGERS):
            return (
                "it is a lock of the manager's that somebody has taken and not given back (who had"
                " it may have died: a manager does not notice)"
            )
    return ""


def _servers(program: Program) -> list[tuple[WatchedProcess, WatchedThread]]:
    return [
        (process, thread)
        for process in program.others
        for thread in process.threads
        if thread.calls("serve_client", MANAGERS)
    ]


def _of_manager(program: Program, what: str) -> list[str]:
    if what != _MANAGER:
        return []
    found = {process.pid: thread for process, thread in _servers(program)}
    return [f"the manager is process {pid}; its thread is at {s.at}" for pid, s in found.items()]


def _dead(program: Program) -> list[str]:
    return [
        f"process {each.pid} of the program is dead: {torchs.how_it_died(each.now)}"
        for each in (*program.workers, *program.others)
        if each.dead and each.role in (Role.CHILD, Role.WORKER)
    ][:3]


def _place(process: WatchedProcess) -> str:
    return where(process.main) if process.main is not None else "at an unknown line"


CAUSE = Cause(NAME, find)
