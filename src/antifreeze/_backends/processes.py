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
import socket
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from .._core.accounts import Timings
from .._core.commands import Force
from .._core.events import EpochBegun, LifeEnded, LifeReady, Outcome, ParcelArrived
from .._core.faults import Ending
from .._core.leases import Lease
from .._core.tickets import Ticket
from .._transport.framing import Frame, FrameReader, Kind, prefix
from .._transport.parcels import ReceivedParcel
from .._worker.main import run
from .._worker.spec import Job, WorkerSpec
from .base import EpochBrief, LocalParcel, Notice

CHUNK = 256 * 1024  # bytes a read
REAP_S = 1.0  # a pidfd tells death before the exit status can be had from a fork server

_lines: weakref.WeakSet[Line] = weakref.WeakSet()  # of this process, to close after a fork


class Line:
    """One life as the main process sees it: its process, its channel, its outbox."""

    def __init__(
        self,
        seat: int,
        life: int,
        process: multiprocessing.process.BaseProcess,
        sock: socket.socket,
    ) -> None:
        self.seat, self.life, self.process, self.sock = seat, life, process, sock
        self.reader = FrameReader()
        self.outbox: deque[memoryview] = deque()
        self.pidfd = os.pidfd_open(process.pid or 0)
        sock.setblocking(False)
        _lines.add(self)

    def put(self, kind: Kind, body: Any) -> None:
        data = pickle.dumps(body, protocol=5)
        self.outbox.append(memoryview(prefix(kind, len(data)) + data))
        self.flush()

    def flush(self) -> None:
        """Send what the channel takes now. Never blocks."""
        while self.outbox:
            try:
                sent = self.sock.send(self.outbox[0])
            except BlockingIOError:
                return
            except OSError:  # the other end is gone; its death is about to be told
                self.outbox.clear()
                return
            if sent < self.outbox[0].nbytes:
                self.outbox[0] = self.outbox[0][sent:]
            else:
                self.outbox.popleft()

    def read(self) -> Iterator[Frame]:
        """Yield every frame that is there. Raises EOFError when the other end is closed."""
        while True:
            try:
                large = self.reader.receive_into()
                if large is not None:
                    count = self.sock.recv_into(large)
                    if not count:
                        raise EOFError
                    yield from self.reader.advance(count)
                    continue
                data, descriptors, flags, _ = socket.recv_fds(
                    self.sock, CHUNK, 1, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError as error:
                raise EOFError from error
            if flags & socket.MSG_CTRUNC and not descriptors:
                descriptors = [-1]  # it could not be installed: too many open files
            if not data:
                raise EOFError
            yield from self.reader.feed(data, descriptors)
            if len(data) < CHUNK and not self.reader.receive_into():
                return

    def close(self) -> None:
        self.sock.close()
        self.reader.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        _lines.discard(self)


def _close_lines_after_fork() -> None:
    for line in list(_lines):
        line.close()


os.register_at_fork(after_in_child=_close_lines_after_fork)


class ProcessBackend:
    """Lives are processes of the given multiprocessing context, or of the program's own."""

    def __init__(self, job: Job, context: Any) -> None:
        self._job = job
        self._context = multiprocessing.get_context() if context is None else context
        self._lines: dict[tuple[int, int], Line] = {}
        self._latest: dict[int, Line] = {}
        self._by_fd: dict[int, Line] = {}
        self._notices: list[Notice] = []
        self._polled: list[tuple[int, int]] = []
        self._poller = select.poll()
        self._waker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poller.register(self._waker, select.POLLIN)

    def start(self, seat: int, life: int, brief: EpochBrief) -> None:
        ours, theirs = socket.socketpair()
        try:
            process = self._context.Process(
                target=run,
                args=(self._spec(seat, life, brief), theirs),
                name=f"antifreeze worker {seat}",
                daemon=True,
            )
            process.start()
            line = Line(seat, life, process, ours)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._lines[seat, life] = self._latest[seat] = line
        for fd in (line.sock.fileno(), line.pidfd):
            self._by_fd[fd] = line
            self._poller.register(fd, select.POLLIN)

    def begin_epoch(self, seat: int, life: int, brief: EpochBrief) -> None:
        self._put(seat, life, Kind.BEGIN_EPOCH, (brief.epoch, brief.shared_seed))

    def send(self, seat: int, life: int, ticket: Ticket, lease: Lease) -> None:
        try:
            self._put(seat, life, Kind.TICKET, (ticket.number, ticket.position, ticket.indices))
        except Exception as error:  # indices of the user's own making that cannot be pickled
            parcel = LocalParcel(Outcome.FAILED, Timings(), error)
            event = ParcelArrived(seat, life, ticket.number, Outcome.FAILED)
            self._notices.append(Notice(event, parcel))

    def stop(self, seat: int, life: int) -> None:
        self._put(seat, life, Kind.STOP, None)

    def kill(self, seat: int, life: int, force: Force) -> None:
        line = self._lines.get((seat, life))
        if line is not None:
            with contextlib.suppress(OSError):
                line.process.kill() if force is Force.KILL else line.process.terminate()

    def abandon(self, seat: int, life: int) -> None:
        line = self._lines.get((seat, life))
        if line is not None:
            self._forget(line)
            # multiprocessing would join it at exit, for ever.
            multiprocessing.process._children.discard(line.process)  # type: ignore[attr-defined]

    def wait(self, timeout_s: float | None) -> None:
        if self._notices:
            timeout_s = 0.0
        self._polled = self._poller.poll(None if timeout_s is None else 1000 * timeout_s)

    def collect(self) -> Sequence[Notice]:
        ended: list[Line] = []
        polled, self._polled = self._polled, []
        for fd, mask in polled:
            if fd == self._waker:
                os.eventfd_read(self._waker)
                continue
            line = self._by_fd.get(fd)
            if line is None:
                continue
            if fd == line.pidfd:
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

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_write(self._waker, 1)

    def label(self, seat: int, life: int) -> str:
        line = self._lines.get((seat, life)) or self._latest.get(seat)
        return "pid unknown" if line is None else f"pid {line.process.pid}"

    def workers(self) -> list[Any]:
        return [self._latest[seat].process for seat in sorted(self._latest)]

    def close(self) -> None:
        for line in list(self._lines.values()):
            self._forget(line)
        if self._waker >= 0:
            self._poller.unregister(self._waker)
            os.close(self._waker)
            self._waker = -1

    def _spec(self, seat: int, life: int, brief: EpochBrief) -> WorkerSpec:
        by_server = self._context.get_start_method() == "forkserver"
        return WorkerSpec(
            job=self._job,
            seat=seat,
            life=life,
            epoch=brief.epoch,
            shared_seed=brief.shared_seed,
            main_pid=os.getpid(),
            dies_with_parent=by_server or threading.current_thread() is threading.main_thread(),
        )

    def _put(self, seat: int, life: int, kind: Kind, body: Any) -> None:
        line = self._lines.get((seat, life))
        if line is not None:
            line.put(kind, body)
            self._mind_outbox(line)

    def _mind_outbox(self, line: Line) -> None:
        if line.sock.fileno() in self._by_fd:
            more = select.POLLOUT if line.outbox else 0
            self._poller.modify(line.sock.fileno(), select.POLLIN | more)

    def _read(self, line: Line) -> None:
        try:
            for frame in line.read():
                self._notices.append(self._notice(line, frame))
        except EOFError:
            # A worker that lives on without its channel is of no use; one that died is told by
            # its pidfd.
            self._silence(line)
            self.kill(line.seat, line.life, Force.KILL)

    def _notice(self, line: Line, frame: Frame) -> Notice:
        seat, life = line.seat, line.life
        if frame.kind is Kind.PARCEL:
            parcel = ReceivedParcel.decode(frame)
            return Notice(ParcelArrived(seat, life, parcel.number, parcel.outcome), parcel)
        if frame.kind is Kind.EPOCH_BEGUN:
            return Notice(EpochBegun(seat, life, pickle.loads(frame.body)))
        return Notice(LifeReady(seat, life))

    def _end(self, line: Line) -> None:
        with contextlib.suppress(EOFError):
            for frame in line.read():
                self._notices.append(self._notice(line, frame))
        line.process.join(REAP_S)
        code = line.process.exitcode
        if code is None:
            ending = Ending(words="its exit status was taken by another wait in this program")
        elif code < 0:
            ending = Ending(signal=-code)
        else:
            ending = Ending(exit_code=code)
        self._forget(line)
        self._notices.append(Notice(LifeEnded(line.seat, line.life, ending)))

    def _silence(self, line: Line) -> None:
        fd = line.sock.fileno()
        if self._by_fd.pop(fd, None) is not None:
            self._poller.unregister(fd)

    def _forget(self, line: Line) -> None:
        self._lines.pop((line.seat, line.life), None)
        self._silence(line)
        if self._by_fd.pop(line.pidfd, None) is not None:
            self._poller.unregister(line.pidfd)
        line.close()
