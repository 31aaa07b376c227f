"""Streams that can be taken up again: their state after a batch, and the way back to it.

1. A state is that of the dataset, of the iterator that it returns, or both: `state_dict` and
   `load_state_dict`. With it go the generators of the process and of the dataset.
2. States are told after the batch they stand for. If they take long they are told less often: the
   batches after the last one are taken, and thrown away, by whoever goes on from there.
3. Where fetching has met the end of the stream, the end is told: a dataset that rewinds for its
   next epoch would say that it is at the beginning.
4. Nobody believes a state: a stream goes on from the last but one, and what it gives again must be
   what it gave then, batch by batch (fingerprints). Otherwise it ends with an error. What is taken
   again is collated, too: that may draw.
5. Nobody guesses what a state means to the next epoch: whoever replaces a worker there leaves the
   epoch before as that one did (`_engine/stream_positions.py`). Where a state does not tell single
   samples, or there is none, workers that stay tell what their next epoch begins with.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import torch

from .._core.limits import LIMITS
from .._linux.clock import monotonic
from .dataset_mutations import Attributes, print_of_batch
from .job import Job, Resume
from .observations import StreamCarry, StreamPrint, StreamState
from .rng_adapters import Generator, global_generators, own_generators

# Samples at the start of an epoch after each of which the state is looked at. One that does not
# change with a sample (the number of a shard, say) does not tell where the stream is; two batches
# later it may have changed all the same.
PROBED = 4

_SHARE, _QUICK_S = LIMITS.streams.state_share, LIMITS.streams.quick_s  # looked up at every batch


def is_stateful(thing: Any) -> bool:
    """Whether a dataset, or an iterator, can say where it is and begin there. (The state of a
    module of torch's is something else.)"""
    if isinstance(thing, torch.nn.Module):
        return False
    return callable(getattr(thing, "state_dict", None)) and callable(
        getattr(thing, "load_state_dict", None)
    )


class Place:
    """Where a worker is in its run, as bytes: states of dataset and iterator, and generators."""

    def __init__(self, data: bytes) -> None:
        self._dataset, self._stream, self._generators = pickle.loads(data)

    @staticmethod
    def pack(dataset: bytes | None, stream: bytes | None, all_of: dict[str, Generator]) -> bytes:
        saved = {name: each.save() for name, each in all_of.items()}
        return pickle.dumps((dataset, stream, saved), protocol=5)

    @property
    def has_dataset(self) -> bool:
        """Whether there is a state of the dataset's."""
        return self._dataset is not None

    def load_dataset(self, dataset: Any) -> None:
        if self._dataset is not None:
            dataset.load_state_dict(pickle.loads(self._dataset))

    def holds(self, stream: Any) -> bool:
        """Whether an iterator has the state that is meant."""
        try:
            return bool(pickle.dumps(stream.state_dict(), protocol=5) == self._stream)
        except Exception:  # of the user's making
            return False

    def load_stream(self, stream: Any) -> None:
        if self._stream is not None:
            stream.load_state_dict(pickle.loads(self._stream))

    def restore_generators(self, job: Job) -> None:
        for name, each in generators_of(job).items():
            if name in self._generators:
                each.restore(self._generators[name])


def generators_of(job: Job) -> dict[str, Generator]:
    """Return the generators that a stream, or the collate function, may draw from."""
    return dict([*own_generators((job.dataset, job.collate_fn)), *global_generators()])


def begin_stream(job: Job, resume: Resume | None) -> Iterator[Any]:
    """Call `iter` on a dataset, and bring it to where a state was told."""
    place = Place(resume.state) if resume is not None and resume.state else None
    if place is not None:
        place.load_dataset(job.dataset)
    stream: Iterator[Any] = iter(job.dataset)
    if place is not None:
        # A dataset that is its own iterator has its state, unless `iter` has taken it back.
        if stream is not job.dataset or not place.holds(stream):
            place.load_stream(stream)
        place.restore_generators(job)
    return stream


def carry_on(job: Job, carried: bytes, *, over: bool) -> None:
    """Bring a dataset, and all generators, to where another worker's were when an epoch began.
    `over`: that had met the end of the epoch before.

    What a state means that was told at the end of a stream, the dataset alone knows: that the next
    epoch follows, or that nothing does, until `iter` is called once more.
    """
    place = Place(carried)
    place.load_dataset(job.dataset)
    place.restore_generators(job)
    if over and place.has_dataset:
        ended = object()
        if next(iter(job.dataset), ended) is not ended:
            place.load_dataset(job.dataset)
        place.restore_generators(job)


class Bookmark:
    """Know where a worker's stream is, and tell so every now and then.

    A state that does not change does not say where the stream is. It, or one that cannot be had, is
    told as useless, and nobody is asked for one any more.
    """

    def __init__(self, job: Job) -> None:
        self._job, self._dataset, self._stays = job, job.dataset, job.stays
        self._were = Attributes(job.dataset)
        self._stream: Any = None
        self._watched = False  # the iterator, or the dataset, has a state that is of use
        self._useless = False  # its state does not say where the stream is
        self._generators: dict[str, Generator] = {}
        self._epoch = self._batches = 0
        self._began = self._spent = self._printing_s = 0.0
        self._last: tuple[bytes | None, bytes | None] | None = None
        self._probes = 0
        self._looked_at = 0  # samples that the stream had been asked for
        self._over = False
        self._rest_s = 0.0  # what it took to say that
        self._carried = b""  # what was told last of what the next epoch begins with
        self._began_with: bytes | None = None  # the dataset's state, before `iter` was called
        self._state_draws = False  # `state_dict` itself draws from a generator

    def before(self, epoch: int) -> StreamCarry | None:
        """Return what an epoch begins with, before `iter` is called."""
        if not self._stays or not epoch:
            return None
        return self._carry(epoch)

    def _carry(self, epoch: int) -> StreamCarry:
        state = self._pickled(self._dataset)
        self._carried = Place.pack(state, None, self._generators)
        moved = state != self._began_with
        grown = self._were.grown(self._dataset) if state is None else None
        changed = () if grown is None else grown.attributes
        return StreamCarry(epoch, self._carried, self._batches, self._over, moved, changed)

    def begin(self) -> None:
        """Note what an epoch begins with, before `iter` is called."""
        self._generators = generators_of(self._job) if self._stays else {}
        if self._stays:
            self._began_with = self._pickled(self._dataset)

    def open(self, stream: Any, epoch: int, resume: Resume | None) -> StreamState | None:
        """Begin an epoch. Returns that its stream can be taken up again, if it can."""
        self._stream = stream
        self._watched = is_stateful(stream) or is_stateful(self._dataset)
        if self._watched or self._stays:
            self._generators = generators_of(self._job)
        self._epoch, self._batches = epoch, 0 if resume is None else resume.past
        self._began, self._spent, self._over = monotonic(), 0.0, False
        self._printing_s = 0.0
        self._last, self._probes, self._looked_at = None, 0, 0
        if not self._watched:
            return None
        self._last, self._probes = self._take(), PROBED
        return None if resume is not None else StreamState(epoch, 0, b"")

    @property
    def probes(self) -> bool:
        """Whether to call `probe` after the next sample."""
        return self._probes > 0 and self._last is not None

    def probe(self, asked: int) -> None:
        """Look at the state after a sample, at the start of an epoch."""
        self._probes -= 1
        self._look(asked)

    def watches(self, *, over: bool) -> bool:
        """Whether there is something to tell after a batch."""
        return self._watched or (over and self._stays)

    @property
    def wants_print(self) -> bool:
        """Whether to take a fingerprint of the next batch, since it may have to come again."""
        may_come = self._watched and self._last is not None
        may_come = may_come or self._job.policy.action == "skip"
        return may_come and self._printing_s <= _SHARE * (monotonic() - self._began)

    def print_of(self, batch: Any) -> int | None:
        """Return the fingerprint of a batch; note how long it took."""
        began = monotonic()
        printed = print_of_batch(batch)
        self.spend_on_prints(monotonic() - began)
        return printed

    def spend_on_prints(self, seconds: float) -> None:
        """Note how long it took to make a fingerprint, or to send it."""
        self._printing_s += seconds

    def printed(self, number: int, printed: int | None) -> StreamPrint | None:
        """Return the fingerprint of a batch, which is about to be sent."""
        return None if printed is None else StreamPrint(self._epoch, number, printed)

    def pass_over(self) -> None:
        """Note that a batch came to nothing: it is behind, too."""
        self._batches += 1

    def turn(self, *, over: bool, asked: int) -> StreamState | StreamCarry | None:
        """Note that a batch was given. Returns the state now and then; always if the stream is
        over."""
        self._batches += 1
        return self.ended(asked) if over else self._state(asked)

    def ended(self, asked: int) -> StreamState | StreamCarry | None:
        """Return, once, that the stream is over."""
        if self._over or not (self._watched or self._stays):
            return None
        self._over = True
        if self._watched:
            return StreamState(self._epoch, self._batches, b"", over=True, asked=asked)
        return self._carry(self._epoch + 1)

    def rest(self) -> StreamCarry | None:
        """Return what the next epoch would begin with, if this one is left here, and nobody could
        get there by the states of this one."""
        if not self._stays or self._watched or self._over:
            return None
        if self._rest_s > _QUICK_S and self._takes_too_long:
            return None
        began, before = monotonic(), self._carried
        carry = self._carry(self._epoch + 1)
        self._rest_s = monotonic() - began
        if self._rest_s > _QUICK_S:
            self._spent += self._rest_s
        return None if carry.state == before else carry

    def spend(self, seconds: float) -> None:
        """Note how long it took to make a state and to send it."""
        self._spent += seconds

    @property
    def _takes_too_long(self) -> bool:
        return self._spent > _SHARE * (monotonic() - self._began)

    def _state(self, asked: int) -> StreamState | None:
        if not self._watched:
            return None
        if self._last is not None:
            if self._takes_too_long:
                return None
            if asked != self._looked_at:
                self._look(asked)
        last = self._last
        if last is None:
            self._watched, self._useless = False, True
            return StreamState(self._epoch, self._batches, b"", useless=True)
        place = Place.pack(*last, self._generators)
        return StreamState(self._epoch, self._batches, place, asked=asked)

    def _look(self, asked: int) -> None:
        self._looked_at = asked
        before, self._last = self._last, self._take()
        if self._last == before:
            self._last = None

    def peek(self, stream: Any) -> tuple[bytes | None, bytes | None]:
        """Return the states of the dataset and of an iterator, as they are now."""
        return self._pickled(self._dataset), self._pickled(stream)

    def _take(self) -> tuple[bytes | None, bytes | None] | None:
        """Return the states of the dataset and of the iterator; None if they are of no use."""
        found = self._pickled(self._dataset), self._pickled(self._stream)
        needed = found[1] if is_stateful(self._stream) else found[0]
        return None if needed is None else found

    def _pickled(self, thing: Any) -> bytes | None:
        """Return the state of the dataset, or of the iterator; None if there is none. Torch would
        not ask for it: what it draws is given back."""
        if not is_stateful(thing):
            return None
        if not self._generators:  # a worker that replaces another asks before its first epoch
            self._generators = generators_of(self._job)
        asks_first = self._last is None  # in an epoch, which may begin in its middle
        saved = {}
        if asks_first or self._state_draws:
            saved = {name: each.save() for name, each in self._generators.items()}
        marks = [each.mark() for each in self._generators.values()]
        try:
            return pickle.dumps(thing.state_dict(), protocol=5)
        except Exception:  # it takes arguments, or cannot be pickled: it is of no use
            return None
        finally:
            if marks != [each.mark() for each in self._generators.values()]:
                self._state_draws = True
                for name, state in saved.items():
                    self._generators[name].restore(state)
