"""Looking at workers from outside: what they say they do, what the kernel says, what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .._core.health.memory_growth import Room
from .._core.health.stall_detection import Activity, Sight
from .._core.health.worker_phases import CLEAN
from .._linux import network_bytes
from .._linux.available_memory import available
from .._linux.live_processes import private_bytes
from .._reporting.stall_messages import where
from .._reporting.wait_totals import Usage
from . import process_activity
from .fork_safety import fork_hazards
from .resource_usage import usage_of
from .starting.slow_unpickling import Opening
from .starting.start_method_messages import Wait, is_for_semaphore
from .starting.worker_source import WorkerSource
from .worker_socket import Line


class WorkerInspector:
    """Look at the workers of one backend; never wait for them, and leave them alone."""

    def __init__(
        self, lines: Mapping[tuple[int, int], Line], source: WorkerSource, look_s: float
    ) -> None:
        """`look_s`: how often a worker looks at itself."""
        self._lines, self._source, self._look_s = lines, source, look_s

    def look(self) -> Sequence[Sight]:
        return [self._sight(line) for line in self._lines.values()]

    def _sight(self, line: Line) -> Sight:
        pid = line.worker.pid
        if pid is None and not self._source.forks:
            return Sight(line.seat, line.life, 0, CLEAN)
        return Sight(
            line.seat, line.life, *line.status.call, 0 if pid is None else private_bytes(pid)
        )

    def usage(self) -> Sequence[Usage]:
        living = [(line.seat, line.worker.pid) for line in self._lines.values()]
        return [usage_of(seat, pid) for seat, pid in living if pid is not None]

    def room(self) -> Room | None:
        left = available()
        return Room(left.bytes, left.of, left.source) if left.of else None

    def examine(self, seat: int, life: int) -> Activity | None:
        line = self._lines.get((seat, life))
        if line is None:
            return None
        witness: Line | Opening = line
        pid = line.worker.pid
        if pid is None and (parent := self._source.parent) is not None:  # it is to be forked there
            pid, witness = parent.acting_pid, parent.opening or line
        if pid is None:
            return None
        runs = process_activity.runs(pid)  # first: to answer for its stack it has to run
        before = witness.trace.bytes
        stack = witness.stack(self._look_s)
        has_timer = witness.trace.has_timer(line.status.call)
        seen = process_activity.activity(pid, stack, has_timer=has_timer)
        after = witness.trace.bytes
        own = after if after == before else -after  # it wrote meanwhile: like no other look
        if seen is None:
            return None
        lacks, inherited = "", None
        if self._source.forks and seen.received == network_bytes.NOTHING:  # no server's answer
            lacks = fork_hazards.left_behind(pid, seen.stack)
        if seen.deadlock or lacks or seen.own_lock:
            wait = Wait(seen.deadlock, lacks, where(seen.stack), is_for_semaphore(seen.stack))
            inherited = self._source.inherited(wait)
        if seen.wakeable and (inherited is None or inherited.no_way):
            seen = replace(seen, deadlock="")  # a handler might release the lock
        return replace(seen, own_bytes=own, runs=runs, left_behind=lacks, inherited=inherited)

    def resume(self, seat: int, life: int) -> None:
        if (line := self._lines.get((seat, life))) is not None:
            line.go_on()
        # Its parent, too: who stopped one has perhaps stopped all, and the next is asked of it.
        if (parent := self._source.parent) is not None:
            parent.go_on()
