"""The zygote of a loader, seen from the main process: it holds the dataset and forks the workers.

A worker that replaces another is so the same as the first one, and costs a fork of a process with
one thread, whatever the main process has become since. What a zygote does: `zygote_main`.
It is forked from the main process itself, or from a clean process: then the dataset is sent
to it, once, not for every worker. Which of them: `_core/fork_or_clean.py`.

1. It is made when the first lives are asked for, of which some may be forked by the main process
   itself (`first_workers`), and again if it is gone when one is asked for.
2. If it ends, its lives end with it; none of them is to blame.
3. It leaves when told to, and when the main process is gone.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import multiprocessing.popen_fork
import os
import pickle
import select
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess

import torch

from ..._core.faults import Ending
from ..._core.fork_or_clean import Choice
from ..._core.limits import LIMITS, ForkLimits
from ..._linux.oom_kills import OomKills
from ..._loading.job import Job
from ..._reporting.out_of_memory import explain_kill
from ..._reporting.stall_messages import where
from ..._transport.descriptors import Descriptor, keep_from_children, received
from ..._transport.memory import MemoryShort
from ..._transport.stack_file import StackFile
from ..._transport.status_board import StatusBoard
from ..._worker import deferred_work
from ..._worker.private_file_offsets import may_hold_locks
from .. import multiprocessing_numbers
from ..fork_safety import threads_at_fork
from ..fork_safety.reachable_objects import Reached
from ..replication.job_pickler import pack, pack_terms
from ..replication.module_state import Known
from ..replication.process_settings import ProcessSettings
from ..replication.shared_payload import Payload
from ..replication.unsendable import Unsendable
from . import clean_process, imported_anew
from .fd_passing import send
from .first_workers import FirstWorkers
from .process_creation import disown, patiently, without_interrupts
from .reused_zygote import Kept, give_back, may_be_kept
from .slow_unpickling import Opening
from .start_method import StartMethod
from .worker_source import Born, Exited, News, Refused, exit_in_words
from .zygote_forks import Hello
from .zygote_main import KEEP, MESSAGE, QUIT, Mother, Terms, Unfit, Warmed, live

_FORK = multiprocessing.get_context("fork")
HELD = 16  # descriptors that went with a dataset, at most, where it is held to be compared


class Zygote:
    """One zygote process."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.pid: int | None = None  # not there yet
        self.pidfd: Descriptor | None = None
        self.unfit: Unfit | None = None
        self._process: BaseProcess | None = None  # if it is a child of this one
        self._home: clean_process.CleanProcess | Kept | None = None  # if it is not
        self.opening: Opening | None = None  # it is about to hold what it was sent
        self.given_up = False  # we ended it ourselves, and have said why
        self.forsaken = False  # we ended it, since it did not get on
        self.sealed = False  # what it was sent is opened by its lives
        self._leaving = [None]  # emptied by whoever sees it off
        self._said_all = False  # nobody holds the other end of its channel
        self._warmed: Callable[[float], None] = lambda opened_s: None
        self._shortage: OomKills | None = None
        self._payload: Payload | None = None  # what it was sent, if others may be forked from it
        self._known: Known = {}  # and what of the program's circumstances need not be sent
        sock.setblocking(False)
        keep_from_children(self)

    @classmethod
    def fork(
        cls, mother: Mother, reached: Reached | None = None, limits: ForkLimits = LIMITS.forking
    ) -> Zygote:
        """Make one that inherits everything. Raises OSError, or ForkHazard (see `FirstWorkers`)."""
        ours, theirs = _channel()
        process = multiprocessing_numbers.without_number(
            lambda: _FORK.Process(
                target=live, args=(mother, theirs), name="antifreeze zygote", daemon=True
            )
        )
        try:
            with without_interrupts(), threads_at_fork.looking(reached, limits) as check:
                patiently(process.start)
            assert process.pid is not None
            if check is not None and check.unsafe:
                raise threads_at_fork.ForkHazard(check.unsafe)
            pidfd = Descriptor(os.pidfd_open(process.pid))
        except BaseException:
            ours.close()
            if process.pid is not None:
                process.kill()
                process.join(LIMITS.starting.reap_s)
            disown(process)
            raise
        finally:
            theirs.close()
        zygote = cls(ours)
        zygote._process = process
        zygote.pid, zygote.pidfd = process.pid, pidfd
        return zygote

    @classmethod
    def bring(cls, job: Job, status: StatusBoard, lineage: StartMethod) -> Zygote:
        """Make one that gets what it must know from us. Does not wait for it.

        Raises TransportFailed, Unsendable, CostsTooMuch, MemoryShort, SourceGone.
        """
        choice = lineage.choice
        shortage = OomKills()
        terms = pack_terms(Terms.of(job, status, choice.why))
        job = Terms.without(job)
        kept = lineage.kept(job)
        home: clean_process.CleanProcess | Kept = kept or clean_process.present()
        known = home.known()
        ours, theirs = _channel()
        ours.setblocking(False)
        opening = Opening()
        payload: Payload | None = None
        try:
            home.bring(theirs, opening.trace)  # it is forked while we pack; if we fail, it leaves
            theirs.close()
            terms.send(ours)
            if kept is None:
                payload = _pack_all(known, job, choice)
                payload.send(ours)
        except BaseException:
            ours.close()
            opening.close()
            raise
        finally:
            theirs.close()
            terms.close()
        zygote = cls(ours)
        zygote._home, zygote.opening = home, opening
        zygote.sealed = payload.each_opens if payload is not None else home.sealed
        zygote._shortage = shortage
        if payload is not None:
            size, seconds = payload.bytes, payload.seconds
            zygote._warmed = lambda opened_s: lineage.sent(size, seconds, opened_s)
            zygote._hold(payload, known)
        return zygote

    def _hold(self, payload: Payload, known: Known) -> None:
        """Hold what was sent, to compare, if that can tell and takes few descriptors. (Shared
        tensors that go by name count those who are to open them: nobody opens what is compared.)"""
        by_name = torch.multiprocessing.get_sharing_strategy() == "file_system"  # type: ignore[no-untyped-call]
        few = len(payload.riders) <= HELD
        if payload.is_faithful and few and not by_name and may_be_kept(payload):
            self._payload, self._known = payload, known
        else:
            payload.close()

    def keep(self) -> Kept | None:
        """Have it stay, for the zygotes of later epochs to be forked from, if it can."""
        payload, home, pidfd = self._payload, self._home, self.pidfd
        if payload is None or self.pid is None or pidfd is None or self.opening is not None:
            return None
        if not may_be_kept(payload):
            return None
        if self.given_up or self.forsaken or self.unfit is not None or self.is_gone():
            return None
        if not isinstance(home, clean_process.CleanProcess):
            return None
        try:
            socket.send_fds(self.sock, [pickle.dumps(KEEP)], [])
        except OSError:  # it is gone, or takes nothing any more
            return None
        self._payload = None
        return Kept(self.sock, self.pid, pidfd, payload, self._known, home)

    @property
    def acting_pid(self) -> int | None:
        """Its pid; before it is there, that of the process that it comes from."""
        return self.pid or (None if self._home is None else self._home.pid)

    def send(self, message: object, channel: socket.socket, trace: StackFile) -> None:
        """Send a message; with it go the end of a channel, and a trace. Raises SourceGone."""
        send(self.sock, pickle.dumps(message), [channel.fileno(), trace.number])

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
                self._said_all = True
                return
            came = received(riders)
            said = pickle.loads(data)
            if not isinstance(said, tuple):
                self._take(said, came)
                continue
            kind, seat, life, said = said
            if kind is Exited:
                yield Exited(seat, life, *said)
            elif kind is not Born:
                yield kind(seat, life, said)
            elif came:
                yield Born(seat, life, said, came[0])
            else:  # it leaves when its channel is closed
                yield Refused(seat, life, "no descriptor was left to watch it by")

    def _take(self, said: Hello | Unfit | Warmed, came: list[Descriptor]) -> None:
        match said:
            case Hello(pid=pid):
                self.pid = pid
                if came:
                    self.pidfd = came[0]
                    if self.opening is not None:
                        self.opening.pidfd = came[0]
            case Unfit():
                self.unfit = said
            case Warmed(modules=modules, seconds=seconds):
                self._has_opened()
                if not self.sealed:
                    self.opened(modules, seconds)

    def opened(self, modules: Sequence[str], seconds: float) -> None:
        """Keep what it took it, or one of its workers, to open what was sent."""
        self._warmed(seconds)
        if self._home is not None:
            self._home.warm(modules)

    def _has_opened(self) -> None:
        if self.opening is not None:
            self.opening.close()
            self.opening = None

    def is_gone(self, within_s: float = 0.0) -> bool:
        if self.pidfd is None:  # from the clean process, on its way: only it has the channel
            return self._said_all
        poller = select.poll()
        poller.register(self.pidfd.number, select.POLLIN)
        return bool(poller.poll(1000 * within_s))

    @property
    def lost_its_home(self) -> bool:
        """Whether the clean process that was to fork it was ended by us, as another loader left."""
        home = self._home
        gone = isinstance(home, clean_process.CleanProcess) and home.given_up
        return gone and self.pid is None and not self.forsaken

    def how_it_ended(self) -> str:
        if self.pid is None:
            return "the clean process, from which its zygote was to come, has ended"
        # Not `join`, which waits for all who inherited a pipe of the process.
        reap_s = LIMITS.starting.reap_s
        self.is_gone(reap_s)
        if self.forsaken:
            stack = () if self.opening is None else self.opening.trace.stack_since(0)
            return f"its zygote (pid {self.pid}) did not get on{where(stack)}, and was ended"
        code = None if self._process is None else self._process.exitcode
        if self.unfit is not None:
            how = f"could not be made: {self.unfit.words}\n{self.unfit.details}"
        elif self._home is not None and (ended := self._home.how_ended(self.pid, reap_s)):
            how = exit_in_words(ended.code)
            if ended.code == -signal.SIGKILL and self._shortage is not None:
                told = explain_kill(self._shortage, Ending(signal=signal.SIGKILL), ended.peak_bytes)
                how += f" ({told.words})" if told.words else ""
        else:
            how = "has ended, nobody knows how" if code is None else exit_in_words(code)
        opening = "" if self.opening is None else " while it opened the dataset"
        return f"its zygote (pid {self.pid}) {how}{opening if self.unfit is None else ''}"

    def kill(self) -> None:
        if self.pidfd is None:
            assert self._home is not None
            self._home.kill()  # it does not answer
            return
        with contextlib.suppress(OSError):  # not by its pid, which may be another's by now
            signal.pidfd_send_signal(self.pidfd.number, signal.SIGKILL)

    def go_on(self) -> None:
        """Resume it, if somebody has stopped it; or the clean process, if it is not there yet."""
        if self.pidfd is None:
            if self._home is not None:
                self._home.go_on()
            return
        with contextlib.suppress(OSError):  # it is gone
            signal.pidfd_send_signal(self.pidfd.number, signal.SIGCONT)

    def quit(self, crew: FirstWorkers) -> None:
        """Have it leave, and see off its siblings. Nobody waits for that but a thread: it takes
        5 ms, which the next epoch need not lose. Where this process has locked a file, the zygote
        holds that lock as well: the program must be able to count on it being free once it has
        closed the file."""
        try:
            socket.send_fds(self.sock, [pickle.dumps(QUIT)], [])
        except OSError:  # it is gone, or takes nothing any more
            self.kill()
        if self.pidfd is None:  # it leaves as soon as it is there
            self.close()
            crew.see_off()
            return
        if self._process is not None and may_hold_locks():
            self._see_off(crew)
            return
        taken = False
        try:
            taken = deferred_work.later(functools.partial(self._see_off, crew))
        finally:
            if not taken:  # the machine gives no thread, or the program is ending
                self._see_off(crew)

    def _see_off(self, crew: FirstWorkers) -> None:
        """Wait, bounded, for its end and that of its siblings, once."""
        try:
            self._leaving.pop()
        except IndexError:  # another thread does
            return
        crew.see_off()
        if not self.is_gone(LIMITS.starting.reap_s):
            self.kill()
            self.is_gone(LIMITS.starting.reap_s)
        if self._process is not None:
            self._process.exitcode  # noqa: B018 - reaps it
        self.close()

    def close(self) -> None:
        """Let go of it; in a child of the user's, too."""
        self.sock.close()
        self._has_opened()
        if self._payload is not None:
            self._payload.close()
        if self.pidfd is not None:
            self.pidfd.close()
        if self._process is not None:
            disown(self._process)

    def __repr__(self) -> str:
        return f"<Zygote pid {self.pid}>"


def _pack_all(known: Known, job: Job, choice: Choice) -> Payload:
    """Pack a job and its circumstances. Where memory is short, what is kept of others goes."""
    try:
        return _pack_most(known, job, choice)
    except MemoryShort:
        if not give_back():
            raise
    return _pack_most(known, job, choice)


def _pack_most(known: Known, job: Job, choice: Choice) -> Payload:
    """Pack a job and its circumstances; less of these, where there is no other way."""
    try:
        return pack(ProcessSettings.collect(known), job, choice.bounds)
    except Unsendable as error:
        if not choice.asked_for:
            raise
        imported_anew.log_left_out(str(error))
        return pack(ProcessSettings.collect(known, whole=False), job, choice.bounds)


def _channel() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    keep_from_children(ours)
    return ours, theirs
