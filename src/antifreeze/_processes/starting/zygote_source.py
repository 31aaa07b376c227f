"""Workers that are forked: by the main process itself, then by a zygote, made anew when it is gone.

1. The first workers are forked by the main process (`first_workers`), as long as that takes no
   time, and then the zygote (`zygote`): at the same moment, so that it is what they are. (When they
   have got their first tickets, if no code of the user's runs until then.)
2. All others are forked by the zygote.
3. Where the first workers are to come from a clean process, so does the zygote, which forks all.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from ..._core.fork_or_clean import Choice, WorkerOrigin
from ..._core.health.stall_detection import Inherited
from ..._core.limits import LIMITS, Limits
from ..._loading.job import Job
from ..._loading.rng_adapters import global_generators
from ..._transport.descriptors import keep_from_children
from ..._transport.memory import MemoryShort
from ..._transport.stack_file import StackFile
from ..._transport.status_board import StatusBoard
from ..._worker import signal_handlers
from ..._worker.private_file_offsets import positions
from ...errors import TransportFailed
from .. import multiprocessing_numbers
from ..fork_safety import native_thread_pools
from ..fork_safety.threads_at_fork import ForkHazard
from ..replication.shared_payload import CostsTooMuch
from ..replication.unsendable import Unsendable
from .fd_passing import SourceGone
from .first_workers import FirstWorkers
from .inherited_handles import held_by, warn_of_connections
from .start_method import StartMethod
from .start_method_messages import Wait
from .worker_source import (
    EndedWhileOpening,
    JobOpened,
    JobUnfit,
    NeverGotGoing,
    News,
    Orphaned,
    Refused,
    Report,
    Wanted,
    WorkerSource,
)
from .zygote import Zygote
from .zygote_main import Mother, Unfit

# What multiprocessing says, and what to do about it.
DAEMONIC = (
    "daemonic processes are not allowed to have children: this one is a worker of a DataLoader, or"
    " was started with daemon=True. A loader in it, as one inside a dataset, needs num_workers=0"
)


class _Waiting:
    """One descriptor to wait for, whichever zygote is the present one."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self.descriptor = self._poll.fileno()
        keep_from_children(self)

    def add(self, descriptor: int) -> None:
        """Wait for this one, too, for as long as it is open."""
        self._poll.register(descriptor, select.EPOLLIN)

    def begin(self, zygote: Zygote) -> None:
        self._poll.register(zygote.sock.fileno(), select.EPOLLIN)
        self._pidfd: int | None = None
        self.look_at_end(zygote)

    def look_at_end(self, zygote: Zygote) -> None:
        """Wait for its end, too, as soon as it is there."""
        if self._pidfd is None and zygote.pidfd is not None:
            self._pidfd = zygote.pidfd.number
            self._poll.register(self._pidfd, select.EPOLLIN)

    def end(self, zygote: Zygote) -> None:
        self._poll.unregister(zygote.sock.fileno())
        if self._pidfd is not None:
            self._poll.unregister(self._pidfd)

    def close(self) -> None:
        self._poll.close()


class ZygoteSource(WorkerSource):
    """The present zygote of a loader, made anew when it is gone."""

    def __init__(
        self, job: Job, status: StatusBoard, lineage: StartMethod, limits: Limits = LIMITS
    ) -> None:
        self._limits = limits
        self._job, self._status, self._lineage = job, status, lineage
        # By which the present lives were born; another loop over the loader may have changed it.
        self._choice: Choice | None = None
        self._present: Zygote | None = None
        self._news: list[News] = []
        self._mother: Mother | None = None  # of the first lives, for the zygote that follows
        self._waiting = _Waiting()
        self._stillborn = 0
        self._first_workers = FirstWorkers(limits)
        self._waiting.add(self._first_workers.descriptor)
        self._no_process = ""  # why the machine gives none, to the first lives
        self._deferred = False  # the zygote is not made yet, though it could be
        self._first = job.num_workers  # lives that are still to be asked for the first time
        # By seat: multiprocessing's numbers of lives that did nothing, for those in their place.
        self._returned: dict[int, int] = {}

    @property
    def descriptor(self) -> int:
        return self._waiting.descriptor

    @property
    def _born_by(self) -> Choice:
        return self._choice or self._lineage.choice

    @property
    def _may_fork(self) -> bool:
        return self._lineage.choice.descent is WorkerOrigin.MAIN

    @property
    def forks(self) -> bool:
        return self._born_by.descent is WorkerOrigin.MAIN

    @property
    def parent(self) -> Zygote | None:
        return self._present

    def ask(self, wanted: Wanted, channel: socket.socket, trace: StackFile) -> None:
        first, self._first = self._first > 0, self._first - 1
        may_be_here = first and self._present is None and self._may_fork
        here = may_be_here and self._first_workers.takes_another()
        asked, number = frozenset({(wanted.seat, wanted.life)}), None
        try:
            if here and self._fork_here(wanted, channel, trace):
                return
        except ForkHazard as hazard:
            number = hazard.number
            self._beware(hazard, asked)
        if not first:
            self._no_process = ""
        keep_from_children(channel)  # a zygote that is forked now is sent its own
        try:
            if not self._no_process:
                zygote = self._zygote(asked)
                number = (
                    number
                    or self._returned.pop(wanted.seat, None)
                    or multiprocessing_numbers.take()
                )
                zygote.send(replace(wanted, number=number), channel, trace)
        except SourceGone:
            self._bury()
            raise
        except BlockingIOError as error:  # it could not be made; others, if there are some, go on
            self._no_process = f"{error.strerror} (errno {error.errno})"
        if self._no_process:
            self._news.append(Refused(wanted.seat, wanted.life, self._no_process))

    def _fork_here(self, wanted: Wanted, channel: socket.socket, trace: StackFile) -> bool:
        """Fork one of the first lives. Return False if the machine gives no process."""
        if self._mother is None:
            self._mother = _before_fork(self._job, self._status)
            self._choice = self._lineage.choice
        try:
            born = self._first_workers.fork(
                wanted, channel, trace, self._mother, self._status, self._lineage.looked_for
            )
        except BlockingIOError:
            return False
        self._news.append(born)
        self._lineage.forked()
        return True

    def _beware(self, hazard: ForkHazard, spared: frozenset[tuple[int, int]] = frozenset()) -> None:
        """Have all lives come from a clean process, since a fork was not safe. `spared`: the one
        that is being asked for."""
        self._mother = self._choice = None
        self._lineage.beware(str(hazard))
        self._replace_crew(spared)

    def _replace_crew(self, spared: frozenset[tuple[int, int]]) -> None:
        """Have the first lives made anew: all are to be what the others are."""
        if self._first_workers.numbers:
            self._returned.update(
                self._first_workers.process_numbers()
            )  # they keep the numbers they have
            self._news.append(Orphaned("workers come from a clean process", True, spared))

    def hear(self) -> Sequence[News]:
        self._news.extend(self._first_workers.reap())
        if self._mother is not None and not (self._first or self._deferred):
            # After the last of the first lives, since it must be what they are; and not before
            # their ends of the channels are closed here, which it would hold open.
            with contextlib.suppress(BlockingIOError):  # it is made when it is needed, if it can be
                self._zygote()
        zygote = self._present
        if zygote is not None:
            gone = zygote.is_gone()  # first: what it said before is read below
            self._news.extend(zygote.read())
            self._waiting.look_at_end(zygote)
            if gone or zygote.is_gone():
                self._bury()
        news, self._news = self._news, []
        return news

    def defer(self) -> None:
        self._deferred = True

    def settle(self) -> None:
        self._deferred = False

    def forsake(self) -> None:
        zygote = self._present
        if zygote is not None:
            zygote.forsaken = True
            zygote.kill()
            # Else it is buried when it is gone.
            if zygote.is_gone(self._limits.starting.killed_zygote_s):
                self._bury()

    def report(self, report: Report) -> None:
        match report:
            case JobOpened(modules=modules, seconds=seconds):
                self._stillborn = 0
                if self._present is not None:
                    self._present.opened(modules, seconds)
            case JobUnfit(words=words, details=details):
                zygote = self._present
                if zygote is not None and zygote.sealed and zygote.unfit is None:
                    zygote.unfit = Unfit(words, details)
                    zygote.kill()
            case EndedWhileOpening(how=how):
                self._ended_while_opening(how)
            case NeverGotGoing():
                if self._lineage.turn():
                    self._make_all_anew("no worker got going")
            case _:
                assert_never(report)

    def _ended_while_opening(self, how: str) -> None:
        if self._present is None or not self._present.sealed:
            return  # it was another's
        self._stillborn += 1
        most = self._limits.starting.stillborn_zygotes
        if self._stillborn >= most and self._lineage.refuse(ChildProcessError(how)):
            self._present.given_up = True
            self.forsake()

    def inherited(self, wait: Wait) -> Inherited | None:
        return self._lineage.inherited(self._born_by, wait, self._job.dataset)

    @property
    def can_turn(self) -> bool:
        return self._lineage.may_turn(self._born_by)

    def expect_turn(self) -> None:
        self._lineage.expect_turn()

    def turn(self, words: str) -> None:
        if self._lineage.leave_fork(words):
            self._make_all_anew("workers are made anew")

    def _make_all_anew(self, words: str) -> None:
        """Have all present workers replaced: the loader's choice is another one now."""
        self._choice = None
        if self._present is None:  # those that were forked here are to be made anew as well
            self._news.append(Orphaned(words, True))
        else:
            self._present.given_up = True
            self.forsake()

    def close(self) -> None:
        zygote, self._present = self._present, None
        if zygote is not None and not self._job.stays and self._lineage.keep(zygote):
            self._first_workers.see_off()
        elif zygote is not None:
            zygote.quit(self._first_workers)
        else:
            self._first_workers.see_off()
        self._waiting.close()

    def __repr__(self) -> str:
        return f"<ZygoteSource, present: {self._present!r}>"

    def _zygote(self, asked: frozenset[tuple[int, int]] = frozenset()) -> Zygote:
        """Return the present zygote; make one if there is none. `asked`: the life it is for."""
        if self._present is None:
            self._present = self._make(asked)
            self._choice = self._lineage.choice
            if self.forks:
                self._lineage.forked()
            self._waiting.begin(self._present)
        return self._present

    def _make(self, asked: frozenset[tuple[int, int]]) -> Zygote:
        mother, self._mother = self._mother, None
        if mother is None and self._choice is not None and self._may_fork:
            self._lineage.look_again(self._job)
        if self.forks and not self._may_fork:
            self._replace_crew(asked)
        if self._may_fork:
            try:
                mother = mother or _before_fork(self._job, self._status)
                return Zygote.fork(mother, self._lineage.looked_for, self._limits.forking)
            except ForkHazard as hazard:  # a clean process is better
                self._beware(hazard, asked)
        if not self._may_fork:
            warn_of_connections(self._job.dataset, held_by(self._job), sent=True)
        while self._lineage.choice.descent is WorkerOrigin.CLEAN_PROCESS:  # bounded: `_stillborn`
            try:
                return Zygote.bring(self._job, self._status, self._lineage)
            except SourceGone:
                self._lineage.forget_kept()
                self._count_stillborn()
            except (TransportFailed, Unsendable, CostsTooMuch, MemoryShort, OSError) as error:
                self._refuse(error)
        return Zygote.fork(_before_fork(self._job, self._status))

    def _count_stillborn(self, how: str = "a clean process ends before it is ready") -> None:
        self._stillborn += 1
        if self._stillborn >= self._limits.starting.stillborn_zygotes:
            self._refuse(ChildProcessError(how))

    def _refuse(self, error: Exception) -> None:
        """Go another way, or raise."""
        if not self._lineage.refuse(error):
            if isinstance(error, TransportFailed):
                raise error
            raise TransportFailed.cannot_start(str(error)) from error

    def _bury(self) -> None:
        """Let go of the present zygote, which has ended, and put that among the news."""
        zygote, self._present = self._present, None
        assert zygote is not None
        self._news.extend(zygote.read())
        told = zygote.unfit is not None and self._lineage.refuse(zygote.unfit.words)
        how, opened = zygote.how_it_ended(), zygote.opening is None
        lost = zygote.lost_its_home
        told = told or zygote.given_up or lost
        # Where all are to be made in another way, those that were forked here are, too.
        spared = frozenset() if told else self._first_workers.numbers
        self._news.append(Orphaned(how, told, spared))
        self._waiting.end(zygote)
        zygote.close()
        if not opened:
            self._lineage.forget_kept()  # perhaps it comes from there
        if not (opened or lost or zygote.forsaken) and zygote.unfit is None:
            self._count_stillborn(how)


def _before_fork(job: Job, status: StatusBoard) -> Mother:
    """Prepare this process for forking lives, or a zygote, at once; return what they must
    know."""
    assert not multiprocessing.current_process().daemon, DAEMONIC
    held = held_by(job)
    warn_of_connections(job.dataset, held)
    global_generators()  # what is learnt of them here need not be learnt by every worker
    native_thread_pools.lay_down()
    return Mother(
        job=job,
        status=status,
        main_pid=os.getpid(),
        main=None,
        forked=True,
        by_kernel=threading.current_thread() is threading.main_thread(),
        positions=positions(held),
        held=held,
        handled=signal_handlers.passed_on(),
    )
