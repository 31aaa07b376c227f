"""What speaks against a fork of this process: read from it when a loop begins, and of its Python
threads again under the GIL, at the moment of each fork.

Measured with threads that wait for an event: the first takes 0.07 ms with one of them, 0.4 ms with
64, 1.4 ms with 256; the second 0.02, 0.3 and 1.2 ms. Twice that where they wait in a queue, in a
`try` of their own. The very first look reads bytecode: 1 ms for each function not met before.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from ..._core.fork_or_clean import SHOWN, Program
from ..._core.frozen_values import frozen
from ..._core.health.stall_detection import StackLine
from ..._core.limits import LIMITS
from ..._core.native_pool_names import is_of_pool, pool_needed, pool_used, pools_among
from ..._linux import live_processes as live
from ..._linux.clock import pause
from ..._loading.raw_attributes import class_name, instance_dict
from ..._worker.accelerator_errors import context_of_torch
from ..._worker.parent_watch import THREAD_NAME
from . import native_thread_pools, parked_threads
from .reachable_objects import NOTHING_REACHED, Reached

OURS = "antifreeze-"  # all our threads begin so
# Idle but for a moment every few seconds, and their locks are of no use in a worker.
_HARMLESS_KINDS = frozenset({"TMonitor"})  # of tqdm
# Sends what was put in a queue of multiprocessing, which makes its locks anew in a child. Torch's
# own loader leaves one behind for a moment, each time.
_FEEDER = "QueueFeederThread"
_HARMLESS_NAMES = (
    THREAD_NAME.decode(),  # of ours, about to end: Python has forgotten it
    "pt_autograd",  # waits for the next backward pass; a worker cannot have one, and says so
    # Gives memory back, for pyarrow and so for pandas. Its library holds all of its own locks
    # during a fork, and does without the thread in the child.
    "jemalloc_bg_thd",
)
NATIVE = "of a native library"
# System calls in which native threads wait for work, or for time to pass.
_IDLE = frozenset(
    {"futex", "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "nanosleep"}
    | {"clock_nanosleep", "recvfrom", "recvmsg", "accept", "accept4", "read", "rt_sigtimedwait"}
)


@frozen
class Foreign:
    """A thread that is not ours, and what it is seen to do."""

    name: str
    running: str = ""  # why it is not parked, in words


def program(reached: Reached = NOTHING_REACHED) -> Program:
    """Look at this process. Call `native_thread_pools.lay_down` first: what it ends is no hazard.

    `reached`: what workers can reach. A thread that is only passing through is looked at again, for
    some milliseconds.
    """
    for _ in range(LIMITS.forking.first_looks):
        threads = [*_python_threads(Positions()), *_native_threads(reached.packages)]
        running = [each for each in threads if each.running]
        held = reached.held() if threads else ""
        if not (running or held):
            break
        pause(LIMITS.forking.first_look_s)
    return Program(
        tuple(each.name for each in running),
        next((each.running for each in running), ""),
        tuple(each.name for each in threads if not each.running),
        held,
        context_of_torch(),
        live.own_resident_bytes(),
    )


def has_hazards() -> bool:
    """Say, roughly and fast, whether the clean process will be asked for."""
    return any(each.running for each in _python_threads(Positions()))


def is_alone() -> bool:
    """Whether no Python thread but ours and harmless ones is there, nor a context, nor a native
    pool that a fork breaks."""
    if context_of_torch():
        return False
    if next(_foreign_threads(), None) is not None:
        return False
    return not any(is_of_pool(name) for name in _thread_names(os.getpid()))


def unsafe_now(reached: Reached, positions: Positions) -> str:
    """Return what speaks against a fork with the threads where they are, in words; nothing if
    nothing does. Cheap: called under the GIL, right before a fork."""
    foreign = _python_threads(positions)
    for each in foreign:
        if each.running:
            return f"another thread runs here ({each.name}: {each.running})"
    return reached.held() if foreign else ""


def left_behind(pid: int, stack: tuple[StackLine, ...]) -> str:
    """Return the native library that a process forked from this one is in, by its stack, if this
    process has the library's threads and that one has none."""
    used = pool_used(_thread_names(os.getpid()), [line.file for line in stack])
    if used is None:
        return ""
    pool, threads = used
    if any(each == pool for each, _ in pools_among(_thread_names(pid))):
        return ""
    return f"{pool.library} ({', '.join(list(dict.fromkeys(threads))[:SHOWN])})"


def _thread_names(pid: int) -> list[str]:
    """Return the names of a process's threads; of one that has ended meanwhile, none."""
    names = (live.thread_name(pid, thread) for thread in live.threads(pid))
    return [name for name in names if name is not None]


class Positions:
    """Where the foreign threads of Python are: their innermost frames, and at which instruction.

    Keep it for no longer than a moment: what a frame refers to is alive for as long as that."""

    def __init__(self) -> None:
        self.threads = tuple(_foreign_threads())  # with their names and numbers
        self.frames = _frames_of_others()
        self._at = [
            (number, frame, frame.f_lasti)
            for _, _, number in self.threads
            if (frame := self.frames.get(number)) is not None
        ]

    def have_changed(self) -> bool:
        """Whether a thread has moved, begun or ended since. Not seen: one that has run through a
        loop, and is at the same call of the same function again."""
        now = _frames_of_others()
        return not now.keys() <= self.frames.keys() or any(
            now.get(number) is not frame or frame.f_lasti != at for number, frame, at in self._at
        )


def _frames_of_others() -> dict[int, FrameType]:
    frames = sys._current_frames()
    # Ours would refer to itself, by this variable: all frames would stay until the next garbage
    # collection, and with them what other threads have had in theirs.
    del frames[threading.get_ident()]
    return frames


def _foreign_threads() -> Iterator[tuple[threading.Thread, str, int]]:
    """Yield the threads that Python knows, but for ours and harmless ones, with their names and
    numbers."""
    mine, sharer = threading.current_thread(), _sharer()
    for each in threading.enumerate():
        if each is mine or each is sharer:
            continue
        own = instance_dict(each)  # a class may have a `name` of its own making
        name, number = own.get("_name"), own.get("_ident")
        name = name if type(name) is str else ""
        if not _is_harmless(each, name):
            yield each, name, number if type(number) is int else 0


def _python_threads(positions: Positions) -> list[Foreign]:
    """Return the foreign threads of Python, and what they do."""
    found = []
    for each, name, number in positions.threads:
        frame = positions.frames.get(number)
        if frame is not None:  # else it is about to begin or to end, or in native code of others
            found.append(Foreign(_in_words(each, name), parked_threads.running(frame)))
        elif type(each) is not threading._DummyThread:
            found.append(Foreign(_in_words(each, name), "it begins or ends"))
    return found


def _native_threads(used: frozenset[str]) -> list[Foreign]:
    """Return the threads that only the kernel knows, but for idle ones of pools that survive a
    fork. `used`: packages that workers use."""
    known = {
        each.native_id
        for each in threading.enumerate()
        if not isinstance(each, threading._DummyThread)
    }
    pid, unnamed, found = os.getpid(), 0, []
    this = live.thread_name(pid, str(pid))
    for task in live.own_threads():
        if int(task) in known or int(task) == threading.get_native_id():
            continue
        name = live.thread_name(pid, task)
        if name is None or name.startswith(_HARMLESS_NAMES):
            continue
        if pool := pool_needed(name, used):
            found.append(Foreign(name, f"workers use {pool}, whose threads a fork does not copy"))
            continue
        call = live.system_call_name(f"{pid}/task/{task}")
        idle = call in _IDLE
        if name != this:
            found.append(Foreign(name, "" if idle else "it runs native code"))
        elif not idle and call in ("", "running", "sched_yield"):  # the first: it is not told
            unnamed += 1
        elif not idle:
            found.append(Foreign(NATIVE, f"it is in {call}"))
    if (
        unnamed and (more := unnamed - native_thread_pools.blas_threads()) > 0
    ):  # these look after themselves
        found += [Foreign(NATIVE, "it runs native code")] * more
    return found


def _is_harmless(thread: threading.Thread, name: str) -> bool:
    kind = type(thread)
    return (
        name.startswith(OURS)
        or class_name(kind) in _HARMLESS_KINDS
        or (name == _FEEDER and kind is threading.Thread)
    )


def _sharer() -> threading.Thread | None:
    """Give the thread in which multiprocessing waits for those who want a descriptor, if it has
    one; it looks after itself at a fork."""
    module = sys.modules.get("multiprocessing.resource_sharer")
    sharer = getattr(module, "_resource_sharer", None)
    thread: threading.Thread | None = getattr(sharer, "_thread", None)
    return thread


def _in_words(thread: threading.Thread, name: str) -> str:
    kind = type(thread)
    if kind is threading._DummyThread:
        return NATIVE
    if thread is threading.main_thread():
        return "the main thread"
    return name if class_name(kind) == "Thread" else f"{name} ({class_name(kind)})"
