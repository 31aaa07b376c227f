"""The template of a loader, seen from the main process: it holds the dataset and forks the workers.

A worker that replaces another is so the same as the first one, and costs a fork of a process with
one thread, whatever the main process has become since. What a template does: `template_process`.
It is forked from the main process itself, or, where the user wants processes to start clean, it is
a new process that the dataset is sent to: then that is done once, not for every worker.

1. It is made when the first life is asked for, and again if it is gone when one is asked for.
2. If it ends, its lives end with it; none of them is to blame.
3. It leaves when told to, and when the main process is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing.popen_fork  # noqa: F401 - now: a program may give up the right to read it
import os
import pickle
import select
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

from .._transport.descriptors import Descriptor, keep_from_children, received
from .._transport.status import StatusBoard
from .._worker.files import positions
from .._worker.spec import Job
from . import pools
from .origins import (
    REAP_S,
    Born,
    News,
    OriginGone,
    Orphaned,
    Refused,
    Wanted,
    disown,
    without_interrupts,
)
from .sending import SentJob
from .template_process import MESSAGE, QUIT, Mother, live

# For room in the template's channel: it takes a message as soon as it has forked the last one.
SEND_S = 30.0


class Template:
    """One template process."""

    def __init__(self, job: Job, status: StatusBoard, context: BaseContext) -> None:
        forked = context.get_start_method() == "fork"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        keep_from_children(ours)
        by_kernel = threading.current_thread() is threading.main_thread()
        mother = Mother(
            job=job if forked else SentJob(job),
            status=status,
            main_pid=os.getpid(),
            forked=forked,
            by_kernel=by_kernel,
            positions=positions() if forked else {},
        )
        self._process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=live, args=(mother, theirs), name="antifreeze template", daemon=True
        )
        try:
            if forked:
                pools.lay_down()
            with without_interrupts():
                self._process.start()
            assert self._process.pid is not None
            self.pidfd = Descriptor(os.pidfd_open(self._process.pid))
        except BaseException:
            ours.close()
            if self._process.pid is not None:
                self._process.kill()
                self._process.join(REAP_S)
            raise
        finally:
            theirs.close()
        self.pid: int = self._process.pid
        self.sock = ours
        ours.setblocking(False)
        keep_from_children(self)

    def send(self, message: object, channel: socket.socket | None = None) -> None:
        """Send a message, and the end of a channel with it. Raises OriginGone."""
        data = pickle.dumps(message)
        riders = [] if channel is None else [channel.fileno()]
        try:
            try:
                socket.send_fds(self.sock, [data], riders)
            except BlockingIOError:  # very many lives at once: they are forked one by one
                poller = select.poll()
                poller.register(self.sock, select.POLLOUT)
                poller.poll(1000 * SEND_S)
                socket.send_fds(self.sock, [data], riders)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise OriginGone from error

    def read(self) -> Iterator[News]:
        """Yield the news that are there."""
        while True:
            try:
                data, riders, _, _ = self.sock.recvmsg(
                    MESSAGE, socket.CMSG_SPACE(8), socket.MSG_CMSG_CLOEXEC
                )
            except OSError:  # nothing there, or nobody
                return
            if not data:
                return
            came = received(riders)
            kind, seat, life, said = pickle.loads(data)
            if kind is not Born:
                yield kind(seat, life, said)
            elif came:
                yield Born(seat, life, said, came[0])
            else:  # it leaves when its channel is closed
                yield Refused(seat, life, "no descriptor was left to watch it by")

    def is_gone(self, within_s: float = 0.0) -> bool:
        poller = select.poll()
        poller.register(self.pidfd.number, select.POLLIN)
        return bool(poller.poll(1000 * within_s))

    def how_it_ended(self) -> str:
        # Not `join`, which waits for all who inherited a pipe of the process.
        self.is_gone(REAP_S)
        code = self._process.exitcode
        if code is None:
            how = "has ended, nobody knows how"
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"its template (pid {self.pid}) {how}"

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # not by its pid, which may be another's by now
            signal.pidfd_send_signal(self.pidfd.number, signal.SIGKILL)

    def quit(self) -> None:
        """Have it leave. Nobody waits for that but a thread: it takes 5 ms, which the next epoch
        need not lose."""
        try:
            socket.send_fds(self.sock, [pickle.dumps(QUIT)], [])
        except OSError:  # it is gone, or takes nothing any more
            self.kill()
        try:
            threading.Thread(target=self._see_off, name="antifreeze-reaper", daemon=True).start()
        except RuntimeError:  # the machine gives no thread, or the program is ending
            self._see_off()

    def _see_off(self) -> None:
        if not self.is_gone(REAP_S):
            self.kill()
            self.is_gone(REAP_S)
        self._process.exitcode  # noqa: B018 - reaps it
        self.close()

    def close(self) -> None:
        """Let go of it; in a child of the user's, too."""
        self.sock.close()
        self.pidfd.close()
        disown(self._process)

    def __repr__(self) -> str:
        return f"<Template pid {self.pid}>"


class _Waiting:
    """One descriptor to wait for, whichever template is the present one."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self.descriptor = self._poll.fileno()
        keep_from_children(self)

    def begin(self, template: Template) -> None:
        self._poll.register(template.sock.fileno(), select.EPOLLIN)
        self._poll.register(template.pidfd.number, select.EPOLLIN)

    def end(self, template: Template) -> None:
        self._poll.unregister(template.sock.fileno())
        self._poll.unregister(template.pidfd.number)

    def close(self) -> None:
        self._poll.close()


class Templates:
    """The present template of a loader, made anew when it is gone."""

    def __init__(self, job: Job, status: StatusBoard, context: BaseContext) -> None:
        self._job, self._status, self._context = job, status, context
        self._present: Template | None = None
        self._news: list[News] = []
        self._waiting = _Waiting()

    @property
    def descriptor(self) -> int:
        return self._waiting.descriptor

    def ask(self, wanted: Wanted, channel: socket.socket) -> None:
        try:
            self._template().send(wanted, channel)
        except OriginGone:
            self._bury()
            raise

    def hear(self) -> Sequence[News]:
        template = self._present
        if template is not None:
            gone = template.is_gone()  # first: what it said before is read below
            self._news.extend(template.read())
            if gone:
                self._bury()
        news, self._news = self._news, []
        return news

    def forsake(self) -> None:
        if self._present is not None:
            self._present.kill()

    def ended(self, seat: int, life: int) -> None:
        """Nothing to do: the template sees it as well."""

    def close(self) -> None:
        if self._present is not None:
            self._present.quit()
            self._present = None
        self._waiting.close()

    def __repr__(self) -> str:
        return f"<Templates, present: {self._present!r}>"

    def _template(self) -> Template:
        if self._present is None:
            self._present = Template(self._job, self._status, self._context)
            self._waiting.begin(self._present)
        return self._present

    def _bury(self) -> None:
        """Take note of the end of the present template."""
        template, self._present = self._present, None
        assert template is not None
        self._news.extend(template.read())
        self._news.append(Orphaned(template.how_it_ended()))
        self._waiting.end(template)
        template.close()
