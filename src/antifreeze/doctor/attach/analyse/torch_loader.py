"""torch's loader, seen from outside: which thread waits for what, and what is under way. Pure."""

from __future__ import annotations

import signal

from ..facts import Process
from .library_files import CONNECTION, LOADER, MULTIPROCESSING_UTIL, PROCESS, QUEUES
from .threads_and_processes import IDLE_SHARE, Program, Role, WatchedProcess, WatchedThread
from .waits import own_wakeups

# Loop and workers wake up every five seconds to see whether the others live: that is no work.
WAKES = 3
_ACCESS = 3  # the bits of a descriptor's flags that say how it was opened: 0 to read, 1 to write


def loop(program: Program) -> WatchedThread | None:
    """Return the thread of the main process that waits for a batch: most often its first."""
    return next((each for each in program.main.threads if each.calls("_get_data", LOADER)), None)


def pin_threads(program: Program) -> list[WatchedThread]:
    """Return the threads of the main process that copy batches to pinned memory."""
    return [
        each
        for each in program.main.threads
        if each.calls("_pin_memory_loop") or each.now.name.startswith("pt_data_pin")
    ]


def waits_for_pinned(program: Program) -> bool:
    """Whether the loop waits for a thread of its own process, which pins memory."""
    thread = loop(program)
    return thread is not None and thread.calls("get", "queue.py") is not None


def reader(program: Program) -> WatchedThread | None:
    """Return the thread that takes batches from the workers: the loop's, or the one that pins."""
    if waits_for_pinned(program):
        return next(iter(pin_threads(program)), None)
    return loop(program)


def awaits_message(thread: WatchedThread) -> bool:
    """Whether it waits for a message to begin, and has none."""
    return thread.calls("poll", CONNECTION) is not None and waits_as_before(thread)


def in_message(thread: WatchedThread) -> bool:
    """Whether it has the beginning of a message and waits for the rest."""
    if thread.calls("_recv_bytes", CONNECTION) is None or not waits_as_before(thread):
        return False
    return "pipe_read" in thread.now.waits_in or thread.descriptor().startswith("pipe:")


def feeders(process: WatchedProcess) -> list[WatchedThread]:
    """Return the threads that send what was put into queues."""
    return [each for each in process.threads if each.calls("_feed", QUEUES)]


def has_nothing_to_send(feeder: WatchedThread) -> bool:
    return feeder.calls("wait", "threading.py") is not None and waits_as_before(feeder)


def writes_in_vain(feeder: WatchedThread) -> bool:
    """Whether it is in the middle of a write into a pipe that is full."""
    if feeder.calls("_send", CONNECTION) is None or not feeder.stuck:
        return False
    return "pipe_write" in feeder.now.waits_in or feeder.descriptor().startswith("pipe:")


def waits_for_turn(feeder: WatchedThread) -> bool:
    """Whether it waits until another worker has written."""
    at = feeder.at
    return feeder.stuck and at is not None and at.name.rpartition(".")[2] == "_feed"


def waits_as_before(thread: WatchedThread) -> bool:
    """Whether it waits as it did: at the same line, and it did not wake up but to look round."""
    if thread.before is None or thread.share >= IDLE_SHARE:
        return False
    return thread.at_same_lines and own_wakeups(thread) <= WAKES


def workers(program: Program) -> list[WatchedProcess]:
    """Return torch's workers that live."""
    return [each for each in program.living if each.role is Role.WORKER]


def nothing_under_way(program: Program) -> bool:
    """Whether every worker waits for indices, and that nobody sends any, nor a batch."""
    if program.starting:
        return False
    return all(
        not each.stopped
        and program.idle(each)
        and each.main is not None
        and waits_as_before(each.main)
        and all(has_nothing_to_send(feeder) for feeder in feeders(each))
        for each in workers(program)
    ) and all(has_nothing_to_send(each) for each in feeders(program.main))


def killed_workers(program: Program) -> list[WatchedProcess]:
    """Return torch's workers that died of something, and that nobody has buried since the first
    look.

    One that ended by itself (its part of an IterableDataset is over) lies so until the epoch's end.
    """
    return [
        each
        for each in program.workers
        if each.role is Role.WORKER
        and each.dead
        and each.now.exit_status
        and each.before is not None
        and each.before.state in "ZX"
    ]


def reaped_workers(program: Program) -> int:
    """Count workers that are gone without a trace but two: the main process has a thread that feeds
    each worker, and the pipe whose other end a worker holds as long as it lives."""
    if program.starting:
        return 0
    there = [each for each in program.workers if each.role is Role.WORKER]
    fed = len(feeders(program.main)) - len(there)
    return max(0, min(fed, _ends_without_other(program) - sum(each.dead for each in there)))


def _ends_without_other(program: Program) -> int:
    """Count the children of multiprocessing that are dead: of the two pipes that it makes for each,
    the main process has one end, and nobody has the other."""
    mine = program.main.now
    of_all = [each.now for each in program.all]
    read, written = _ends(of_all, 0), _ends(of_all, 1)
    to_read = _ends([mine], 0) - written
    to_write = _ends([mine], 1) - read
    return min(len(to_read), len(to_write))


def _ends(processes: list[Process], access: int) -> set[str]:
    return {
        each.target
        for process in processes
        for each in process.descriptors
        if each.number > 2 and each.target.startswith("pipe:") and each.flags & _ACCESS == access
    }


def how_it_died(process: Process) -> str:
    """Return what a dead process died of."""
    status = process.exit_status
    if not status & 0x7F:
        return f"ended with exit code {status >> 8}"
    number = status & 0x7F
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"killed by {name}"


def died_of(process: Process, number: signal.Signals) -> bool:
    return process.exit_status & 0x7F == number


def out_of_memory(program: Program) -> list[str]:
    """Return what hints at the kernel having killed it for want of memory."""
    kills = program.machine.group.kills
    return [f"the kernel has killed {kills} processes of this container for want of memory"] * (
        kills > 0
    )


def ends_program(main: WatchedThread) -> bool:
    """Whether the main thread ends the program, or a loader."""
    return bool(
        main.calls("_exit_function", MULTIPROCESSING_UTIL)
        or main.calls("_shutdown_workers", LOADER)
        or main.calls("_shutdown", "threading.py")
        or main.calls("join", PROCESS)
    )
