"""Where lives come from: whoever is asked for one, and tells of its birth and of its exit status.

1. `ask` has a life begin and does not wait for it; its birth, or that there was none, is news.
2. `hear` never waits: it gives the news there are. Its `descriptor` is what to wait for.
3. That a life has ended is seen by its pidfd, whoever its parent is. Its exit status is known to
   the parent alone: it is news, and comes before or after.
"""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, TypeVar

from ..._core.faults import Ending
from ..._core.health.stall_detection import Inherited
from ..._core.limits import LIMITS, StartLimits
from ..._core.messages import frozen, message
from ..._linux.clock import pause
from ..._loading.job import Job
from ..._transport.descriptors import Descriptor
from ..._transport.stack_file import StackFile
from ..._transport.status_board import StatusBoard
from ..._worker.main import run
from ..._worker.worker_spec import EpochBrief, WorkerSpec
from ..replication.job_pickler import SentJob
from .inherited_handles import warn_of_connections
from .slow_unpickling import Opening
from .source_messages import Wait

T = TypeVar("T")


def in_words(code: int) -> str:
    """Say how a process ended: an exit code, or the negative number of a signal."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def patiently(make: Callable[[], T], limits: StartLimits = LIMITS.starting) -> T:
    """Make a process. Where the machine gives none, try again for a moment: workers of the last
    epoch may be about to end. Raises OSError."""
    for _ in range(limits.process_tries):
        try:
            return make()
        except BlockingIOError:  # EAGAIN: a limit of processes
            pause(limits.process_pause_s)
    return make()


def ending_of(code: int | None) -> Ending:
    if code is None:
        return Ending(words="its exit status was taken by another wait in this program")
    return Ending(signal=-code) if code < 0 else Ending(exit_code=code)


@frozen
class Wanted:
    """A life that is asked for."""

    seat: int
    life: int
    place: int  # of its word on the status board
    brief: EpochBrief
    number: int | None = None  # multiprocessing's, where another process forks it

    def spec(self, job: Any, status: StatusBoard, **more: Any) -> WorkerSpec:
        """Say what the life must know; called in the process that it must not outlive."""
        return WorkerSpec(
            job=job,
            seat=self.seat,
            life=self.life,
            brief=self.brief,
            status=status.line(self.place),
            ends_with=os.getpid(),
            **more,
        )


@message
class Born:
    """A life has begun."""

    seat: int
    life: int
    pid: int
    pidfd: Descriptor


@message
class Refused:
    """A life could not begin."""

    seat: int
    life: int
    words: str


@message
class Exited:
    """A life's parent knows how it ended: an exit code, or the negative number of a signal."""

    seat: int
    life: int
    code: int | None  # None: somebody else in this program took it
    peak_bytes: int = 0  # of memory that it held, as far as that is known


@message
class Orphaned:
    """The parent of lives is gone itself, and takes them with it. No word of them follows."""

    words: str
    told: bool = False  # the user knows why
    spared: frozenset[tuple[int, int]] = frozenset()  # lives that have another parent


News = Born | Refused | Exited | Orphaned


class Origin(Protocol):
    def ask(self, wanted: Wanted, channel: socket.socket, trace: StackFile) -> None:
        """Have a life begin at this end of a channel. Raises OriginGone, or whatever starting
        raised."""

    def hear(self) -> Sequence[News]: ...

    @property
    def forks(self) -> bool:
        """Say whether lives begin at once: nothing has to be imported first."""

    @property
    def pid(self) -> int | None:
        """Give whoever brings lives into the world, if it is another process."""

    def go_on(self) -> None:
        """Resume whoever brings lives into the world, if somebody has stopped it."""

    @property
    def opening(self) -> Opening | None:
        """Give what is seen of whoever is to bring lives into the world, while it cannot yet."""

    def defer(self) -> None:
        """Put off, until `settle`, what lives need only to be replaced."""

    def settle(self) -> None:
        """Make ready, from the next `hear` on, what was put off."""

    def forsake(self) -> None:
        """End whoever was asked for a life and does not give it; the next one is asked anew."""

    def unfit(self, words: str, details: str) -> None:
        """Take note that a life cannot open its job: none of its siblings can."""

    def opened(self, modules: Sequence[str], seconds: float) -> None:
        """Take note of what it took a life to open its job."""

    def stillborn(self, how: str) -> None:
        """Take note that a life ended while it opened its job; not by us."""

    def doubt(self) -> None:
        """Take note that no life got going: try another way to make them, if there is one."""

    def inherited(self, wait: Wait) -> Inherited | None:
        """Return what a forked life has inherited that keeps it waiting for a lock. Without a
        deadlock or a library that is a guess."""

    @property
    def can_turn(self) -> bool:
        """Whether `turn` would make forked lives anew."""

    def expect_turn(self) -> None:
        """Prepare for `turn`: it seems that forked lives cannot go on."""

    def turn(self, words: str) -> None:
        """Make all lives anew, from a clean process, if that can be: forked ones cannot live with
        what they inherited."""

    def ended(self, seat: int, life: int) -> None:
        """Take note that a life's pidfd tells its end: its exit status is due."""

    @property
    def descriptor(self) -> int | None:
        """Give what becomes readable when there are news, if they come by themselves."""

    def close(self) -> None:
        """End what is left, bounded, and give everything back."""


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Keep Ctrl-C waiting for a moment: in the middle of a fork it would be lost, or hit the child.

    The child starts with SIGINT blocked and unblocks it when it knows what to do with it. The
    mask is of this thread alone; what another thread receives, Python runs in the main thread, so
    there the handler only takes note as well.
    """
    waiting: list[Any] = []
    handler = None
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        signal.signal(signal.SIGINT, lambda *received: waiting.append(received))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if callable(handler):
            signal.signal(signal.SIGINT, handler)
            if waiting:
                handler(*waiting[0])


def disown(*processes: BaseProcess) -> None:
    """Let go of children, of which nobody asks anything any more, and have multiprocessing forget
    them. In a process of the user's own making it would else end at exit what it takes for a child
    of that process.

    What else happens when they are collected is Python code that the interpreter calls, and in
    which Ctrl-C would be lost; so it happens here. May raise KeyboardInterrupt when it is done.
    """
    with without_interrupts():
        for process in processes:
            multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]
            multiprocessing.process._dangling.discard(process)  # type: ignore[attr-defined]
            popen = getattr(process, "_popen", None)
            if popen is not None and process._parent_pid == os.getpid():  # type: ignore[attr-defined]
                popen.close()


class Children:
    """Lives are processes of the user's own kind of multiprocessing context, each started anew."""

    descriptor = None  # news come when they are asked for
    pid = None
    forks = False
    opening = None  # a life that imports is born already

    def __init__(self, job: Job, status: StatusBoard, context: Any) -> None:
        self._context, self._status = context, status
        inherited = context.get_start_method() == "fork"
        if inherited:
            warn_of_connections(job.dataset)
        self._sent: Any = job if inherited else SentJob(job)
        self._processes: dict[tuple[int, int], BaseProcess] = {}
        self._news: list[News] = []

    def ask(self, wanted: Wanted, channel: socket.socket, trace: StackFile) -> None:
        """Start a process. It leaves no stack: how a descriptor gets to it is its context's way."""
        by_server = self._context.get_start_method() == "forkserver"
        spec = wanted.spec(
            self._sent,
            self._status,
            by_kernel=by_server or threading.current_thread() is threading.main_thread(),
        )
        process = self._context.Process(
            target=run, args=(spec, channel), name=worker_name(wanted.seat), daemon=True
        )
        try:
            with without_interrupts():
                process.start()
            pidfd = Descriptor(os.pidfd_open(process.pid))
        except BaseException:
            if process.pid is not None:  # it runs, and nobody would ever hear of it
                process.kill()
                process.join(LIMITS.starting.reap_s)
            disown(process)
            raise
        self._processes[wanted.seat, wanted.life] = process
        self._news.append(Born(wanted.seat, wanted.life, process.pid, pidfd))

    def hear(self) -> Sequence[News]:
        news, self._news = self._news, []
        return news

    def go_on(self) -> None:
        """Nobody stands between: this process itself starts lives."""

    def defer(self) -> None:
        """Nothing to do: whoever replaces a life is started like it."""

    def settle(self) -> None:
        """Nothing to do: likewise."""

    def forsake(self) -> None:
        """Nothing to do: whoever is asked gives at once."""

    def unfit(self, words: str, details: str) -> None:
        """Nothing to do: its jobs are not sealed."""

    def opened(self, modules: Sequence[str], seconds: float) -> None:
        """Nothing to do: likewise."""

    def stillborn(self, how: str) -> None:
        """Nothing to do: likewise."""

    def doubt(self) -> None:
        """Nothing to do: how a life begins is the user's own choice."""

    def inherited(self, wait: Wait) -> Inherited | None:
        return None  # likewise

    @property
    def can_turn(self) -> bool:
        return False

    def expect_turn(self) -> None:
        """Nothing to do: likewise."""

    def turn(self, words: str) -> None:
        """Nothing to do: likewise."""

    def ended(self, seat: int, life: int) -> None:
        process = self._processes.pop((seat, life), None)
        if process is not None:
            if process.exitcode is None:
                # From a fork server the exit status comes a little later.
                process.join(LIMITS.starting.reap_s)
            self._news.append(Exited(seat, life, process.exitcode))
            disown(process)

    def close(self) -> None:
        left = list(self._processes.values())
        self._processes.clear()
        disown(*left)

    def __repr__(self) -> str:
        return f"<Children by {self._context.get_start_method()}, {len(self._processes)} alive>"


def worker_name(seat: int) -> str:
    return f"antifreeze worker {seat}"
