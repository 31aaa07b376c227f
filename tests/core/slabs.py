"""The world's own book of slabs: who may touch which slot of which life, and since when.

It knows the rules of memory from the outside only. A slot of a life is with its worker from the
moment it is sent, then with a parcel that waits, then perhaps with the loop, and then with nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from antifreeze._core.slab_leases import Lease

LifeKey = tuple[int, int]  # seat, life
Place = tuple[int, int, int]  # seat, life, slot


@dataclass
class Parcel:
    """Where a parcel lies that waits for the loop."""

    key: LifeKey
    lease: Lease
    in_slab: bool

    @property
    def place(self) -> Place:
        return *self.key, self.lease.slot


class Slabs:
    """Follow every slot of every life, those that are gone as well."""

    def __init__(self, slots: int, most_kept: int) -> None:
        self._slots = slots  # of a life, at most
        self._most_kept = most_kept
        self._generations: dict[Place, int] = {}
        self._taken: dict[Place, str] = {}  # by whom; places that are free are not here
        self._renewals: set[Place] = set()  # their next lease must be a renewed one
        self.kept: dict[Place, Lease] = {}  # the loop looks at these
        self.spoiled: set[Place] = set()  # ... and so may a process that was forked
        self.past: list[tuple[LifeKey, Lease]] = []  # what the loop gave back before

    def lend(self, key: LifeKey, lease: Lease) -> None:
        place = (*key, lease.slot)
        assert 0 <= lease.slot < self._slots, f"{lease}: beyond what life {key} may have"
        assert place not in self._taken, f"{lease} of {key}: {self._taken[place]} has it"
        generation = self._generations.get(place, 0) + 1
        assert lease.generation == generation, f"{lease} of {key} should be the {generation}."
        assert lease.renewed == (place in self._renewals), f"{lease} of {key}: wrongly renewed"
        self._renewals.discard(place)
        self._generations[place] = generation
        self._taken[place] = "its worker"

    def seal(self, parcel: Parcel) -> None:
        assert self._taken[parcel.place] == "its worker"
        self._taken[parcel.place] = "a parcel"

    def free(self, key: LifeKey, lease: Lease) -> None:
        """Note that nobody touches a slot any more, whoever has done so."""
        del self._taken[*key, lease.slot]

    def deliver(self, parcel: Parcel, copied: bool) -> None:
        assert self._taken[parcel.place] == "a parcel"
        full = len(self.kept) >= self._most_kept
        assert copied == (parcel.in_slab and full), f"copied: {copied}, {len(self.kept)} kept"
        if parcel.in_slab and not copied:
            self._taken[parcel.place] = "the loop"
            self.kept[parcel.place] = parcel.lease
        else:
            del self._taken[parcel.place]

    def fork(self) -> None:
        self.spoiled.update(self.kept)

    def give_back(self, place: Place) -> Lease:
        lease = self.kept.pop(place)
        del self._taken[place]
        if place in self.spoiled:
            self.spoiled.remove(place)
            self._renewals.add(place)
        self.past.append((place[:2], lease))
        return lease
