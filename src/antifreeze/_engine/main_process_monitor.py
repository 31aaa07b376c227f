"""A thread that says what keeps loops waiting in this very process, where nobody else could.

1. There is one for the whole program, while there are loops that may be in the user's code here.
   It keeps none of them alive, holds no lock while it looks, and ends within a second of the last
   of them, or with the program; a forked child has none.
2. A loop says where it is in plain stores: nothing that could wait, and next to nothing a batch.
3. It needs the interpreter's lock: while code of C keeps that, nobody can look.
4. It looks once a second. Where samples are loaded here that are worth it, twenty times: which
   sample it is, and at which line of the program (`_loading/line_profiler.py`).
5. It answers those who ask from outside how the loaders are (`_engine/attach_server.py`), as long
   as there are workers, too.
6. Under `antifreeze run` it writes now and then how the loaders are of a process that the script
   has started (`_reporting/process_summaries.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .._core.health.main_process_stalls import MainProcessCall, MainProcessCalls
from .._core.health.stall_detection import Activity, StackLine
from .._core.health.worker_phases import OURS, SAMPLER
from .._core.limits import LIMITS, Limits
from .._core.tickets import Ticket
from .._linux import platform_support
from .._linux.clock import monotonic
from .._loading import line_profiler
from .._loading.line_profiler import SamplingProfiler
from .._processes import process_activity
from .._reporting import process_summaries, stall_messages
from .._reporting.log import logger
from .._reporting.wait_totals import Accounts
from .._transport import own_frames
from .._worker import parent_watch, thread_start
from .attach_server import AttachServer

CHEAP_S = 0.001  # a batch of one sample: it needs no look to be found, nor is it worth one
# Whose frames, innermost, mean that workers are waited for: they are told of by others.
_OF_WORKERS = tuple(map(own_frames.installed_path, own_frames.WAITS_FOR_WORKERS))

_GENERATOR = inspect.CO_GENERATOR
FileOf = Callable[[int, Ticket], str]

_numbers = itertools.count(1)
_posts: dict[int, weakref.ref[Post]] = {}
_with_workers: weakref.WeakSet[Any] = weakref.WeakSet()  # drivers; `closed` says when they are not


class Post:
    """Where one loop is. Written by the loop, in whatever thread it runs; read by the bystander."""

    __slots__ = (
        "__weakref__",
        "_limits",
        "_reference",
        "indices",
        "number",
        "position",
        "steps",
        "task",
        "thread",
    )

    def __init__(self, step: int = OURS, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self.steps: list[int] = [
            step
        ]  # see `_core/health/worker_phases.py`; a list, as `Fetcher` writes into it
        self.position = 0  # of the batch
        self.indices: Any = None  # of the batch; of no meaning while the sampler is asked
        self.thread = self.task = 0
        self.settle()
        self.number = next(_numbers)
        self._reference = weakref.ref(self, self._dropped(self.number))
        self.enter()

    def enter(self) -> None:
        """Be looked at, from now on."""
        _posts[self.number] = self._reference
        _thread.start(self._limits)

    @staticmethod
    def _dropped(number: int) -> Any:
        return lambda _: _posts.pop(number, None)

    def settle(self) -> None:
        """Take note of the present thread. Costs a system call: if it is another than before."""
        self.thread, self.task = threading.get_ident(), threading.get_native_id()

    def leave(self) -> None:
        """Be looked at no more."""
        _posts.pop(self.number, None)

    def __repr__(self) -> str:
        return f"<Post of thread {self.task}, batch {self.position}, step {self.steps[0]}>"


class LoadingPost(Post):
    """Where a loop is that loads its batches itself."""

    __slots__ = ("_accounts", "_away", "_away_since", "file_of", "looks")

    def __init__(
        self,
        accounts: Accounts,
        step: int = OURS,
        file_of: FileOf = lambda step, ticket: "",
        limits: Limits = LIMITS,
    ) -> None:
        """`file_of` returns the file of the sample at a step of a batch, without running code of
        the user's: it is called in another thread."""
        self._accounts, self.looks, self.file_of = accounts, SamplingProfiler(), file_of
        self._away, self._away_since = -1, 0.0  # before which batch, and since when
        super().__init__(step, limits)
        self.rouse()

    def rouse(self) -> None:
        """Have it looked at closely, soon, if it is worth it."""
        if self.is_worth_looks:
            _thread.rouse()

    @property
    def is_worth_looks(self) -> bool:
        """Say whether to look at it closely: not at batches of one cheap sample, one of which would
        feel it."""
        work = self._accounts.work
        if work.parcels and work.samples <= work.parcels:
            return work.fetch_s > CHEAP_S * work.parcels
        return True

    def look(self, now: float) -> bool:
        """Look at it closely, if it is worth it: whether it is, is the answer."""
        if not self.is_worth_looks:
            return False
        position, step = self.position, self.steps[0]
        if step == OURS:
            if position != self._away:
                self._away, self._away_since = position, now
            return now - self._away_since < self._limits.looks.loop_away_s
        self._away = -1
        if position == self.position:  # else it has gone on meanwhile
            self.looks.note(position + 1, step)
        return True


class Asked:
    """A sampler's iterator, made when it is first asked, and looked at while it is asked."""

    def __init__(self, make: Callable[[], Iterator[Any]], limits: Limits = LIMITS) -> None:
        self._make, self._limits = make, limits
        self._sampler: Iterator[Any] | None = None
        self._post: Post | None = None  # when it is asked: workers were forked before that

    def __iter__(self) -> Asked:
        return self

    def attend(self) -> Post:
        """Have it looked at from now on. What a signal handler raises here is no error of the
        sampler's, so whoever tells these apart calls this first."""
        post = self._post
        if post is None:
            post = self._post = Post(limits=self._limits)
        elif post.thread != threading.get_ident():
            post.settle()
        return post

    def __next__(self) -> Any:
        post = self.attend()
        post.steps[0] = SAMPLER
        try:
            if self._sampler is None:
                self._sampler = self._make()
            return next(self._sampler)
        except StopIteration:
            post.leave()
            raise
        finally:
            post.steps[0] = OURS
            post.position += 1


@contextlib.contextmanager
def making_iterator(sampler: Any, limits: Limits = LIMITS) -> Iterator[None]:
    """Look at the sampler while its iterator is made, if that is more than to make a generator."""
    post = None if makes_generator(sampler) else Post(SAMPLER, limits)
    try:
        yield
    finally:
        if post is not None:
            post.leave()


def makes_generator(sampler: Any) -> bool:
    """Whether `iter()` of a sampler only makes a generator, so that nothing can take long."""
    try:
        return bool(type(sampler).__iter__.__code__.co_flags & _GENERATOR)
    except AttributeError:
        return False


class _Thread:
    """The thread, if there is need of one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a collection in the middle may come here again
        self._wake = threading.Event()
        self._limits = LIMITS  # of the loop that came last: all loops of a program have the same
        self._calls = MainProcessCalls()  # for the whole program: nothing is said twice soon
        self._runs: threading.Thread | None = None
        self._rests = False  # until its next look at everything, if nobody wakes it
        self.server: AttachServer | None = None
        self._ending = False

    def start(self, limits: Limits = LIMITS) -> None:
        """See to it that it runs."""
        with self._lock:
            if limits is not self._limits:
                self._limits, self._calls = limits, MainProcessCalls(limits.stalls)
                self._wake.set()  # it may be about to sleep for longer than these allow
            if self._runs is not None or self._ending or platform_support.serves_a_loader:
                return
            thread = threading.Thread(target=self._run, name="antifreeze-bystander", daemon=True)
            self._runs = thread
            try:
                thread_start.start(thread, limits.starting)
            finally:
                if thread.ident is None:  # the machine gives none, or a signal handler raised
                    self._runs = None

    def rest(self) -> None:
        """Have it see whether it is needed, now."""
        self._wake.set()

    def rouse(self) -> None:
        """Have it look closely, soon."""
        if self._rests:
            self._wake.set()

    def end(self) -> None:
        """End it, with the program: who writes when the interpreter goes may crash it."""
        self._ending = True
        self._wake.set()
        if (thread := self._runs) is not None and thread.is_alive():
            thread.join(self._limits.looks.main_process_join_s)

    def _run(self) -> None:
        parent_watch.name_thread()
        self.server = server = AttachServer()
        try:
            self._look_after_all(server)
        finally:
            server.close()
        if not self._ending:  # else the last word is written soon
            process_summaries.refresh(due_s=0.0)

    def _look_after_all(self, server: AttachServer) -> None:
        turn, looked_at = 0, monotonic()
        while True:  # bounded by the loops there are
            self._rests = True  # first: a loop that comes now is seen, or sees that
            turn = (turn + 1) % line_profiler.LINE_EVERY
            self._rests = not look_closely(now := monotonic(), lines=turn == 0)
            look_at = looked_at + self._limits.looks.main_process_s
            self._wake.wait(max(0.0, look_at - now) if self._rests else line_profiler.LOOK_S)
            self._wake.clear()
            with self._lock:  # or a loop might come that relies on a thread about to end
                if self._ending or not (_posts or _any_workers()):
                    server.close()
                    self._runs = None
                    return
            if (now := monotonic()) < looked_at + self._limits.looks.main_process_s:
                continue
            looked_at = now
            try:
                look(self._calls, now)
                server.serve()
                process_summaries.refresh()
            except Exception:
                logger.debug("antifreeze: looking at this process failed", exc_info=True)


def stay_for(driver: Any, limits: Limits = LIMITS) -> None:
    """Be there to be asked for as long as this one has workers."""
    _with_workers.add(driver)
    _thread.start(limits)


def _any_workers() -> bool:
    try:
        return any(not driver.closed for driver in _with_workers)
    except RuntimeError:  # one was dropped meanwhile
        return True


def look_closely(now: float, *, lines: bool = False) -> bool:
    """Look at the samples that are loaded here, and at which lines, if so told. Say whether some of
    them are worth it."""
    posts = [post for ref in list(_posts.values()) if isinstance(post := ref(), LoadingPost)]
    worth = [post for post in posts if post.look(now)]
    if lines and any(post.steps[0] != OURS for post in worth):
        line_profiler.at_any_moment()
        for post in worth:
            post.looks.note_line(post.steps[0], sys._current_frames().get(post.thread))
    return bool(worth)


def look(calls: MainProcessCalls, now: float) -> None:
    """Look at all loops, and tell what is to be told."""
    posts = {number: post for number, ref in list(_posts.items()) if (post := ref()) is not None}
    told = [
        MainProcessCall(n, post.thread, post.position, post.steps[0]) for n, post in posts.items()
    ]
    for number in calls.seen(told, now):
        post = posts[number]
        stack = _stack(sys._current_frames().get(post.thread))
        if stack is None:
            continue
        activity = process_activity.of_thread(post.task, stack)
        if activity is None or _waits_for_people(stack, activity):
            continue
        stall = calls.examined(number, activity, now)
        if stall is not None and (stall.ticket, stall.step) == (post.position + 1, post.steps[0]):
            ticket = Ticket(stall.ticket, 0, post.position, post.indices)
            file = post.file_of(stall.step, ticket) if isinstance(post, LoadingPost) else ""
            stall_messages.tell_own(stall, ticket, f"(file: {file})" if file else "")


def _stack(frame: FrameType | None) -> tuple[StackLine, ...] | None:
    """Give what a loop's thread is in, innermost first, as far as it is not ours; all of it if we
    are the innermost. None if it waits for workers."""
    found: list[StackLine] = []
    ours: int | None = None
    while frame is not None and len(found) < LIMITS.looks.stack_frames:
        code = frame.f_code
        if ours is None and code.co_filename.startswith(own_frames.HERE):
            if code.co_filename.startswith(_OF_WORKERS):
                return None
            ours = len(found)
        found.append(StackLine(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(found[:ours] if ours else found)


def _waits_for_people(stack: tuple[StackLine, ...], activity: Activity) -> bool:
    """Say whether somebody sits there: in a debugger, or at a prompt."""
    debugs = any(os.path.basename(line.file) in ("bdb.py", "pdb.py") for line in stack)
    debugs = debugs or any("pydevd" in line.file or "debugpy" in line.file for line in stack)
    return debugs or activity.waits_for.startswith(("reading /dev/pts/", "reading /dev/tty"))


def rest() -> None:
    """Have the thread see now whether it is needed. For tests."""
    _thread.rest()


def _forget_parent() -> None:
    """In a forked child: its loops, if it goes on with them, are looked at by nobody."""
    global _thread
    _posts.clear()
    _with_workers.clear()
    if _thread.server is not None:
        _thread.server.close()
    _thread = _Thread()


_thread = _Thread()
atexit.register(lambda: _thread.end())
os.register_at_fork(after_in_child=_forget_parent)
