"""The right to hold room for one parcel, and when that room may be used again.

1. A ticket in flight holds one lease, from the moment it is dealt until it is delivered.
2. A slot has one holder at a time; each new lease of a slot has a new generation.
3. Room that a condemned life may still write to is quarantined until that life is gone;
   if it never goes, the slot is retired and a new one takes its place.

    free --lend--> lent --seal--> sealed --free--> free
                    |  \\--free--> free; \\--retire--> retired
                    \\--quarantine--> quarantined --free--> free
                                             \\--retire--> retired
"""

from __future__ import annotations

from collections.abc import Iterator

from .messages import message
from .states import State


class LeaseState(State):
    FREE = "free"
    LENT = "lent"  # a life may write there
    SEALED = "sealed"  # the parcel is complete and waits for the loop
    QUARANTINED = "quarantined"  # nobody may touch it until the life that held it is gone
    RETIRED = "retired"  # never used again: a process the kernel cannot end may write there


class LeaseCue(State):
    LEND = "lend"
    SEAL = "seal"
    QUARANTINE = "quarantine"
    FREE = "free"
    RETIRE = "retire"


TRANSITIONS: dict[tuple[LeaseState, LeaseCue], LeaseState] = {
    (LeaseState.FREE, LeaseCue.LEND): LeaseState.LENT,
    (LeaseState.LENT, LeaseCue.SEAL): LeaseState.SEALED,
    (LeaseState.LENT, LeaseCue.QUARANTINE): LeaseState.QUARANTINED,
    (LeaseState.LENT, LeaseCue.FREE): LeaseState.FREE,
    (LeaseState.LENT, LeaseCue.RETIRE): LeaseState.RETIRED,
    (LeaseState.SEALED, LeaseCue.FREE): LeaseState.FREE,
    (LeaseState.QUARANTINED, LeaseCue.FREE): LeaseState.FREE,
    (LeaseState.QUARANTINED, LeaseCue.RETIRE): LeaseState.RETIRED,
}


@message
class Lease:
    slot: int
    generation: int


class LeaseTable:
    """Lend a bounded number of slots and know who holds which."""

    __slots__ = ("_free", "_generations", "_states")

    def __init__(self, capacity: int) -> None:
        self._states = [LeaseState.FREE] * capacity
        self._generations = [0] * capacity
        self._free = list(range(capacity - 1, -1, -1))

    @property
    def capacity(self) -> int:
        """Count the slots that are or can become free."""
        return len(self._states) - self.count(LeaseState.RETIRED)

    def lend(self) -> Lease | None:
        """Lend a free slot, or give None: the caller waits, it never takes more."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._states[slot] = TRANSITIONS[self._states[slot], LeaseCue.LEND]
        self._generations[slot] += 1
        return Lease(slot, self._generations[slot])

    def seal(self, lease: Lease) -> None:
        self._move(lease, LeaseCue.SEAL)

    def quarantine(self, lease: Lease) -> None:
        self._move(lease, LeaseCue.QUARANTINE)

    def free(self, lease: Lease) -> None:
        self._move(lease, LeaseCue.FREE)
        self._free.append(lease.slot)

    def retire(self, lease: Lease) -> None:
        self._move(lease, LeaseCue.RETIRE)
        self._free.append(len(self._states))
        self._states.append(LeaseState.FREE)
        self._generations.append(0)

    def state(self, lease: Lease) -> LeaseState:
        """Say what a lease is worth now; an outdated generation is worth nothing."""
        if self._generations[lease.slot] != lease.generation:
            return LeaseState.FREE
        return self._states[lease.slot]

    def count(self, state: LeaseState) -> int:
        return self._states.count(state)

    def unsound(self) -> Iterator[str]:
        free = [slot for slot, state in enumerate(self._states) if state is LeaseState.FREE]
        if sorted(self._free) != free:
            yield f"slots {sorted(self._free)} are listed as free, {free} are"

    def _move(self, lease: Lease, cue: LeaseCue) -> None:
        if self._generations[lease.slot] != lease.generation:
            raise ValueError(f"{lease} is outdated: generation {self._generations[lease.slot]}")
        self._states[lease.slot] = TRANSITIONS[self._states[lease.slot], cue]
