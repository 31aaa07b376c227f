"""What a thread waits for, and what the loop does, as several causes ask it. Pure."""

from __future__ import annotations

from dataclasses import replace

from ...._linux.syscalls import POLLS, SLEEPS
from ...._transport import own_frames
from ..facts import Frame
from .frames import in_init_fn
from .threads_and_processes import IDLE_SHARE, Actor, Role, Scene, Strand

_POLLS_IN = ("poll_schedule", "do_sys_poll", "do_select", "ep_poll", "epoll")
_TICKS = 2  # times that torch's own waits may end between two looks, beside once in five seconds
_TICK_S = 5.0


def their_line(strand: Strand) -> Frame | None:
    """Give the innermost line of the user's own files, else of what is not Python's or torch's."""
    for each in strand.own_frames:
        if each.file.startswith(("/", ".", "<ipython")):
            return each
    return strand.own_line or strand.at


def at_line(strand: Strand) -> str:
    frame = their_line(strand)
    if frame is None:
        return "at an unknown line"
    return f"in {frame}" + (", in worker_init_fn" if in_init_fn(strand.frames) else "")


def woken(strand: Strand) -> int:
    """Count how often a thread went to sleep anew between the looks, but for the times that torch's
    own waits end: every five seconds."""
    if strand.before is None:
        return 0
    ticks = int(strand.seconds / _TICK_S)
    return max(0, strand.thread.gave_way - strand.before.gave_way - ticks)


def still(strand: Strand | None) -> bool:
    """Say that a thread has done nothing, but wake up now and then to see that there is nothing."""
    if strand is None or strand.before is None or strand.share >= IDLE_SHARE:
        return False
    return woken(strand) <= _TICKS


def polls(strand: Strand) -> bool:
    """Say that a thread waits for one of several descriptors, or for one with a bound."""
    call = strand.thread.call
    if call and call[0] in POLLS:
        return True
    return any(each in strand.thread.waits_in for each in _POLLS_IN)


def sleeps(strand: Strand) -> bool:
    """Say that a thread sleeps on purpose."""
    call = strand.thread.call
    return bool(call and call[0] in SLEEPS) or "nanosleep" in strand.thread.waits_in


def loop_waits(scene: Scene) -> bool:
    """Say that the loop waits for a batch, as far as can be seen."""
    strand = scene.loop
    if strand is None or loads_itself(scene):
        return False
    if scene.held_up or scene.waits_for_batch is not None:
        return True
    if strand.frames:
        return strand.calls_own(own_frames.LOOP_WAITS) is not None
    return still(strand)


def loads_itself(scene: Scene) -> bool:
    """Say that the loop loads a batch itself: without workers, or with those of our threads."""
    strand = scene.main.main
    if strand is None:
        return False
    return bool(
        strand.calls("fetch", "torch/utils/data/_utils/fetch.py")
        or strand.calls_own(own_frames.LOADS_BATCH)
    )


def got_nothing(scene: Scene) -> bool:
    """Say that no batch has come to the loop between the looks: it would have woken up for it."""
    return loop_waits(scene) and still(scene.main.main)


def same_function(strand: Strand) -> bool:
    """Say that the innermost function of the user's is the same in both looks."""
    if strand.before is None:
        return False
    then = replace(strand, thread=strand.before)
    was, now = their_line(then), their_line(strand)
    return was is not None and now is not None and (was.name, was.file) == (now.name, now.file)


def in_sample(scene: Scene, worker: Actor) -> bool:
    """Say that a worker is in the dataset's code, the collate function or `worker_init_fn`."""
    strand = worker.main
    if strand is None or worker.dead or worker.stopped or not strand.frames:
        return False
    if worker.role is Role.OUR_WORKER:
        loads = strand.calls_own(own_frames.LOADS_BATCH) is not None
        return loads or in_init_fn(strand.frames)
    inside = strand.calls("_worker_loop", "torch/utils/data/_utils/worker.py")
    return inside is not None and not scene.idle(worker)


def batch_lost(scene: Scene) -> bool:
    """Say that the loop waits for a batch that nobody works on: it was made, and never came."""
    if not scene.living or scene.starting or not loop_waits(scene) or not still(scene.loop):
        return False
    if not all(still(each.main) for each in scene.living):
        return False
    if scene.seen:
        return all(scene.idle(each) for each in scene.living)
    return all(each.main is not None and polls(each.main) for each in scene.living)


def sent_nothing(worker: Actor) -> bool:
    """Say that a worker has neither read nor written anything: it has not come to another batch."""
    then, now = worker.before, worker.process
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


def rate(scene: Scene, what: str) -> float:
    """Give how fast a count of the processes rises, over all of them, in one second."""
    if scene.seconds <= 0:
        return 0.0
    total = 0
    for actor in scene.all:
        if actor.before is not None:
            total += getattr(actor.process, what) - getattr(actor.before, what)
    return total / scene.seconds
