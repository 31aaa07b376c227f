"""What a zygote does: it waits, forks a life when asked to, and tells how each one ended.

1. It has one thread, and runs no code of the user's. (Where objects are made anew by code of their
   own, each life opens the job for itself: what that code opens is not shared.)
2. It waits for messages, for the end of its children, and for the end of the main process; it
   never relies on a closed channel alone, which a stranger's process may hold open. It never waits
   for the main process to read: told to leave or to stay, it tells nothing any more.
3. Its lives end with it: by the kernel, whatever ends it. Told to leave, it waits for those that
   are about to end by themselves.
"""

from __future__ import annotations

import array
import contextlib
import functools
import multiprocessing
import os
import pickle
import select
import signal
import socket
import traceback
from collections import deque
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

from ..._core.frozen_values import frozen
from ..._core.limits import LIMITS
from ..._linux.clock import monotonic
from ..._loading.job import Job
from ..._transport.descriptors import Descriptor, keep_from_children, received
from ..._transport.status_board import StatusBoard
from ..._worker import parent_watch, signal_handlers
from ..._worker.main import is_as_torch, prepare, run
from ..._worker.private_file_offsets import Held, own_offsets, take_away
from ..._worker.worker_spec import Sealed, WorkerSpec
from .. import multiprocessing_numbers
from ..fork_safety import native_thread_pools, threads_at_fork
from ..replication.shared_payload import Unpacking
from ..worker_exit import leave
from . import reused_zygote_main
from .fd_passing import receive_many
from .process_creation import disown, patiently
from .worker_source import Born, Exited, Refused, Wanted, worker_name
from .zygote_forks import ZYGOTE, Bring, say

QUIT, KEEP = "quit", "keep"
MESSAGE = 64 * 1024  # bytes, of one message, at most
LEAVING_S = LIMITS.starting.reap_s / 2  # for lives to end that have said that they do
_FORK = multiprocessing.get_context("fork")


@frozen
class Unfit:
    """It cannot be the zygote that is wanted, and leaves."""

    words: str
    details: str


@frozen
class Warmed:
    """It holds what it was sent, and had to import these libraries for it."""

    modules: tuple[str, ...]
    seconds: float  # of processor time, to open it


@frozen
class Terms:
    """What of a job is another one in each epoch, and what a zygote must know besides."""

    base_seed: int
    quarantine: frozenset[Any]
    status: StatusBoard
    handled: tuple[int, ...]  # signals that the main process has handlers for
    look_s: float
    why: str  # it is no copy of the main process

    @classmethod
    def of(cls, job: Job, status: StatusBoard, why: str) -> Terms:
        return cls(
            job.base_seed, job.quarantine, status, signal_handlers.passed_on(), job.look_s, why
        )

    @staticmethod
    def without(job: Job) -> Job:
        """Return what of a job is sent, and is the same in each epoch."""
        handlers = signal_handlers.sendable(job.handlers)
        return replace(job, base_seed=0, quarantine=frozenset(), handlers=handlers)

    def complete(self, job: Job) -> Job:
        """Return the job of this epoch."""
        return replace(job, base_seed=self.base_seed, quarantine=self.quarantine)


@frozen
class Mother:
    """What a zygote must know."""

    job: Job | Sealed
    status: StatusBoard
    main_pid: int
    main: Descriptor | None  # tells the end of the main process; None: its parent
    forked: bool  # from the main process
    by_kernel: bool  # it was started by a thread that lives as long as the main process
    positions: dict[int, int]  # in inherited files, as they were at the fork
    held: Held  # by the dataset
    handled: tuple[int, ...]  # signals that the main process has handlers for
    clean_since: str = ""  # why it is no copy of the main process


def live(mother: Mother, control: socket.socket) -> NoReturn:
    """Be a zygote until told to leave, or until the main process is gone."""
    if threads_at_fork.is_void():
        os._exit(0)
    code = 1
    try:
        parent_watch.name_process(ZYGOTE)
        as_torch = is_as_torch(mother.job)
        prepare(forked=mother.forked, as_torch=as_torch)
        if mother.forked and not as_torch:
            native_thread_pools.one_blas_thread()
        main = mother.main or parent_watch.watch_parent(
            mother.main_pid, by_kernel=mother.by_kernel, is_parent=True
        )
        signal_handlers.pass_on(mother.handled, to=main)
        parent_watch.unblock_interrupts()
        # Children are what it is for; those it forks may have none, as torch's workers.
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
        own_offsets(mother.positions)
        take_away(mother.held)
        control.settimeout(None)  # whatever socket.setdefaulttimeout the program has called
        keep_from_children(control)
        serve(mother, control, main)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # not through multiprocessing, which would wait for the children


def serve(mother: Mother, control: socket.socket, main: Descriptor) -> None:
    """Be a zygote that is ready, until told to leave, or until the main process is gone."""
    nest = _Nest(mother, control, main)
    kept = nest.serve() == KEEP
    nest.see_off()
    if kept:
        nest.end_all()
        reused_zygote_main.serve(control, main, functools.partial(_again, mother))


def _again(mother: Mother, wish: Bring, control: socket.socket, main: Descriptor) -> NoReturn:
    """Be the zygote of a later epoch, forked from one that was kept."""
    terms: Terms = Unpacking(*receive_many(control)).next()
    job = mother.job
    if isinstance(job, Job):
        job = terms.complete(job)
    else:
        job.terms = terms
    say(control, Warmed((), 0.0))
    parent_watch.outlive_parent()  # it watches the program itself, from here on
    signal_handlers.pass_on(terms.handled, to=main)
    parent_watch.unblock_interrupts()
    status, handled, why = terms.status, terms.handled, terms.why
    renewed = replace(mother, job=job, status=status, main=main, handled=handled, clean_since=why)
    serve(renewed, control, main)
    os._exit(0)


def live_one(spec: WorkerSpec, channel: socket.socket) -> None:
    """Be a worker, in a process of its own."""
    number = channel.fileno()
    if run(spec, channel):
        leave(number)


class _Nest:
    def __init__(self, mother: Mother, control: socket.socket, main: Descriptor) -> None:
        self._mother, self._control, self._main = mother, control, main
        self._lives: dict[int, tuple[Wanted, BaseProcess, Descriptor]] = {}  # by pidfd
        self._unsent: deque[tuple[bytes, list[Descriptor]]] = deque()  # there was no room yet
        self._is_heard = True  # the main process reads what it is told
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._poller.register(main.number, select.POLLIN)

    def serve(self) -> str:
        """Do what is asked. Return how it ended: QUIT or KEEP."""
        said = ""
        while not said:  # bounded by the life of the main process
            for fd, mask in self._poller.poll():
                if fd == self._main.number:
                    said = QUIT
                elif fd in self._lives:
                    self._reap(fd)
                elif mask & select.POLLOUT:
                    self._send_unsent()
                else:
                    said = said or self._take_message()
        self._is_heard = False
        self._unsent.clear()
        return said

    def see_off(self) -> None:
        """Wait a moment for lives that are about to end: who ends after its parent has nobody to
        take note of it, where the main process is the first of its container."""
        with contextlib.suppress(KeyError):  # it was done before
            self._poller.unregister(self._control)
        give_up = monotonic() + LEAVING_S
        while self._lives and (left_s := give_up - monotonic()) > 0:
            for fd, _ in self._poller.poll(1000 * left_s):
                if fd == self._main.number:
                    return
                self._reap(fd)

    def end_all(self) -> None:
        """End the lives that are left, which nobody wants any more. All of them first: each takes
        as long as the kernel needs for its memory."""
        for _, _, pidfd in self._lives.values():
            with contextlib.suppress(OSError):  # it was quicker
                signal.pidfd_send_signal(pidfd.number, signal.SIGKILL)
        self.see_off()
        for _, _, pidfd in self._lives.values():  # only the kernel has work with them
            pidfd.close()
        disown(*(process for _, process, _ in self._lives.values()))
        self._lives.clear()

    def _take_message(self) -> str:
        """Do what the main process asks for. Return nothing, or how it is to end."""
        try:
            data, riders, _, _ = self._control.recvmsg(MESSAGE, 64, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:  # the main process was killed with something unread
            return QUIT
        if not data:
            return QUIT
        came = received(riders)
        wanted = pickle.loads(data)
        if wanted in (QUIT, KEEP):
            return str(wanted)
        assert isinstance(wanted, Wanted)
        if len(came) == 2:
            self._bear(wanted, *came)
        else:
            self._say(Refused, wanted, "no descriptor was left for its channel")
        return ""

    def _bear(self, wanted: Wanted, channel: Descriptor, trace: Descriptor) -> None:
        mother = self._mother
        # Blocked until the child knows what to do with it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        process = theirs = its_trace = None
        try:
            # Duplicates: these descriptors themselves are closed in every child.
            theirs = socket.socket(fileno=os.dup(channel.number))
            its_trace = os.dup(trace.number)
            sealed = None if isinstance(mother.job, Job) else mother.job
            spec = wanted.spec(
                mother.job,
                mother.status,
                sealed=sealed,
                prepared=True,
                forgets=mother.handled,
                trace=its_trace,
                held=mother.held,
                clean_since=mother.clean_since,
            )
            process = _FORK.Process(
                target=live_one, args=(spec, theirs), name=worker_name(wanted.seat), daemon=True
            )
            multiprocessing_numbers.give(process, wanted.number)
            patiently(process.start)
            assert process.pid is not None
            pidfd = Descriptor(os.pidfd_open(process.pid))
        except OSError as error:
            if process is not None:
                if process.pid is not None:
                    process.kill()
                    process.join(LIMITS.starting.reap_s)
                disown(process)
            self._say(Refused, wanted, f"{error.strerror} (errno {error.errno})")
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            if theirs is not None:
                theirs.close()
            if its_trace is not None:
                os.close(its_trace)
            channel.close()
            trace.close()
        self._lives[pidfd.number] = wanted, process, pidfd
        self._poller.register(pidfd.number, select.POLLIN)
        self._say(Born, wanted, process.pid, pidfd=pidfd)

    def _reap(self, fd: int) -> None:
        wanted, process, pidfd = self._lives.pop(fd)
        self._poller.unregister(fd)
        pidfd.close()
        # It has ended. (Not `join`, which waits for all who inherited a pipe of the process.)
        peak_bytes = 0
        with contextlib.suppress(ChildProcessError):  # somebody else took it
            _, status, usage = os.wait4(process.pid or 0, 0)
            process._popen.returncode = os.waitstatus_to_exitcode(status)  # type: ignore[attr-defined]
            peak_bytes = 1024 * usage.ru_maxrss
        self._say(Exited, wanted, (process.exitcode, peak_bytes))
        disown(process)

    def _say(
        self, kind: type, wanted: Wanted, said: object, pidfd: Descriptor | None = None
    ) -> None:
        if not self._is_heard:
            return
        riders: list[Descriptor] = []
        if pidfd is not None:
            with contextlib.suppress(OSError):  # without it the life is told to leave
                riders.append(Descriptor(os.dup(pidfd.number)))  # that one may be closed before
        self._unsent.append((pickle.dumps((kind, wanted.seat, wanted.life, said)), riders))
        self._send_unsent()

    def _send_unsent(self) -> None:
        """Send what there is room for; the rest when there is more."""
        try:
            while self._unsent:
                data, riders = self._unsent[0]
                rights = array.array("i", [each.number for each in riders])
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if riders else []
                self._control.sendmsg([data], ancillary, socket.MSG_DONTWAIT)
                self._unsent.popleft()
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):  # main is about to end us
            self._unsent.clear()
        more = select.POLLOUT if self._unsent else 0
        self._poller.modify(self._control, select.POLLIN | more)
