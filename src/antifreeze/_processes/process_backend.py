"""The backend that runs: worker processes, each with a private channel and a pidfd.

1. One socket pair and one pidfd a worker process. Nothing is shared between them, so whoever dies,
   nobody else is blocked.
2. The main process never blocks on a channel: what a worker does not take yet waits in an outbox,
   bounded by the tickets the core lets out.
3. A death is learnt from the pidfd (`worker_poller`). What the worker had sent before it died is
   read first. How it died: `worker_endings`.
4. A forked child closes the ends that belong to the main process, so that no stranger keeps a
   channel open.
"""

from __future__ import annotations

import contextlib
import pickle
import select
import signal
import socket
from collections.abc import Sequence
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
    ProgramForked,
)
from .._core.faults import Ending
from .._core.health.memory_growth import Room
from .._core.health.stall_detection import Activity, Sight
from .._core.limits import LIMITS, Limits
from .._core.tickets import Errand
from .._linux.clock import monotonic, pause
from .._loading.job import Job
from .._reporting.wait_totals import Usage
from .._transport.descriptors import keep_from_children
from .._transport.framing import Frame, Kind
from .._transport.mapped_slabs import MappedSlabs, Returns
from .._transport.memory import MemoryShort
from .._transport.stack_file import StackFile
from .._transport.status_board import StatusBoard
from .._transport.ticket_codec import encode_tickets
from .._worker.worker_spec import EpochBrief
from ..errors import TransportFailed
from . import orphaned_locks
from .backend_protocol import Notice
from .batch_arrivals import failed_to_send, parcels_in
from .starting.fd_passing import SourceGone
from .starting.source_choice import choose_source
from .starting.start_method import StartMethod
from .starting.worker_source import (
    Born,
    Exited,
    JobOpened,
    JobUnfit,
    NeverGotGoing,
    Orphaned,
    Refused,
    Wanted,
    worker_name,
)
from .worker_endings import WorkerEndings, while_opening
from .worker_inspector import WorkerInspector
from .worker_poller import ENDED, AwayWatch, WorkerPoller
from .worker_process_view import LONGEST_WAIT_S, WorkerHandle
from .worker_socket import Line


class ProcessBackend:
    """Does with processes what `Backend` asks for. They come from a `WorkerSource`."""

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
        self._notices: list[Notice] = []
        self._one_got_going = False  # of the present parent of all lives
        self._one_delivered = False  # likewise
        self._endings = WorkerEndings(limits.starting)
        self._returns = Returns()
        try:
            self._status = StatusBoard(reduction.DupFd)
        except MemoryShort as error:
            raise TransportFailed.no_memory_to_begin(error.needed, error.left) from error
        self._job = job
        self._source = choose_source(job, self._status, context, lineage, limits)
        self._inspector = WorkerInspector(self._lines, self._source, job.look_s)
        self._poller = WorkerPoller(self._source.descriptor)

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
        self._poller.add_channel(line)
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
            self._notices.append(failed_to_send(seat, life, errands[0], error))
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
        return self._inspector.look()

    def room(self) -> Room | None:
        self._endings.look_for_oom_kills()
        return self._inspector.room()

    def examine(self, seat: int, life: int) -> Activity | None:
        return self._inspector.examine(seat, life)

    def usage(self) -> Sequence[Usage]:
        return self._inspector.usage()

    def explain(self, seat: int, life: int) -> None:
        self._put(seat, life, Kind.EXPLAIN, b"")

    def release(self, lock: int) -> str:
        return orphaned_locks.release(self._job, lock, forked=self._source.forks)

    def resume(self, seat: int, life: int) -> None:
        self._inspector.resume(seat, life)

    def abandon(self, seat: int, life: int) -> None:
        line = self._lines.get((seat, life))
        if line is not None:
            self._forget(line)
            if line.pidfd is None:
                self._source.forsake()  # it was never born

    def wait(self, timeout_s: float | None) -> None:
        if self._notices:
            timeout_s = 0.0
        longest = LONGEST_WAIT_S if timeout_s is None else min(timeout_s, LONGEST_WAIT_S)
        if unexplained := self._endings.unexplained:
            longest = min(longest, max(0.0, min(unexplained.values()) - monotonic()))
        if not longest:
            self._poller.poll(0)
            return
        self._status.set_waiting(True)
        try:
            self._poller.poll(longest)
        finally:
            self._status.set_waiting(False)

    def collect(self) -> Sequence[Notice]:
        for line, mask in self._poller.ready():
            if line is None:
                self._hear()
            elif mask == ENDED:
                self._end(line)
            else:
                if mask & select.POLLOUT:
                    line.flush()
                    self._poller.outbox_changed(line)
                if mask & ~select.POLLOUT:
                    self._read(line)
        if self._endings.unexplained:
            for line, event in self._endings.overdue():
                self._over(line, event)
        notices, self._notices = self._notices, []
        return notices

    def returns(self) -> Sequence[LeasesReturned | ProgramForked]:
        return self._returns.collect()

    def watch(self, *, parcels: bool = False) -> AwayWatch:
        if parcels:
            self._poller.watch.look_for_parcels(self._lines.values())
        return self._poller.watch

    def poll_urgent(self) -> None:
        self._poller.poll_urgent()

    def wake(self) -> None:
        self._poller.wake()

    def label(self, seat: int, life: int) -> str:
        pid = self._pids.get((seat, life))
        return "pid unknown" if pid is None else f"pid {pid}"

    def workers(self) -> list[Any]:
        return [self._latest[seat].worker for seat in sorted(self._latest)]

    def await_births(self) -> None:
        give_up = monotonic() + self._limits.birth_s
        poller = select.poll()
        if (news := self._source.descriptor) is not None:
            poller.register(news, select.POLLIN)
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
        if self._poller.is_closed:
            return
        self._poller.close()
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

    def _put(self, seat: int, life: int, kind: Kind, data: bytes) -> None:
        line = self._lines.get((seat, life))
        if line is not None:
            before = bool(line.outbox)
            line.put(kind, data)
            if before or line.outbox:
                self._poller.outbox_changed(line)

    def _read(self, line: Line) -> None:
        try:
            for frame in line.read():
                self._notices.append(self._notice(line, frame))
        except EOFError:
            self._poller.remove_channel(line)
            self._notices.append(Notice(LifeSilent(line.seat, line.life)))
        except Exception:  # what came is none of our messages
            self._poller.remove_channel(line)
            line.garbled = True
            line.worker.end(Force.KILL)
        if line.has_left and not line.garbled:
            self._over(line, self._endings.left(line))

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
        self._poller.remove_pidfd(line)
        if not self._over(line, self._endings.seen(line)):
            self._source.ended(line.seat, line.life)
            self._hear()

    def _over(self, line: Line, event: LifeEnded | None) -> bool:
        """Let go of a worker, if it is known how it ended; return whether it is."""
        if event is not None:
            self._forget(line)
            self._notices.append(Notice(event))
        return event is not None

    def _hear_of(self, line: Line) -> None:
        """Wait a moment for the news of a birth: a worker may speak before we are told of it."""
        give_up = monotonic() + self._limits.birth_news_s
        while line.pidfd is None and monotonic() < give_up:
            self._hear()
            pause(self._limits.birth_news_s / 40)

    def _hear(self) -> None:
        for news in self._source.hear():
            if isinstance(news, Orphaned):
                self._orphan(news)
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
                self._poller.add_pidfd(line, pidfd)
            case Refused(words=words) if line is not None:
                self._over(line, self._endings.refused(line, words))
            case Exited() if line is not None:
                if report := while_opening(line, news.code):
                    self._source.report(report)
                self._over(line, self._endings.exited(line, news))
            case _:
                pass  # of a life that was abandoned

    def _orphan(self, news: Orphaned) -> None:
        if news.told or not news.spared:  # all of them are made anew
            self._one_got_going = self._one_delivered = False
        ending = Ending(words=news.words, told=news.told)
        for line in list(self._lines.values()):
            if (line.seat, line.life) not in news.spared:
                self._over(line, self._endings.orphaned(line, ending))

    def _forget(self, line: Line) -> None:
        self._lines.pop((line.seat, line.life), None)
        self._endings.forget(line)
        self._poller.remove_channel(line)
        self._poller.remove_pidfd(line)
        line.close()
