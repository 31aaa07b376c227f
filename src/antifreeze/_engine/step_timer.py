"""What one driver's loop waits for, as far as the driver itself knows: who else was told when.

A wait is split up to its answer by `_reporting/wait_causes.py`; of what follows until the loop
leaves, the sampler's part is measured here, since the loop's own thread has to ask it. The rest is
for opening the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .._core.limits import LIMITS, LookLimits
from .._reporting.wait_totals import Accounts, Split, Turnstile, Usage

OpenWait = tuple[float, Split]  # how long it is; what of it is for what, if not yet counted


class StepTimer:
    """Watch the calls of `next` that have to ask. By whoever holds the driver's lock, but for
    `open_wait`."""

    def __init__(self, accounts: Accounts, seats: int, limits: LookLimits = LIMITS.looks) -> None:
        self._usage_s = limits.usage_s
        self._accounts, self._seats = accounts, seats
        self.turnstile = Turnstile(accounts, seats)
        self.told_at = 0.0  # when the core was last told something that it had not answered
        self._used_at = 0.0  # when somebody last saw what workers use of the machine
        self._came_at: float | None = None  # of a loop that waits
        self._sampled_s = 0.0  # by the sampler, where it is not part of a wait that the core splits

    def __repr__(self) -> str:
        waits = "away" if self._came_at is None else f"waiting since {self._came_at:.3f}"
        return f"<Meter of a loop that is {waits}>"

    def came(self, now: float) -> None:
        """The loop asks the core."""
        self._came_at = self.told_at = now

    def sampled(self, seconds: float, *, answered: bool) -> None:
        """The sampler took so long. `answered`: after the core had answered the loop."""
        if self._came_at is None:  # an epoch begins
            self._sampled_s += seconds
        elif answered:
            self._sampled_s += seconds
            with self._accounts.guard:  # other loops may have the same accounts
                self._accounts.wait.sampler += seconds

    def take_sampled(self) -> float:
        """Give what the sampler took while an epoch began."""
        seconds, self._sampled_s = self._sampled_s, 0.0
        return seconds

    def left(self, came_at: float, opens_at: float | None, now: float) -> None:
        """The loop leaves, which has asked. None: it was broken off before there was an answer."""
        sampled_s = self._sampled_s
        with self._accounts.guard:
            if opens_at is None:
                self._accounts.wait.unknown += now - came_at - sampled_s
                self.turnstile.told_s += now - came_at
            else:
                self.turnstile.told_s += opens_at - came_at + sampled_s
        self._sampled_s, self._came_at = 0.0, None

    def open_wait(self, now: float, so_far: Callable[[float, float], Split]) -> OpenWait | None:
        """Give the wait that is not over, if there is one. In any thread. `so_far` says what for,
        given when it is and when the core was last told something."""
        came_at = self._came_at
        return None if came_at is None else (max(0.0, now - came_at), so_far(now, self.told_at))

    def see_usage(self, now: float, look: Callable[[], Sequence[Usage]]) -> None:
        """See what the workers use of the machine: rarely, once all of them are born."""
        all_seen = len(self._accounts.usages) == self._seats
        if (now - self._used_at >= self._usage_s or not all_seen) and (usages := look()):
            self._used_at, self._accounts.usages = now, tuple(usages)
