"""What one driver's loop waits for, as far as the driver itself knows: who else was told when.

The core splits a wait up to its answer (`_core/waits.py`); what follows until the loop leaves is
measured here: the sampler, which the loop's own thread has to ask, and the opening of the batch.
"""

from __future__ import annotations

from ._core.accounts import Accounts, Turnstile


class Meter:
    """Count the calls of `next`. By whoever holds the driver's lock, but for `settle`."""

    def __init__(self, accounts: Accounts, seats: int) -> None:
        self._accounts = accounts
        self.turnstile = Turnstile(accounts, seats)
        self.told_at = 0.0  # when the core was last told something that it had not answered
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
            self._accounts.wait.sampler += seconds

    def take_sampled(self) -> float:
        """Give what the sampler took while an epoch began."""
        seconds, self._sampled_s = self._sampled_s, 0.0
        return seconds

    def left(self, came_at: float, opens_at: float | None, now: float) -> None:
        """The loop leaves. None: it was broken off before there was an answer."""
        wait, sampled_s = self._accounts.wait, self._sampled_s
        if opens_at is None:
            wait.unknown += now - came_at - sampled_s
        else:
            wait.transport += now - opens_at - sampled_s
        self._sampled_s, self._came_at = 0.0, None
        self.turnstile.count(came_at, now)

    def settle(self, now: float) -> None:
        """Have all that was counted in the accounts, and the wait that is not over."""
        self.turnstile.fold(now)
        came_at = self._came_at
        self._accounts.open_s = 0.0 if came_at is None else max(0.0, now - came_at)
