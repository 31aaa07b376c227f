"""The right to use a slab of a worker's memory, and when that slab may be used again.

1. A ticket in flight holds one lease of the life that loads it, from the moment it is dealt. If
   its parcel needs no slab, the lease ends when it is delivered.
2. If the parcel lies in the slab, the loop keeps the lease until the last view of it is gone.
3. A slot has one holder at a time; each new lease of a slot has a new generation.
4. Memory belongs to one life. What a life that is gone had lent is nobody's concern: no other
   life writes there.
5. What the loop keeps while its process forks may be read by the child for ever. That slab is
   spoiled: the next lease of its slot says `renewed`, and the life takes new memory for it.
6. The loop keeps a bounded number of leases (`Plan.kept`). Beyond it a batch is copied out of its
   slab instead of lent (`KeptLeases.keep`), and the lease ends at once.

    free --lend--> lent --seal--> sealed --keep--> kept --spoil--> spoiled
    free <--free-- lent, sealed, kept, spoiled
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from .frozen_values import message
from .states import State


class LeaseState(State):
    FREE = "free"
    LENT = "lent"  # its life may write there
    SEALED = "sealed"  # the parcel is complete and waits for the loop
    KEPT = "kept"  # delivered: the loop looks at it, or will
    SPOILED = "spoiled"  # ... and so may a process that was forked meanwhile


class LeaseCue(State):
    LEND = "lend"
    SEAL = "seal"
    KEEP = "keep"
    SPOIL = "spoil"
    FREE = "free"


TRANSITIONS: dict[tuple[LeaseState, LeaseCue], LeaseState] = {
    (LeaseState.FREE, LeaseCue.LEND): LeaseState.LENT,
    (LeaseState.LENT, LeaseCue.SEAL): LeaseState.SEALED,
    (LeaseState.LENT, LeaseCue.FREE): LeaseState.FREE,
    (LeaseState.SEALED, LeaseCue.KEEP): LeaseState.KEPT,
    (LeaseState.SEALED, LeaseCue.FREE): LeaseState.FREE,
    (LeaseState.KEPT, LeaseCue.SPOIL): LeaseState.SPOILED,
    (LeaseState.KEPT, LeaseCue.FREE): LeaseState.FREE,
    (LeaseState.SPOILED, LeaseCue.SPOIL): LeaseState.SPOILED,
    (LeaseState.SPOILED, LeaseCue.FREE): LeaseState.FREE,
}


class LeaseKey(NamedTuple):
    """Name one lease among those of all lives. A tuple, because it is a key on every batch's way:
    as a message it would be hashed in Python."""

    seat: int
    life: int
    slot: int
    generation: int


@message
class Lease:
    slot: int
    generation: int
    renewed: bool = False  # the slab this slot had must not be used again


class LeaseTable:
    """Lend a bounded number of slots of one life and know the state of each.

    The slot that was freed last is lent first, so that as few slabs as possible are in use.
    """

    __slots__ = ("_free", "_generations", "_spoiled", "_states", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._states: list[LeaseState] = []  # grows to `capacity` as slots are needed
        self._generations: list[int] = []
        self._free: list[int] = []
        self._spoiled: set[int] = set()  # free slots whose memory must not be used again

    def lend(self) -> Lease | None:
        """Lend a free slot, or give None: the caller waits, it never takes more."""
        if self._free:
            slot = self._free.pop()
        elif len(self._states) < self.capacity:
            slot = len(self._states)
            self._states.append(LeaseState.FREE)
            self._generations.append(0)
        else:
            return None
        self._states[slot] = TRANSITIONS[self._states[slot], LeaseCue.LEND]
        self._generations[slot] += 1
        if self._spoiled and slot in self._spoiled:
            self._spoiled.remove(slot)
            return Lease(slot, self._generations[slot], True)
        return Lease(slot, self._generations[slot])

    def seal(self, lease: Lease) -> None:
        self._move(lease, LeaseCue.SEAL)

    def keep(self, lease: Lease) -> None:
        self._move(lease, LeaseCue.KEEP)

    def spoil(self, lease: Lease) -> None:
        self._move(lease, LeaseCue.SPOIL)

    def free(self, lease: Lease) -> None:
        slot = lease.slot
        before = self._states[slot]
        self._move(lease, LeaseCue.FREE)
        self._free.append(slot)
        if before is LeaseState.SPOILED:
            self._spoiled.add(slot)

    def state(self, lease: Lease) -> LeaseState:
        """Say what a lease is worth now; an outdated generation is worth nothing."""
        if self._generations[lease.slot] != lease.generation:
            return LeaseState.FREE
        return self._states[lease.slot]

    def count(self, *states: LeaseState) -> int:
        return sum(state in states for state in self._states)

    def unsound(self) -> Iterator[str]:
        free = [slot for slot, state in enumerate(self._states) if state is LeaseState.FREE]
        if sorted(self._free) != free:
            yield f"slots {sorted(self._free)} are listed as free, {free} are"
        if not self._spoiled <= set(free):
            yield f"slots {sorted(self._spoiled)} are to be renewed, and some are in use"
        if len(self._states) > self.capacity:
            yield f"{len(self._states)} slots, {self.capacity} are allowed"

    def _move(self, lease: Lease, cue: LeaseCue) -> None:
        if self._generations[lease.slot] != lease.generation:
            raise ValueError(f"{lease} is outdated: generation {self._generations[lease.slot]}")
        self._states[lease.slot] = TRANSITIONS[self._states[lease.slot], cue]


class Lender(Protocol):
    """What lends leases: one life of a worker slot."""

    @property
    def number(self) -> int: ...

    @property
    def leases(self) -> LeaseTable: ...


L = TypeVar("L", bound=Lender)


class KeptLeases(dict[LeaseKey, tuple[L, Lease]]):
    """The leases that the loop keeps, of whatever epoch: a bounded number of them."""

    __slots__ = ("_keep_limit",)

    def __init__(self, keep_limit: int) -> None:
        super().__init__()
        self._keep_limit = keep_limit

    def keep(self, seat: int, life: L, lease: Lease) -> bool:
        """Leave a slab to the loop. False: it keeps too many, so the batch must be copied out."""
        if len(self) >= self._keep_limit:
            return False
        life.leases.keep(lease)
        self[LeaseKey(seat, life.number, lease.slot, lease.generation)] = (life, lease)
        return True

    def take_back(self, keys: Iterable[LeaseKey]) -> None:
        """Free what the loop has returned. What it did not keep is not its to return."""
        for key in keys:
            kept = self.pop(key, None)
            if kept is not None:
                life, lease = kept
                life.leases.free(lease)

    def spoil(self) -> None:
        """Use nothing again that the loop keeps now, once it comes back."""
        for life, lease in self.values():
            life.leases.spoil(lease)
