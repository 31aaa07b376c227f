"""An event loop has nothing to do: a coroutine awaits what nobody brings."""

from __future__ import annotations

from collections.abc import Iterator

from ...._linux.syscalls import POLLS, Syscall
from ...findings import Confidence, Finding
from ..analyse.library_files import EVENT_LOOP
from ..analyse.lock_waits import (
    Wait,
    brings_nothing,
    others,
    same_line,
    wait_of,
    waits_without_limit,
)
from ..analyse.progress import changed_function, exchanged, watched_s
from ..analyse.threads_and_processes import IDLE_SHARE, Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, in_sample, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import LIKELY, POSSIBLE, Cause, interrupt_wait, kill_worker, names_of, plural

NAME = "idle-event-loop"
_LATE_S = 3.0  # that timers have brought nothing: who paces its requests has got something by then
_FOR_ANOTHER = (Wait.RESULT, Wait.NOTICE, Wait.THREAD)
# Without a limit: -1, as the kernel shows a number of 32 bits, or one of 64.
_WITHOUT_END = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_LIMIT = {
    Syscall.EPOLL_WAIT: 4,
    Syscall.EPOLL_PWAIT: 4,
    Syscall.POLL: 3,
}  # where it stands in the call


def find(program: Program) -> Iterator[Finding]:
    idle = [
        (each, loop) for each in _asked(program) if (loop := idle_loop(program, each)) is not None
    ]
    groups: dict[Confidence, list[tuple[WatchedProcess, WatchedThread]]] = {}
    for process, loop in idle:
        groups.setdefault(_confidence(loop), []).append((process, loop))
    for confidence, found in groups.items():
        yield _finding(program, confidence, found)


def _asked(program: Program) -> tuple[WatchedProcess, ...]:
    """Return those whose waiting matters: workers only while the loop waits for them."""
    if not loop_waits(program):
        return () if program.at_prompt else (program.main,)
    return tuple(each for each in program.living if in_sample(program, each))


def idle_loop(program: Program, process: WatchedProcess) -> WatchedThread | None:
    """Return the thread whose event loop waits for nothing from outside, while the main thread is
    in it or waits for it, and no other thread or program is there that could bring anything."""
    main = process.main
    if main is None:
        return None
    if main.calls("_run_once", EVENT_LOOP) is not None:
        loops = [main] if main.calls("run_until_complete", EVENT_LOOP) is not None else []
    elif wait_of(main) in _FOR_ANOTHER and (waits_without_limit(main) or same_line(main)):
        loops = [
            each for each in process.threads if each.calls("_run_once", EVENT_LOOP) is not None
        ]
    else:
        return None
    if not loops or not all(
        _waits_for_nothing(process, each) or _only_has_timers(program, process, each)
        for each in loops
    ):
        return None
    alone = all(map(brings_nothing, others(process, main, *loops)))
    return loops[0] if alone and not program.has_children(process) else None


def _waits_for_nothing(process: WatchedProcess, loop: WatchedThread) -> bool:
    """Whether a loop sleeps without a limit, and that nothing from outside can wake it: all that
    it watches is the socket by which other threads do."""
    call = loop.now.call
    if not loop.stuck or not call or call[0] not in POLLS:
        return False
    if not _without_end(loop):
        return False
    if loop.now.watches:
        return _watches_itself_alone(process, loop)
    return not any(
        each.target.startswith(("tcp", "udp")) for each in process.now.descriptors
    ) and bool(process.now.descriptors)


def _without_end(loop: WatchedThread) -> bool:
    call = loop.now.call
    at = _LIMIT.get(Syscall(call[0])) if call and call[0] in POLLS else None
    return at is not None and len(call) > at and call[at] in _WITHOUT_END


def _watches_itself_alone(process: WatchedProcess, loop: WatchedThread) -> bool:
    watched = [each.target for each in process.now.descriptors if each.number in loop.now.watches]
    return watched == ["unix"] and len(loop.now.watches) == 1


def _only_has_timers(program: Program, process: WatchedProcess, loop: WatchedThread) -> bool:
    """Whether a loop wakes up for timers, and nothing came of that for some time: no byte, no batch
    and no other line."""
    call, main = loop.now.call, process.main
    if not call or call[0] not in POLLS or loop.share >= IDLE_SHARE or main is None:
        return False
    late = watched_s(program) >= _LATE_S or main.stuck  # who sleeps is watched for long enough
    if not late or not _watches_itself_alone(process, loop):
        return False
    return exchanged(program, process) is False and not changed_function(program, loop)


def _confidence(loop: WatchedThread) -> Confidence:
    return LIKELY if loop.now.watches and loop.stuck and _without_end(loop) else POSSIBLE


def _finding(
    program: Program, confidence: Confidence, idle: list[tuple[WatchedProcess, WatchedThread]]
) -> Finding:
    processes = [process for process, _ in idle]
    first, loop = idle[0]
    assert first.main is not None
    main = program.main in processes
    apart = "" if loop is first.main else f" (thread {loop.now.name!r})"
    sees = (
        "nothing but the socket by which other threads wake it"
        if loop.now.watches
        else "no connection, as far as can be seen"
    )
    timers = not _without_end(loop)
    what = "that only wakes up for timers" if timers else "that has nothing to do"
    left = (
        "no connection and no other thread is left, and the timers have brought no batch"
        if timers
        else "no timer, no connection and no other thread is left"
    )
    return Finding(
        NAME,
        confidence,
        f"{names_of(processes)} {plural(processes, 'runs', 'run')} an event loop{apart} {what},"
        f" {at_line(first.main)}: a coroutine awaits what nobody brings (an asyncio.Event, Queue,"
        f" Future or Lock): {left}"
        + ("" if main else and_the_loop_waits(program, processes, plural(processes, "it", "them"))),
        evidence=(
            f"{names_of(processes)}: hardly any CPU, in {loop.at}, with a limit: so there is a"
            f" timer; nothing was read or written in {watched_s(program):.0f} s"
            if timers
            else f"{names_of(processes)}: no CPU, in {loop.at}, without a limit: so there is no"
            " timer",
            f"the event loop watches {sees}",
            "no other thread of the process could set, put or answer anything",
        ),
        get_out=(interrupt_wait(program.main) if main else kill_worker(processes),),
        prevent=(
            "await with a limit: asyncio.wait_for(..., timeout=30), or `async with"
            " asyncio.timeout(30)`: the error then says which one it was",
            "see which task it is: asyncio.all_tasks() and task.print_stack() from a signal"
            " handler",
        ),
        pids=tuple(each.pid for each in processes),
    )


CAUSE = Cause(NAME, find)
