"""Worker processes, each with a private channel and a handle that tells its death.

1. One socket pair and one pidfd a life. Nothing is shared between lives, so whoever dies, nobody
   else is blocked.
2. The main process never blocks on a channel: what a worker does not take yet waits in an outbox,
   bounded by the tickets the core lets out.
3. Death is learnt from the pidfd. What a life had sent before it died is read first. How it died is
   news from its source, which comes a moment earlier or later, or never: that wait is bounded.
4. A forked child closes the ends that belong to the main process, so that no stranger keeps a
   channel open.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import reduction
from typing import Any

from .._core.commands import Force
from .._core.events import (
    EpochBegun,
    ForkUnfit,
    LeasesReturned,
    LifeEnded,
    LifeReady,
    LifeSilent,
    Outcome,
    ParcelsArrived,
    ProgramForked,
)
from .._core.faults import Ending
from .._core.health.memory_growth import Room
from .._core.health.stall_detection import Activity, Sight
from .._core.health.worker_phases import CLEAN, OURS
from .._core.limits import LIMITS, Limits
from .._core.tickets import Errand
from .._linux.clock import monotonic, pause
from .._linux.oom_kills import OomKills
from .._loading.job import Job
from .._reporting.stall_messages import where
from .._reporting.wait_accounting import Usage
from .._transport.descriptors import Descriptor, keep_from_children
from .._transport.framing import Frame, Kind
from .._transport.mapped_slabs import MappedSlabs, Returns
from .._transport.memory import MemoryShort
from .._transport.stack_file import StackFile
from .._transport.status_board import StatusBoard
from .._transport.ticket_codec import encode_tickets
from .._worker.worker_spec import EpochBrief
from ..errors import TransportFailed
from . import orphaned_locks
from .backend_protocol import LocalParcel, Notice
from .batch_arrivals import parcels_in
from .starting.fd_passing import SourceGone
from .starting.multiprocessing_source import MultiprocessingSource
from .starting.start_method import StartMethod, is_ours, torch_context, wish_of
from .starting.worker_source import (
    Born,
    EndedWhileOpening,
    Exited,
    JobOpened,
    JobUnfit,
    NeverGotGoing,
    Orphaned,
    Refused,
    Wanted,
    WorkerSource,
    ending_of,
    exit_in_words,
    worker_name,
)
from .starting.zygote_source import ZygoteSource
from .worker_inspector import WorkerInspector
from .worker_process_view import LONGEST_WAIT_S, WorkerHandle
from .worker_socket import AwayWatch, Line

# Signals by which a crash in native code ends a process.
FATAL = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS}
)
GARBLED = "something in it wrote to its channel: to a descriptor that was not its own"


class ProcessBackend:
    """Lives are processes: of a zygote, or of the multiprocessing context the user gave."""

    def __init__(
        self,
        job: Job,
        context: Any,
        lineage: StartMethod | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        """`lineage`: where the loader's workers come from, if it has had some."""
        self._limits = limits.starting
        self._lines: dict[tuple[int, int], Line] = {}
        self._latest: dict[int, Line] = {}
        self._pids: dict[tuple[int, int], int] = {}  # of all lives; bounded by restarts
        self._unexplained: dict[Line, float] = {}  # ended; until when to wait for an exit status
        self._by_fd: dict[int, Line] = {}
        self._notices: list[Notice] = []
        self._polled: list[tuple[int, int]] = []
        self._poller = select.poll()
        self._waker = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._waker_lock = threading.Lock()  # held for a write or a close, never longer
        self._closed = False
        self._one_got_going = False  # of the present parent of all lives
        self._one_delivered = False  # likewise
        self._shortage = OomKills()
        self._poller.register(self._waker.number, select.POLLIN)
        self._watch = AwayWatch()
        self._returns = Returns()
        try:
            self._status = StatusBoard(reduction.DupFd)
        except MemoryShort as error:
            raise TransportFailed.no_memory_to_begin(error.needed, error.left) from error
        self._source: WorkerSource
        as_torch = torch_context(context)
        if job.torch_draws and as_torch.get_start_method() != "fork":
            self._source = MultiprocessingSource(job, self._status, as_torch)
        elif is_ours(context):
            lineage = lineage or StartMethod(wish_of(context), limits=limits)
            self._source = ZygoteSource(job, self._status, lineage, limits)
        else:
            self._source = MultiprocessingSource(job, self._status, context)
        self._job = job
        self._onlooker = WorkerInspector(self._lines, self._source, job.look_s)
        self._news_fd = self._source.descriptor
        if self._news_fd is not None:
            self._poller.register(self._news_fd, select.POLLIN)
            self._watch.add(self._news_fd)

    def defer(self) -> None:
        self._source.defer()

    def settle(self) -> None:
        self._source.settle()
        self._hear()

    def start(self, seat: int, life: int, brief: EpochBrief) -> None:
        ours, theirs = socket.socketpair()
        keep_from_children(ours)  # before the fork, so that the worker itself does not hold it
        place = self._status.take()
        try:
            line = Line(
                WorkerHandle(worker_name(seat)),
                ours,
                self._status.line(place),
                MappedSlabs(seat, life, self._returns),
            )
        except BaseException:
            ours.close()
            theirs.close()
            raise
        try:
            follows = bool(brief.carried or brief.resume or brief.left)  # it may be long
            short = EpochBrief(brief.epoch, follows=True) if follows else brief
            self._ask(Wanted(seat, life, place, short), theirs, line.trace)
        except BaseException:
            line.close()
            raise
        finally:
            theirs.close()
        self._lines[seat, life] = self._latest[seat] = line
        self._look_at(line, ours.fileno())
        self._watch.mind(line)
        if follows:
            self.begin_epoch(seat, life, brief)
        self._hear()

    def begin_epoch(self, seat: int, life: int, brief: EpochBrief) -> None:
        self._put(seat, life, Kind.BEGIN_EPOCH, pickle.dumps(brief))

    def send(self, seat: int, life: int, errands: Sequence[Errand]) -> None:
        line = self._lines.get((seat, life))
        if line is None:
            return
        if line.shelf.lacking or any(errand.lease.renewed for errand in errands):
            errands = [line.renewed(errand) for errand in errands]
        try:
            body = encode_tickets(errands)
        except Exception as error:  # indices of the user's own making that cannot be pickled
            if len(errands) > 1:
                for errand in errands:
                    self.send(seat, life, (errand,))
                return
            number = errands[0].ticket.number
            event = ParcelsArrived(seat, life, (number,), Outcome.FAILED)
            parcel = LocalParcel(number, Outcome.FAILED, error)
            self._notices.append(Notice(event, (parcel,)))
            return
        self._put(seat, life, Kind.TICKETS, body)

    def stop(self, seat: int, life: int) -> None:
        if (line := self._lines.get((seat, life))) is not None:
            line.told_to_leave = True
            line.go_on()
        self._put(seat, life, Kind.STOP, b"")

    def expect_turn(self) -> None:
        self._source.expect_turn()

    def kill(
        self, seat: int, life: int, force: Force, *, doubted: bool = False, unfit: str = ""
    ) -> None:
        line = self._lines.get((seat, life))
        if line is None:
            return
        self._hear_of(line)
        line.worker.end(force)  # or when it is born
        if force is Force.KILL and line.pidfd is None:
            self._source.forsake()  # the next life must not be asked of it
        silent = force is Force.KILL and not (line.told_to_leave or self._one_got_going)
        if unfit:
            self._source.turn(f"worker {seat} ({self.label(seat, life)}) {unfit}")
        elif silent or (doubted and not self._one_delivered):
            self._source.report(NeverGotGoing())

    def look(self) -> Sequence[Sight]:
        return self._onlooker.look()

    def room(self) -> Room | None:
        self._shortage.look()
        return self._onlooker.room()

    def examine(self, seat: int, life: int) -> Activity | None:
        return self._onlooker.examine(seat, life)

    def usage(self) -> Sequence[Usage]:
        return self._onlooker.usage()

    def explain(self, seat: int, life: int) -> None:
        self._put(seat, life, Kind.EXPLAIN, b"")

    def release(self, lock: int) -> str:
        return orphaned_locks.release(self._job, lock, forked=self._source.forks)

    def resume(self, seat: int, life: int) -> None:
        self._onlooker.resume(seat, life)

    def abandon(self, seat: int, life: int) -> None:
        line = self._lines.get((seat, life))
        if line is not None:
            self._forget(line)
            if line.pidfd is None:
                self._source.forsake()  # it does not even bring a life into the world

    def wait(self, timeout_s: float | None) -> None:
        if self._notices:
            timeout_s = 0.0
        longest = LONGEST_WAIT_S if timeout_s is None else min(timeout_s, LONGEST_WAIT_S)
        if self._unexplained:
            longest = min(longest, max(0.0, min(self._unexplained.values()) - monotonic()))
        if not longest:
            self._polled = self._poller.poll(0)
            return
        self._status.set_waiting(True)
        try:
            self._polled = self._poller.poll(1000 * longest)
        finally:
            self._status.set_waiting(False)

    def collect(self) -> Sequence[Notice]:
        ended: list[Line] = []
        polled, self._polled = self._polled, []
        for fd, mask in polled:
            if fd == self._waker.number:
                os.eventfd_read(fd)
                continue
            if fd == self._news_fd:
                self._hear()
                continue
            line = self._by_fd.get(fd)
            if line is None:
                continue
            if line.pidfd is not None and fd == line.pidfd.number:
                ended.append(line)
                continue
            if mask & select.POLLOUT:
                line.flush()
                self._mind_outbox(line)
            if mask & ~select.POLLOUT:
                self._read(line)
        for line in ended:
            self._end(line)
        if self._unexplained:
            now = monotonic()
            for line in [line for line, until in self._unexplained.items() if until <= now]:
                self._explain(line, Ending(words="nobody could say how it ended"))
        notices, self._notices = self._notices, []
        return notices

    def returns(self) -> Sequence[LeasesReturned | ProgramForked]:
        return self._returns.collect()

    def watch(self, *, parcels: bool = False) -> AwayWatch:
        if parcels:
            self._watch.look_for_parcels(self._lines.values())
        return self._watch

    def poll_urgent(self) -> None:
        urgent: list[tuple[int, int]] = []
        for fd, mask in self._poller.poll(0):
            line = self._by_fd.get(fd)
            is_end = line is not None and line.pidfd is not None and fd == line.pidfd.number
            if is_end or fd == self._news_fd:
                urgent.append((fd, mask))
            elif mask & select.POLLOUT:
                urgent.append((fd, select.POLLOUT))
        self._polled = urgent

    def wake(self) -> None:
        with self._waker_lock:
            if not self._closed:
                os.eventfd_write(self._waker.number, 1)

    def label(self, seat: int, life: int) -> str:
        pid = self._pids.get((seat, life))
        return "pid unknown" if pid is None else f"pid {pid}"

    def workers(self) -> list[Any]:
        return [self._latest[seat].worker for seat in sorted(self._latest)]

    def await_births(self) -> None:
        give_up = monotonic() + self._limits.birth_s
        poller = select.poll()
        if self._news_fd is not None:
            poller.register(self._news_fd, select.POLLIN)
        while any(line.pidfd is None for line in self._lines.values()):
            left_s = give_up - monotonic()
            if left_s <= 0 or not poller.poll(1000 * left_s):
                return
            self._hear()

    def close(self) -> None:
        for (seat, life), line in list(self._lines.items()):
            line.worker.end(Force.KILL)
            self.abandon(seat, life)
        self._notices.clear()
        with self._waker_lock:
            if self._closed:
                return
            self._closed = True
            self._poller.unregister(self._waker.number)
            if self._news_fd is not None:
                self._poller.unregister(self._news_fd)
            self._waker.close()
            self._watch.close()
        self._source.close()
        self._status.close()

    def __repr__(self) -> str:
        lives = ", ".join(f"{seat}.{life}: {self.label(seat, life)}" for seat, life in self._lines)
        return f"<ProcessBackend {self._source!r}, {lives or 'no lives'}>"

    def _ask(self, wanted: Wanted, channel: socket.socket, trace: StackFile) -> None:
        self._hear()  # if the source is gone, its lives are, and not the one that is asked for now
        try:
            self._source.ask(wanted, channel, trace)
        except SourceGone:  # a moment ago
            self._hear()
            self._source.ask(wanted, channel, trace)

    def _look_at(self, line: Line, fd: int) -> None:
        self._by_fd[fd] = line
        self._poller.register(fd, select.POLLIN)

    def _put(self, seat: int, life: int, kind: Kind, data: bytes) -> None:
        line = self._lines.get((seat, life))
        if line is not None:
            before = bool(line.outbox)
            line.put(kind, data)
            if before or line.outbox:
                self._mind_outbox(line)

    def _mind_outbox(self, line: Line) -> None:
        """Have somebody send the rest when the channel takes it, here or while the loop is away."""
        if line.sock.fileno() in self._by_fd:
            more = select.POLLOUT if line.outbox else 0
            self._poller.modify(line.sock.fileno(), select.POLLIN | more)
            self._watch.mind(line)

    def _read(self, line: Line) -> None:
        try:
            for frame in line.read():
                self._notices.append(self._notice(line, frame))
        except EOFError:
            self._silence(line)
            self._notices.append(Notice(LifeSilent(line.seat, line.life)))
        except Exception:  # what came is none of our messages
            self._silence(line)
            line.garbled = True
            line.worker.end(Force.KILL)
        if line.has_left and not line.garbled:
            line.worker.exitcode = 0
            self._explain(line, ending_of(0))

    def _notice(self, line: Line, frame: Frame) -> Notice:
        seat, life = line.seat, line.life
        if line.unheard:
            return Notice(None)
        if frame.kind is Kind.PARCELS:
            self._one_delivered = True
            return parcels_in(line, frame)
        if frame.kind is Kind.NOTICED:
            return Notice(None, seen=(seat, pickle.loads(frame.body)))
        if frame.kind in (Kind.UNFIT, Kind.OPENED):
            opened = frame.kind is Kind.OPENED
            self._one_got_going = self._one_got_going or opened
            said = pickle.loads(frame.body)
            self._source.report(JobOpened(*said) if opened else JobUnfit(*said))
            return Notice(None)
        if frame.kind is Kind.NEEDS_CLEAN:
            words = pickle.loads(frame.body)
            # Else its error comes next, and is raised.
            turns = line.orphaned is not None or self._source.can_turn
            # What else it says of a map-style dataset's samples holds for no other worker.
            line.unheard = turns and not self._job.streams
            return Notice(ForkUnfit(seat, life, words) if turns else None)
        if frame.kind is Kind.LEFT:
            line.has_left = line.told_to_leave
            return Notice(None)
        if frame.kind is Kind.EPOCH_BEGUN:
            return Notice(EpochBegun(seat, life, pickle.loads(frame.body)))
        if not pickle.loads(frame.body):  # else it has a job to open first
            self._one_got_going = True
        return Notice(LifeReady(seat, life))

    def _end(self, line: Line) -> None:
        with contextlib.suppress(EOFError):
            for frame in () if line.garbled else line.read(to_the_end=True):
                self._notices.append(self._notice(line, frame))
        self._ignore_pidfd(line)
        self._unexplained[line] = monotonic() + self._limits.reap_s
        if line.ending is not None:  # the news came first
            self._explain(line, line.ending)
        elif line.orphaned:
            self._explain(line, line.orphaned)
        else:
            self._source.ended(line.seat, line.life)
            self._hear()

    def _explain(self, line: Line, ending: Ending) -> None:
        """Tell the end of a life, now that it is known how it ended."""
        self._unexplained.pop(line, None)
        if ending is line.orphaned and line.pidfd is not None:
            # Where this process is the first of its container, what lost its parent is its child.
            with contextlib.suppress(OSError):
                os.waitid(os.P_PIDFD, line.pidfd.number, os.WEXITED | os.WNOHANG)
        # Who goes with its parent is not to blame, nor is what it worked on.
        working_on, step = (0, OURS) if ending is line.orphaned else line.status.call
        stack = line.trace.last_words() if ending.signal in FATAL else ()
        words = GARBLED if line.garbled else ending.words
        if ending.exit_code is not None and not words:
            stack = line.trace.exit_stack()
            words = f"sys.exit() was called{where(stack)}" if stack else ""
            ending = replace(ending, called_exit=bool(stack))
        self._forget(line)
        ending = replace(ending, step=step, stack=stack, words=words)
        event = LifeEnded(line.seat, line.life, ending, working_on)
        self._notices.append(Notice(event))

    # ---- news from the source ---------------------------------------------------------------

    def _hear_of(self, line: Line) -> None:
        """Wait a moment for the news of a birth: a life may speak before we are told of it."""
        give_up = monotonic() + self._limits.birth_news_s
        while line.pidfd is None and monotonic() < give_up:
            self._hear()
            pause(self._limits.birth_news_s / 40)

    def _hear(self) -> None:
        for news in self._source.hear():
            if isinstance(news, Orphaned):
                self._orphan(Ending(words=news.words, told=news.told), news.spared)
            else:
                self._take(news)

    def _take(self, news: Born | Refused | Exited) -> None:
        line = self._lines.get((news.seat, news.life))
        match news:
            case Born(pid=pid, pidfd=pidfd) if line is None:  # abandoned before it was born
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(pidfd.number, signal.SIGKILL)
            case Born(pid=pid, pidfd=pidfd) if line is not None:
                line.born(pid, pidfd)
                self._pids[line.seat, line.life] = pid
                self._look_at(line, pidfd.number)
                self._watch.add(pidfd.number)
            case Refused(words=words) if line is not None:
                self._explain(line, Ending(words=words, refused=True))
            case Exited(code=code, peak_bytes=peak_bytes) if line is not None:
                line.worker.exitcode = code
                if code is not None and line.status.call[1] == CLEAN and not line.worker.forced:
                    how = f"a worker (pid {line.worker.pid}) {exit_in_words(code)}"
                    self._source.report(EndedWhileOpening(f"{how} while it opened the dataset"))
                if line.orphaned is None:  # else we have ended it
                    line.ending = self._shortage.explain(ending_of(code), peak_bytes)
                if line in self._unexplained:
                    self._explain(line, line.ending or line.orphaned or ending_of(code))
            case _:
                pass  # of a life that was abandoned

    def _orphan(self, ending: Ending, spared: frozenset[tuple[int, int]]) -> None:
        """Take note that the parent of all present lives but some is gone: they are, or will be."""
        if ending.told or not spared:  # all of them are made anew
            self._one_got_going = self._one_delivered = False
        for line in list(self._lines.values()):
            if line.ending is not None or (line.seat, line.life) in spared:
                continue
            line.orphaned = ending
            if line.pidfd is None or line in self._unexplained:
                self._explain(line, ending)
            else:
                line.worker.end(Force.KILL)  # the kernel does, too

    def _silence(self, line: Line) -> None:
        fd = line.sock.fileno()
        if self._by_fd.pop(fd, None) is not None:
            self._poller.unregister(fd)
            self._watch.remove(fd)

    def _ignore_pidfd(self, line: Line) -> None:
        if line.pidfd is not None and self._by_fd.pop(line.pidfd.number, None) is not None:
            self._poller.unregister(line.pidfd.number)
            self._watch.remove(line.pidfd.number)

    def _forget(self, line: Line) -> None:
        self._lines.pop((line.seat, line.life), None)
        self._unexplained.pop(line, None)
        self._silence(line)
        self._ignore_pidfd(line)
        line.close()
