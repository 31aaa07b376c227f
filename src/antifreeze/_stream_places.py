"""Where the streams of workers are, as they told it: where one that replaces them goes on."""

from __future__ import annotations

from dataclasses import replace

from ._core.commands import StartLife
from ._core.traps import StreamCarry, StreamState
from ._worker.spec import EpochBrief, Resume


class StreamPlaces:
    """The latest state of each seat's stream, and what its epochs begin with."""

    def __init__(self) -> None:
        self._states: dict[int, StreamState] = {}
        self._before: dict[int, StreamState] = {}  # the last but one
        # By seat, and by epoch: the present one, and the next.
        self._carried: dict[int, dict[int, bytes]] = {}

    def note(self, seat: int, seen: StreamState | StreamCarry) -> bool:
        """Take what a worker told. Returns whether it is news that its stream can be taken up
        again, or that it cannot."""
        if isinstance(seen, StreamCarry):
            self._carry(seat, seen.epoch, seen.state)
            return False
        before, self._states[seat] = self._states.get(seat), seen
        if seen.over:
            self._carry(seat, seen.epoch + 1, seen.state)
        if before is None or before.epoch != seen.epoch:
            self._before.pop(seat, None)
            return True
        self._before[seat] = before
        return before.useless != seen.useless

    def _carry(self, seat: int, epoch: int, state: bytes) -> None:
        kept = self._carried.setdefault(seat, {})
        kept[epoch] = state
        for other in [each for each in kept if each < epoch - 1]:
            del kept[other]

    def brief(self, brief: EpochBrief, command: StartLife) -> EpochBrief:
        """Say where a worker begins: where the one before it was, in the same stream."""
        kept = self._carried.get(command.seat, {})
        epochs = [each for each in kept if each <= brief.epoch]
        if epochs:
            brief = replace(brief, carried=kept[max(epochs)])
        state = self._states.get(command.seat)
        if state is not None and state.epoch == brief.epoch and (state.state or state.over):
            where = Resume(command.past, state.batches, state.state, state.over, state.asked)
            before = self._before.get(command.seat)
            if before is not None and state.printed is not None and not state.over:
                where = Resume(
                    past=command.past,
                    batches=before.batches,
                    state=before.state,
                    asked=before.asked,
                    known=state.batches,
                    printed=state.printed,
                )
            return replace(brief, resume=where)
        return replace(brief, resume=Resume(command.past)) if command.past else brief
