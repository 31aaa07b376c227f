"""What a thread waits for, and what the loop does, as several causes ask it. Pure."""

from __future__ import annotations

from dataclasses import replace

from ...._linux.syscalls import POLLS, SLEEPS
from ...._transport import own_frames
from ..facts import Frame
from .frames import in_init_fn
from .library_files import FETCH, WORKER_LOOP
from .threads_and_processes import IDLE_SHARE, Program, Role, WatchedProcess, WatchedThread

_POLLS_IN = ("poll_schedule", "do_sys_poll", "do_select", "ep_poll", "epoll")
_TICKS = 2  # times that torch's own waits may end between two looks, beside once in five seconds
_TICK_S = 5.0


def user_line(thread: WatchedThread) -> Frame | None:
    """Return the innermost line of the user's own files, else of what is not Python's or
    torch's."""
    for each in thread.own_frames:
        if each.file.startswith(("/", ".", "<ipython")):
            return each
    return thread.own_line or thread.at


def at_line(thread: WatchedThread) -> str:
    frame = user_line(thread)
    if frame is None:
        return "at an unknown line"
    return f"in {frame}" + (", in worker_init_fn" if in_init_fn(thread.frames) else "")


def own_wakeups(thread: WatchedThread) -> int:
    """Count how often a thread went to sleep anew between the looks, but for the times that torch's
    own waits end: every five seconds."""
    if thread.before is None:
        return 0
    ticks = int(thread.seconds / _TICK_S)
    return max(0, thread.now.gave_way - thread.before.gave_way - ticks)


def did_nothing(thread: WatchedThread | None) -> bool:
    """Whether a thread has done nothing, but wake up now and then to see that there is nothing."""
    if thread is None or thread.before is None or thread.share >= IDLE_SHARE:
        return False
    return own_wakeups(thread) <= _TICKS


def polls(thread: WatchedThread) -> bool:
    """Whether a thread waits for one of several descriptors, or for one with a bound."""
    call = thread.now.call
    if call and call[0] in POLLS:
        return True
    return any(each in thread.now.waits_in for each in _POLLS_IN)


def sleeps(thread: WatchedThread) -> bool:
    """Whether a thread sleeps on purpose."""
    call = thread.now.call
    return bool(call and call[0] in SLEEPS) or "nanosleep" in thread.now.waits_in


def loop_waits(program: Program) -> bool:
    """Whether the loop waits for a batch, as far as can be seen."""
    thread = program.loop
    if thread is None or loads_itself(program):
        return False
    if program.held_up or program.waits_for_batch is not None:
        return True
    if thread.frames:
        return thread.calls_own(own_frames.LOOP_WAITS) is not None
    return did_nothing(thread)


def loads_itself(program: Program) -> bool:
    """Whether the loop loads a batch itself: without workers, or with those of our threads."""
    thread = program.main.main
    if thread is None:
        return False
    return bool(thread.calls("fetch", FETCH) or thread.calls_own(own_frames.LOADS_BATCH))


def got_nothing(program: Program) -> bool:
    """Whether no batch has come to the loop between the looks: it would have woken up for it."""
    return loop_waits(program) and did_nothing(program.main.main)


def same_function(thread: WatchedThread) -> bool:
    """Whether the innermost function of the user's is the same in both looks."""
    if thread.before is None:
        return False
    then = replace(thread, now=thread.before)
    was, now = user_line(then), user_line(thread)
    return was is not None and now is not None and (was.name, was.file) == (now.name, now.file)


def in_sample(program: Program, worker: WatchedProcess) -> bool:
    """Whether a worker is in the dataset's code, the collate function or `worker_init_fn`."""
    thread = worker.main
    if thread is None or worker.dead or worker.stopped or not thread.frames:
        return False
    if worker.role is Role.OUR_WORKER:
        loads = thread.calls_own(own_frames.LOADS_BATCH) is not None
        return loads or in_init_fn(thread.frames)
    inside = thread.calls("_worker_loop", WORKER_LOOP)
    return inside is not None and not program.idle(worker)


def batch_lost(program: Program) -> bool:
    """Whether the loop waits for a batch that nobody works on: it was made, and never came."""
    if (
        not program.living
        or program.starting
        or not loop_waits(program)
        or not did_nothing(program.loop)
    ):
        return False
    if not all(did_nothing(each.main) for each in program.living):
        return False
    if program.seen:
        return all(program.idle(each) for each in program.living)
    return all(each.main is not None and polls(each.main) for each in program.living)


def sent_nothing(worker: WatchedProcess) -> bool:
    """Whether a worker has neither read nor written anything: it has not come to another batch."""
    then, now = worker.before, worker.now
    if then is None:
        return False
    if (
        -1 not in (then.network_bytes, now.network_bytes)
        and then.network_bytes != now.network_bytes
    ):
        return False
    return (then.read_bytes, then.written_bytes) == (now.read_bytes, now.written_bytes)


def megabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def rate(program: Program, what: str) -> float:
    """Return how fast a count of the processes rises, over all of them, in one second."""
    if program.seconds <= 0:
        return 0.0
    total = 0
    for process in program.all:
        if process.before is not None:
            total += getattr(process.now, what) - getattr(process.before, what)
    return total / program.seconds
