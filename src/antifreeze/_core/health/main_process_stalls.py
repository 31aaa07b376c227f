"""What keeps loops waiting in their own process: a sampler; without workers, whatever is loaded.

1. It is judged as the calls of workers are (`stall_detection`), by looks that come once a second.
2. Nobody can be replaced here, so all that comes of it is words.
3. Of loops inside one another, in one thread, only the innermost keeps the others waiting.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..frozen_values import frozen
from ..limits import LIMITS, Limits, StallLimits
from .stall_detection import Activity, Sight, Stall, StallDetector
from .worker_phases import OURS

_LIFE = 0  # this process has no other


@frozen
class MainProcessCall:
    """What a loop says it does."""

    loop: int  # a number that no other has; later ones are higher
    thread: int
    position: int  # of the batch
    step: int  # `OURS`: the loop is away


class MainProcessCalls:
    """Keep the calls that loops are in, in this process."""

    def __init__(self, limits: StallLimits = LIMITS.stalls) -> None:
        self._limits = limits
        self._stalls = StallDetector(Limits(still_s=None, spin_s=None, stalls=limits))
        self._quiet: dict[int, tuple[float, float]] = {}  # by loop: until when, and then how long

    def __repr__(self) -> str:
        return f"<MainProcessCalls {self._stalls!r}>"

    def seen(self, calls: Sequence[MainProcessCall], now: float) -> list[int]:
        """Take what all loops say. Gives those that should be examined."""
        for loop in self._quiet.keys() - {call.loop for call in calls}:
            del self._quiet[loop]
        innermost: dict[int, MainProcessCall] = {}
        for call in sorted(calls, key=lambda call: call.loop):
            if call.step != OURS:
                innermost[call.thread] = call
        self._stalls.begin(now, {(call.loop, _LIFE) for call in innermost.values()})
        sights = [
            Sight(call.loop, _LIFE, call.position + 1, call.step) for call in innermost.values()
        ]
        return [sight.seat for sight in sights if self._stalls.see(sight, now, now)]

    def examined(self, loop: int, activity: Activity, now: float) -> Stall | None:
        """Judge a call by what was seen of it, now and before. Gives what is to be told."""
        # A call lasts from where it was first seen, whoever waits for it.
        advice = self._stalls.examined((loop, _LIFE), activity, now, waiting_since=0.0)
        if advice is None or not advice.report:
            return None
        # Where every sample is slow, one line is enough.
        if advice.stall.seconds < self._limits.reported_s[1]:
            until, quiet_s = self._quiet.get(loop, (0.0, self._limits.quiet_s))
            if now < until:
                return None
            self._quiet[loop] = now + quiet_s, 2 * quiet_s
        return advice.stall
