"""Where the streams of workers are, as they told it: where one that replaces them goes on.

1. Of each epoch the last states of a stream are kept, and fingerprints of its batches. A stream
   goes on from a state after which batches are known: what it gives again must be what it gave.
2. A worker that stays has left earlier epochs behind it, and what that did to its dataset nobody
   knows but the dataset. So whoever replaces it at the beginning of an epoch leaves the epoch
   before as it did: goes to where it was, takes what it was asked for, and drops the iterator.
3. Where even that cannot be done, nobody guesses: the stream ends with an error.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from .._core.commands import StartLife
from .._core.frozen_values import record
from .._core.limits import LIMITS, StreamLimits
from .._loading.job import Resume
from .._loading.observations import StreamCarry, StreamPrint, StreamState
from .._worker.worker_spec import EpochBrief


@record
class _Epoch:
    """What one worker's stream has told of an epoch."""

    number: int
    states: deque[StreamState]  # the latest last
    prints: dict[int, int]  # of batches, by number
    tells: bool = False  # it has a state
    useless: bool = False  # its states do not say where it is

    def resume(self, past: int) -> Resume:
        """Return how to go on with it, and with what: what is known to have come is not to come
        again."""
        over = bool(self.states) and self.states[-1].over
        past = self.states[-1].batches if over else past
        known = tuple(sorted(self.prints.items()))
        for base in reversed(self.states):  # the latest after which something must come again
            if base.state and any(base.batches < batch <= past for batch in self.prints):
                known = tuple(each for each in known if each[0] > base.batches or each[0] == 1)
                return Resume(past, base.batches, base.state, over, base.asked, known)
        return Resume(past, over=over, known=known)


class StreamPositions:
    """The streams of all seats."""

    def __init__(self, limits: StreamLimits = LIMITS.streams) -> None:
        self._limits = limits
        self._epochs: dict[int, deque[_Epoch]] = {}  # by seat; the latest last
        # By seat, and by epoch: what it began, or will begin, with.
        self._carried: dict[int, dict[int, StreamCarry]] = {}
        self._astray: set[int] = set()  # seats of which nobody knows any more where they should be
        self.lost: dict[int, tuple[str, ...]] = {}  # by seat: what one that begins now does without

    def note(self, seat: int, seen: StreamState | StreamCarry | StreamPrint) -> bool:
        """Take what a worker told. Return whether it is news that its stream can be taken up again,
        or that it cannot."""
        if isinstance(seen, StreamCarry):
            self._carry(seat, seen)
            return False
        epoch = self._epoch(seat, seen.epoch)
        if isinstance(seen, StreamState) and seen.lost:
            self._astray.add(seat)
        if epoch is None:  # of long ago
            return False
        if isinstance(seen, StreamPrint):
            epoch.prints[seen.batch] = seen.printed
            if len(epoch.prints) > self._limits.prints:
                del epoch.prints[next(batch for batch in epoch.prints if batch != 1)]
            return False
        epoch.tells = True
        if not (seen.state or seen.over or seen.useless):  # it has begun
            return True
        was, epoch.useless = epoch.useless, seen.useless
        if not seen.useless:
            epoch.states.append(seen)
            full = len(epoch.states) == self._limits.states
            base = epoch.states[0].batches if full else 0
            epoch.prints = {
                batch: each for batch, each in epoch.prints.items() if batch > base or batch == 1
            }
        return was != epoch.useless

    def _epoch(self, seat: int, number: int) -> _Epoch | None:
        epochs = self._epochs.setdefault(seat, deque(maxlen=self._limits.epochs))
        if not epochs or epochs[-1].number < number:
            epochs.append(_Epoch(number, deque(maxlen=self._limits.states), {}))
        return next((each for each in epochs if each.number == number), None)

    def _carry(self, seat: int, seen: StreamCarry) -> None:
        kept = self._carried.setdefault(seat, {})
        kept[seen.epoch] = seen
        for other in [each for each in kept if each < seen.epoch - 1]:
            del kept[other]

    def brief(self, brief: EpochBrief, command: StartLife) -> EpochBrief:
        """Return where a worker begins: where the one before it was, in the same stream."""
        if command.seat in self._astray:
            return replace(brief, unknown=True)
        epochs = {each.number: each for each in self._epochs.get(command.seat, ())}
        here = epochs.pop(brief.epoch, None)
        if here is not None and not here.useless:
            resume = here.resume(command.past)
            if resume.state:
                return replace(brief, resume=resume)
            if command.past or resume.over:
                brief = replace(brief, resume=resume)
        elif command.past:
            brief = replace(brief, resume=Resume(command.past))
        return self._begin(brief, command, epochs)

    def _begin(
        self, brief: EpochBrief, command: StartLife, epochs: dict[int, _Epoch]
    ) -> EpochBrief:
        """Return what the worker begins its epoch with, if that is not the first one."""
        useless = any(each.useless for each in epochs.values())
        tells = any(each.tells for each in epochs.values())
        carried = self._carried.get(command.seat, {})
        if useless or (carried and not tells):
            return self._begin_with_carried(brief, command, moves=tells)
        legs: list[Resume] = []
        for number in reversed(range(brief.epoch)):
            if len(legs) >= len(command.before):
                return replace(brief, unknown=True)
            asked = command.before[len(legs)]
            epoch = epochs.get(number)  # None: no worker has come to tell anything of it
            legs.append(Resume(asked) if epoch is None else epoch.resume(asked))
            if legs[-1].state:
                break
        return replace(brief, left=tuple(reversed(legs)))

    def _begin_with_carried(
        self, brief: EpochBrief, command: StartLife, *, moves: bool
    ) -> EpochBrief:
        """Begin with what the worker said that it would begin with, where its states say no more:
        streams without a state, or with one that does not tell single samples (`moves`)."""
        kept = self._carried.get(command.seat, {})
        told = [each for each in kept if each <= brief.epoch]
        if not told:
            return brief
        carried = kept[max(told)]
        if moves and carried.moved and not carried.over:
            return replace(brief, unknown=True)
        if carried.changed:
            self.lost[command.seat] = carried.changed
        return replace(brief, carried=carried.state, carried_over=carried.over)
