"""What a backend waits for: the channels and ends of its workers, news of their source, and `wake`.

The loop waits in `WorkerPoller.poll`. While it is away a thread waits in `AwayWatch`, for the same
descriptors, as far as they should not wait until the loop is back.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterable, Iterator

from .._transport.descriptors import Descriptor, keep_from_children
from .worker_socket import Line

ENDED = 0  # instead of a mask: `poll` never returns it


class WorkerPoller:
    """All descriptors of one backend that something may come from."""

    def __init__(self, news: int | None) -> None:
        """`news`: becomes readable when the source of workers has news, if there is such a one."""
        self.watch = AwayWatch()
        self.is_closed = False
        self._by_fd: dict[int, Line] = {}
        self._found: list[tuple[int, int]] = []
        self._poll = select.poll()
        self._waker = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._waker_lock = threading.Lock()  # held for a write or a close, never longer
        self._poll.register(self._waker.number, select.POLLIN)
        self._news = news
        if news is not None:
            self._poll.register(news, select.POLLIN)
            self.watch.add(news)

    def poll(self, timeout_s: float) -> None:
        """Wait until there is something, or the time is over; `ready` then yields it."""
        self._found = self._poll.poll(1000 * timeout_s)

    def poll_urgent(self) -> None:
        """Look, without waiting, for what should not wait until the loop is back."""
        urgent: list[tuple[int, int]] = []
        for fd, mask in self._poll.poll(0):
            line = self._by_fd.get(fd)
            if fd == self._news or (line is not None and _is_pidfd(fd, line)):
                urgent.append((fd, mask))
            elif mask & select.POLLOUT:
                urgent.append((fd, select.POLLOUT))
        self._found = urgent

    def ready(self) -> Iterator[tuple[Line | None, int]]:
        """Yield what was found, once: a worker, and the mask of its channel or `ENDED`; None for
        news. Ends come last. A worker that was removed meanwhile is left out."""
        found, self._found = self._found, []
        ended: list[int] = []
        for fd, mask in found:
            line = self._by_fd.get(fd)
            if line is None:
                if fd == self._waker.number:
                    os.eventfd_read(fd)
                elif fd == self._news:
                    yield None, mask
            elif _is_pidfd(fd, line):
                ended.append(fd)
            else:
                yield line, mask
        for fd in ended:
            if (line := self._by_fd.get(fd)) is not None:
                yield line, ENDED

    def wake(self) -> None:
        """Make a `poll` in another thread return. May be called from any thread."""
        with self._waker_lock:
            if not self.is_closed:
                os.eventfd_write(self._waker.number, 1)

    def add_channel(self, line: Line) -> None:
        self._add(line.sock.fileno(), line)
        self.watch.mind(line)

    def add_pidfd(self, line: Line, pidfd: Descriptor) -> None:
        self._add(pidfd.number, line)
        self.watch.add(pidfd.number)

    def outbox_changed(self, line: Line) -> None:
        """Look for room in a channel for as long as there is something to send, here or while the
        loop is away."""
        if line.sock.fileno() in self._by_fd:
            more = select.POLLOUT if line.outbox else 0
            self._poll.modify(line.sock.fileno(), select.POLLIN | more)
            self.watch.mind(line)

    def remove_channel(self, line: Line) -> None:
        self._remove(line.sock.fileno())

    def remove_pidfd(self, line: Line) -> None:
        if line.pidfd is not None:
            self._remove(line.pidfd.number)

    def close(self) -> None:
        with self._waker_lock:
            self.is_closed = True
            self._poll.unregister(self._waker.number)
            if self._news is not None:
                self._poll.unregister(self._news)
            self._waker.close()
            self.watch.close()

    def _add(self, fd: int, line: Line) -> None:
        self._by_fd[fd] = line
        self._poll.register(fd, select.POLLIN)

    def _remove(self, fd: int) -> None:
        if self._by_fd.pop(fd, None) is not None:
            self._poll.unregister(fd)
            self.watch.remove(fd)


def _is_pidfd(fd: int, line: Line) -> bool:
    return line.pidfd is not None and fd == line.pidfd.number


class AwayWatch:
    """Where a thread waits for what should not wait for the loop: the end of a worker, and room in
    a channel for the rest of a message."""

    def __init__(self) -> None:
        self._parcels = False  # wait for parcels, too
        self._ended = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        # Not `poll`: what is registered while the thread waits counts at once.
        self._all = select.epoll()
        self._end_only = select.poll()
        self._all.register(self._ended.number, select.EPOLLIN)
        self._end_only.register(self._ended.number, select.POLLIN)
        keep_from_children(self)

    def look_for_parcels(self, lines: Iterable[Line]) -> None:
        self._parcels = True
        for line in lines:
            self.mind(line)

    def add(self, descriptor: int) -> None:
        self._all.register(descriptor, select.EPOLLIN)

    def mind(self, line: Line) -> None:
        """Look at a worker's channel for as long as there is a reason to."""
        wanted = (select.EPOLLIN if self._parcels else 0) | (select.EPOLLOUT if line.outbox else 0)
        self.remove(line.sock.fileno())
        if wanted:
            self._all.register(line.sock.fileno(), wanted)

    def remove(self, *descriptors: int) -> None:
        for number in descriptors:
            with contextlib.suppress(OSError, ValueError):  # not looked at, or all is closed
                self._all.unregister(number)

    def wait(self, timeout_s: float) -> None:
        with contextlib.suppress(ValueError):  # closed meanwhile: whoever waits will see it
            self._all.poll(timeout_s)

    def pause(self, timeout_s: float) -> None:
        self._end_only.poll(1000 * timeout_s)

    def end(self) -> None:
        os.eventfd_write(self._ended.number, 1)

    def close(self) -> None:
        self._all.close()
        self._ended.close()
