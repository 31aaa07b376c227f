"""Perform the core's commands about worker processes: start, stop and kill them, report on them."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from .._core import commands as do
from .._core import events as ev
from .._core.faults import Ending
from .._core.loader_plan import Plan, Source
from .._loading.observations import StreamCarry, StreamPrint, StreamState
from .._processes.backend_protocol import Backend
from .._reporting.reporter import Reporter
from .._worker.worker_spec import EpochBrief
from .stream_positions import StreamPositions

WorkerCommand = (
    do.BeginEpoch
    | do.StopLife
    | do.KillLife
    | do.AbandonLife
    | do.ResumeLife
    | do.ExpectTurn
    | do.ReleaseLock
    | do.ReportLate
    | do.ReportStall
    | do.ReportGrowth
)


class WorkerCommands:
    """Perform them for one driver. By whoever holds its lock."""

    def __init__(self, plan: Plan, backend: Backend, reporter: Reporter) -> None:
        self._backend, self._reporter = backend, reporter
        self._is_stream = plan.source is Source.STREAMS
        self._streams = StreamPositions(plan.limits.streams)
        self.brief = EpochBrief(0)  # of the present epoch, for every worker that takes part
        self.failed_starts: list[do.StartLife] = []  # that raised: the core knows nothing of it

    def start(self, command: do.StartLife) -> ev.LifeEnded | None:
        """Start a worker process. Raise what starting the first one of a slot raised; later ones
        that could not be started have ended, as the returned event says."""
        self._reporter.nothing_said(command.seat)
        try:
            brief = self.brief
            if command.heir:
                brief = replace(brief, heir=command.heir)
                self._reporter.tell_heir(command.seat)
            if self._is_stream:
                brief = self._streams.brief(brief, command)
                self._reporter.tell_lost(command.seat, self._streams.lost.pop(command.seat, ()))
            self._backend.start(command.seat, command.life, brief)
        except BaseException as error:
            if command.life == 1 or not isinstance(error, Exception):
                self.failed_starts.append(command)
                raise
            ending = Ending(words=f"it could not be started: {type(error).__name__}: {error}")
            return ev.LifeEnded(command.seat, command.life, ending)
        return None

    def note_stream(
        self, seat: int, seen: StreamState | StreamCarry | StreamPrint
    ) -> ev.StreamMarked | None:
        """Note where the stream of a worker is. Return the event if the core must know of it."""
        if self._streams.note(seat, seen) and isinstance(seen, StreamState):
            return ev.StreamMarked(seat, can_resume=not seen.useless)
        return None

    def perform(self, command: WorkerCommand) -> None:
        """Perform a command that has no answer."""
        match command:
            case do.BeginEpoch():
                self._backend.begin_epoch(command.seat, command.life, self.brief)
            case do.StopLife():
                self._backend.stop(command.seat, command.life)
            case do.KillLife(seat=seat, life=life):
                doubted, unfit = command.doubted, command.unfit
                self._backend.kill(seat, life, command.force, doubted=doubted, unfit=unfit)
            case do.AbandonLife():
                self._backend.abandon(command.seat, command.life)
            case do.ResumeLife():
                self._backend.resume(command.seat, command.life)
            case do.ExpectTurn():
                self._backend.expect_turn()
            case do.ReleaseLock():
                self._reporter.tell_lock(command, self._backend.release(command.lock))
            case do.ReportLate():
                self._reporter.tell_late(command)
            case do.ReportStall():
                self._reporter.tell_stall(command)
            case do.ReportGrowth(growth=growth):
                self._reporter.expect_suspects(growth)
                self._backend.explain(growth.seat, growth.life)
            case _:
                assert_never(command)
