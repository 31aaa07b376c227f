"""Worker processes, each with a private channel and a handle that tells its death.

1. One socket pair and one pidfd a life. Nothing is shared between lives, so whoever dies, nobody
   else is blocked.
2. The main process never blocks on a channel: what a worker does not take yet waits in an outbox,
   bounded by the tickets the core lets out.
3. Death is learnt from the pidfd. What a life had sent before it died is read first.
4. A forked child closes the ends that belong to the main process, so that no stranger keeps a
   channel open.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.process
import os
import pickle
import select
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import reduction
from typing import Any

from .._core.commands import Force
from .._core.events import (
    EpochBegun,
    LeasesReturned,
    LifeEnded,
    LifeReady,
    LifeSilent,
    Outcome,
    ParcelsArrived,
    ProgramForked,
)
from .._core.faults import Ending
from .._core.tickets import Errand
from .._transport.descriptors import Descriptor, keep_from_children
from .._transport.framing import Frame, Kind
from .._transport.memory import MemoryShort
from .._transport.parcels import Bundle, ReceivedParcel
from .._transport.shelf import Returns, SlabView
from .._transport.status import StatusBoard
from .._transport.tickets import encode_tickets
from .._worker.main import run
from .._worker.spec import Job, WorkerSpec
from ..errors import TransportFailed
from .base import EpochBrief, LocalParcel, Notice
from .lines import AwayWatch, Line

REAP_S = 1.0  # from a fork server the exit status comes a little later than the death
LONGEST_WAIT_S = 3600.0  # what poll takes has a limit; waiting again costs nothing


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Keep Ctrl-C waiting for a moment: in the middle of a fork it would be lost, or hit the child.

    The worker starts with SIGINT blocked and unblocks it when it knows what to do with it. The
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


class ProcessBackend:
    """Lives are processes of the given multiprocessing context, or of the program's own."""

    def __init__(self, job: Job, context: Any) -> None:
        self._job = job
        self._context = multiprocessing.get_context() if context is None else context
        self._lines: dict[tuple[int, int], Line] = {}
        self._latest: dict[int, Line] = {}
        self._pids: dict[tuple[int, int], int | None] = {}  # of all lives; bounded by restarts
        self._by_fd: dict[int, Line] = {}
        self._notices: list[Notice] = []
        self._polled: list[tuple[int, int]] = []
        self._poller = select.poll()
        self._waker = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._waker_lock = threading.Lock()  # held for a write or a close, never longer
        self._closed = False
        self._poller.register(self._waker.number, select.POLLIN)
        self._watch = AwayWatch()
        self._returns = Returns()
        inherited = self._context.get_start_method() == "fork"
        try:
            self._status = StatusBoard(None if inherited else reduction.DupFd)
        except MemoryShort as error:
            raise TransportFailed.no_memory_to_begin(error.needed, error.left) from error

    def start(self, seat: int, life: int, brief: EpochBrief) -> None:
        ours, theirs = socket.socketpair()
        keep_from_children(ours)  # before the fork, so that the worker itself does not hold it
        spec = self._spec(seat, life, brief)
        process = self._context.Process(
            target=run,
            args=(spec, theirs),
            name=f"antifreeze worker {seat}",
            daemon=True,
        )
        try:
            with _without_interrupts():
                process.start()
            line = Line(spec, process, ours, self._returns)
            self._watch.add(line)
        except BaseException:
            ours.close()
            if process.pid is not None:  # it runs, and nobody would ever hear of it
                process.kill()
                process.join(REAP_S)
            raise
        finally:
            theirs.close()
        self._lines[seat, life] = self._latest[seat] = line
        self._pids[seat, life] = process.pid
        for fd in (line.sock.fileno(), line.pidfd.number):
            self._by_fd[fd] = line
            self._poller.register(fd, select.POLLIN)

    def begin_epoch(self, seat: int, life: int, brief: EpochBrief) -> None:
        self._put(seat, life, Kind.BEGIN_EPOCH, pickle.dumps((brief.epoch, brief.shared_seed)))

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
        self._put(seat, life, Kind.STOP, b"")

    def kill(self, seat: int, life: int, force: Force) -> None:
        line = self._lines.get((seat, life))
        if line is not None:
            with contextlib.suppress(OSError):
                line.process.kill() if force is Force.KILL else line.process.terminate()

    def abandon(self, seat: int, life: int) -> None:
        line = self._lines.get((seat, life))
        if line is not None:
            self._forget(line)

    def wait(self, timeout_s: float | None) -> None:
        if self._notices:
            timeout_s = 0.0
        longest = LONGEST_WAIT_S if timeout_s is None else min(timeout_s, LONGEST_WAIT_S)
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
            line = self._by_fd.get(fd)
            if line is None:
                continue
            if fd == line.pidfd.number:
                ended.append(line)
                continue
            if mask & select.POLLOUT:
                line.flush()
                self._mind_outbox(line)
            if mask & ~select.POLLOUT:
                self._read(line)
        for line in ended:
            self._end(line)
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
            if line is not None and fd == line.pidfd.number:
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
        return [self._latest[seat].process for seat in sorted(self._latest)]

    def close(self) -> None:
        for seat, life in list(self._lines):
            self.kill(seat, life, Force.KILL)
            self.abandon(seat, life)
        self._notices.clear()
        with self._waker_lock:
            if not self._closed:
                self._closed = True
                self._poller.unregister(self._waker.number)
                self._waker.close()
                self._watch.close()
                self._status.close()

    def __repr__(self) -> str:
        lives = ", ".join(f"{seat}.{life}: {self.label(seat, life)}" for seat, life in self._lines)
        return f"<ProcessBackend {self._context.get_start_method()}, {lives or 'no lives'}>"

    def _spec(self, seat: int, life: int, brief: EpochBrief) -> WorkerSpec:
        by_server = self._context.get_start_method() == "forkserver"
        return WorkerSpec(
            job=self._job,
            seat=seat,
            life=life,
            epoch=brief.epoch,
            shared_seed=brief.shared_seed,
            main_pid=os.getpid(),
            status=self._status.line(),
            dies_with_parent=by_server or threading.current_thread() is threading.main_thread(),
        )

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

    def _notice(self, line: Line, frame: Frame) -> Notice:
        seat, life = line.seat, line.life
        if frame.kind is Kind.PARCELS:
            return self._parcels(line, frame)
        if frame.kind is Kind.EPOCH_BEGUN:
            return Notice(EpochBegun(seat, life, pickle.loads(frame.body)))
        return Notice(LifeReady(seat, life))

    def _parcels(self, line: Line, frame: Frame) -> Notice:
        bundle = Bundle.decode(frame.body)
        outcome, timings, shelf = bundle.outcome, bundle.timings, line.shelf
        if frame.descriptor is not None or frame.lost:
            slot, _, size = bundle.marks[0]
            shelf.put(slot, frame.descriptor, size)
        slab_bytes = 0
        views: list[SlabView | None] = []
        for slot, generation, size in bundle.marks:
            views.append(shelf.view(slot, generation))
            slab_bytes += size
        slabs = views or [None] * len(bundle.parcels)
        parcels = [
            ReceivedParcel(number, outcome, packed, slab)
            for (number, packed), slab in zip(bundle.parcels, slabs, strict=True)
        ]
        event = ParcelsArrived(
            line.seat,
            line.life,
            tuple([number for number, _ in bundle.parcels]),
            outcome,
            timings.fetch_s + timings.collate_s + timings.pack_s,
            bool(views),
            slab_bytes,
        )
        return Notice(event, parcels, timings)

    def _end(self, line: Line) -> None:
        with contextlib.suppress(EOFError):
            for frame in line.read(to_the_end=True):
                self._notices.append(self._notice(line, frame))
        code = line.process.exitcode
        if code is None:
            line.process.join(REAP_S)
            code = line.process.exitcode
        if code is None:
            ending = Ending(words="its exit status was taken by another wait in this program")
        elif code < 0:
            ending = Ending(signal=-code)
        else:
            ending = Ending(exit_code=code)
        self._forget(line)
        event = LifeEnded(line.seat, line.life, ending, line.status.working_on)
        self._notices.append(Notice(event))

    def _silence(self, line: Line) -> None:
        fd = line.sock.fileno()
        if self._by_fd.pop(fd, None) is not None:
            self._poller.unregister(fd)
            self._watch.remove(fd)

    def _forget(self, line: Line) -> None:
        self._lines.pop((line.seat, line.life), None)
        self._silence(line)
        if self._by_fd.pop(line.pidfd.number, None) is not None:
            self._poller.unregister(line.pidfd.number)
            self._watch.remove(line.pidfd.number)
        line.close()
