"""Loaded batches in transit: one that is large, or several that are tiny, in one message."""

from __future__ import annotations

import pickle
import weakref
from typing import Any

from .._core.batch_timings import Timings
from .._core.events import Outcome
from .._core.frozen_values import record
from .exceptions import PackedException, rebuild_exception
from .mapped_slabs import SlabView
from .packing import Packed, find_grad
from .unpacking import Copies, copy_out, unpack
from .worker_slabs import Anchor

OUTCOMES = (Outcome.LOADED, Outcome.FAILED, Outcome.ENDED, Outcome.EMPTY)


# Where in a worker's memory a parcel lies: slot, generation, size of the slab. A bare tuple, as it
# travels: it is pickled with every parcel.
SlabMark = tuple[int, int, int]


class Bundle:
    """Parcels of one worker that travel together: all with the same outcome, all in slabs or all
    in the message. A descriptor that travels along is of the first one's slab."""

    __slots__ = (
        "begun_at",
        "collate_s",
        "fetch_s",
        "io_s",
        "marks",
        "outcome",
        "pack_s",
        "parcels",
        "samples",
        "sealed_at",
        "slowest",
    )

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.marks: list[SlabMark] = []  # one a parcel, or none
        self.parcels: list[tuple[int, Packed | None]] = []  # with their tickets' numbers
        self.fetch_s = self.collate_s = self.pack_s = self.io_s = 0.0  # of all of them together
        self.samples = 0
        self.slowest = (0.0, 0)  # of one that travels alone
        self.begun_at = self.sealed_at = 0.0  # the first, the last

    def add(
        self, number: int, packed: Packed | None, timings: Timings, mark: SlabMark | None = None
    ) -> None:
        if mark is not None:
            self.marks.append(mark)
        if not self.parcels:
            self.begun_at = timings.begun_at
            self.slowest = (timings.slowest_s, timings.slowest)
        self.parcels.append((number, packed))
        self.fetch_s += timings.fetch_s
        self.collate_s += timings.collate_s
        self.pack_s += timings.pack_s
        self.io_s += timings.io_s
        self.samples += timings.samples
        self.sealed_at = timings.sealed_at

    @property
    def timings(self) -> Timings:
        return Timings(*self._times())

    def _times(self) -> tuple[Any, ...]:
        return (
            self.fetch_s,
            self.collate_s,
            self.pack_s,
            self.begun_at,
            self.sealed_at,
            self.io_s,
            self.samples,
            *self.slowest,
        )

    def encode(self) -> bytes:
        return pickle.dumps(
            (
                OUTCOMES.index(self.outcome),
                self.marks,
                self._times(),
                [(number, _fields(packed)) for number, packed in self.parcels],
            ),
            protocol=5,
        )

    @classmethod
    def decode(cls, body: memoryview) -> Bundle:
        outcome, marks, timings, parcels = pickle.loads(body)
        bundle = cls(OUTCOMES[outcome])
        bundle.marks = marks
        bundle.fetch_s, bundle.collate_s, bundle.pack_s, *times = timings
        bundle.begun_at, bundle.sealed_at, bundle.io_s, bundle.samples, *slowest = times
        bundle.slowest = tuple(slowest)
        bundle.parcels = [
            (number, None if fields is None else Packed(*fields)) for number, fields in parcels
        ]
        return bundle


def _fields(packed: Packed | None) -> tuple[Any, ...] | None:
    if packed is None:
        return None
    return (
        packed.skeleton,
        packed.table,
        packed.offsets,
        packed.inline,
        packed.slab_bytes,
        packed.history_cut,
    )


@record
class ReceivedParcel:
    """A parcel as it came. Opening it gives the batch, once, or raises the error it holds."""

    number: int
    outcome: Outcome
    _packed: Packed | None
    _slab: SlabView | None = None
    _copies: Copies | None = None
    _error: OSError | None = None
    _history_cut: bool = False
    _looked: weakref.ref[Anchor] | None = None
    told: str = ""

    @property
    def in_slab(self) -> bool:
        """Say whether the batch, opened or not, lies in a slab."""
        return self._slab is not None or (self._looked is not None and self._looked() is not None)

    def copy_out(self) -> None:
        """Have the batch in memory of its own, at once: its slab is about to be filled again."""
        slab, self._slab = self._slab, None
        if slab is not None and self._packed is not None:
            try:
                self._copies = copy_out(self._packed, slab.look())
            except OSError as error:
                self._error = error

    def open(self) -> Any:
        packed, slab, copies = self._packed, self._slab, self._copies
        assert packed is not None, "an ended stream has no batch"
        self._packed = self._slab = self._copies = None
        if self._error is not None:
            raise self._error
        self._history_cut = packed.history_cut
        anchor = None
        if slab is not None:
            anchor = slab.keep()
            self._looked = weakref.ref(anchor)
        content = unpack(packed, anchor, copies)
        if self.outcome is Outcome.FAILED:
            if not isinstance(content, PackedException):
                raise TypeError(f"a failed parcel holds {type(content)}")
            self.told = f"{content.name}: {content.words}"
            raise rebuild_exception(content)
        return content

    def remark(self, batch: Any) -> str | None:
        """Say what the user should know about this batch, or None."""
        if not self._history_cut:
            return None
        return (
            f"antifreeze: {find_grad(batch) or 'the batch'} was computed from tensors that"
            " require grad, in a worker. Its values arrived; its autograd history stays in the"
            " worker, so no gradient flows back through it. Compute it in the training loop, or"
            " detach() it in the dataset to say that this is meant."
        )

    def drop(self) -> None:
        """Give back what an unopened parcel holds."""
        if self._slab is not None:
            self._slab.give_back()
        self._packed = self._slab = self._copies = None
