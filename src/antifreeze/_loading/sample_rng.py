"""Randomness belongs to the sample: what it draws depends on the epoch's seed and its position.

So neither the number of workers nor their pace nor a crash changes a batch. To seed every generator
before every sample costs more than many a sample does, so:

1. A generator is watched first, and seeded before every sample. Once a sample has drawn from it, it
   is seeded for good.
2. After some samples without a draw it is quiet: no longer seeded, only looked at after a batch.
   If somebody has drawn after all, that batch must be loaded again, now with seeds.
3. Collating has a place of its own beside the samples, `__getitems__` the place of the first one.
4. A generator that belongs to the dataset starts from its own state: those that are equal stay so.
5. With no workers the generators are the caller's: lent for a batch, and given back as they were.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from enum import Enum
from typing import Any

from .._core.frozen_values import record
from .rng_adapters import LOW_64, Generator, as_bytes, global_generators, own_generators
from .rng_search import generators_in
from .rng_search_cache import Form

QUIET_AFTER = 64  # samples without a draw; a late first one only costs its batch a second load
FORM_COSTS = 8  # epochs, to note what all is like; in vain if that changes all the time
MOST_FORMS = 32 * FORM_COSTS
FIRST = 0  # the place of a batch's first sample
COLLATING = -1  # the place of the collate function

_STEP = 0x9E3779B97F4A7C15  # splitmix64's


class Use(Enum):
    WATCHED = "watched"
    DRAWN = "drawn"
    QUIET = "quiet"


_QUIET = Use.QUIET


@record
class Stream:
    """One generator, and what is known about its use."""

    name: str
    generator: Generator
    salt: int
    use: Use = Use.WATCHED
    sown: int = 0  # how often it was seeded, without a draw
    mark: object = None  # when it was seeded last, or turned quiet
    lent: Any = None  # the caller's own state
    lent_mark: object = None
    keeps: bool = False  # that state keeps a number for a later call


class Randomness:
    """All generators that the samples of a dataset may draw from."""

    def __init__(
        self, *roots: Any, lent: bool = False, salts: dict[str, int] | None = None
    ) -> None:
        """Look for generators in these objects, too. `lent`: the caller must not notice.

        `salts` are those of the dataset as it was sent, before anything of this worker's own was
        put into it: where there is none for a generator, its path is all that counts.
        """
        self._globals, self._found = global_generators(), generators_in(roots)
        self._presences = [generator.is_present for _, generator in self._globals]
        self._streams = [
            Stream(name, generator, _hash(name.encode())) for name, generator in self._globals
        ]
        self._own = [
            Stream(path, generator, _salt(path, generator, salts))
            for path, generator in (own_generators(roots) if self._found else ())
        ]
        self._streams += self._own
        self._lent = lent
        self._sown = list(self._streams)  # those that are seeded before every sample
        self._quiet: list[Stream] = []  # the others
        self._marks: list[Callable[[], object]] = []  # of those
        self._unmoved: list[object] = []  # what these say as long as nobody draws
        self._form: Form | None = None  # of the roots, when they were searched last
        self._forms = 0  # what was spent on it
        self._opened = 0, 0  # seed and epoch
        self._epoch: int | None = None  # what follows from these, when it is needed
        self._batch = 0
        self.sows = True  # there is something to seed

    def open(self, seed: int, epoch: int) -> None:
        """Begin an epoch, counted from 0 for as long as the seed stays."""
        self._opened, self._epoch = (seed, epoch), None

    def renew(self, *roots: Any) -> bool:
        """Prepare for another epoch. Return False if that takes a new `Randomness`: the generators
        in these objects, or those of the process, are others than before.

        What is known of their use is kept, since it decides nothing about data: a generator that
        was watched for an epoch, and not drawn from, is quiet from now on.
        """
        if self._form is not None and self._form.holds(roots):
            self._forms -= 1
        else:
            if [*map(id, generators_in(roots))] != [*map(id, self._found)]:
                return False
            self._note_form(roots)
        for is_present in self._presences:
            if not is_present():
                return False
        for stream in self._own:
            stream.salt = _salt(stream.name, stream.generator, None)
        for stream in self._sown:  # `_turn` makes another list
            if stream.use is Use.WATCHED and stream.sown and not stream.keeps:
                self._turn(stream, Use.QUIET)
                self._unmoved = []  # the caller may have drawn since its state was saved
        return True

    def _note_form(self, roots: tuple[Any, ...]) -> None:
        """Note what the objects are like in which the generators were found just now."""
        self._form = None
        if self._forms < MOST_FORMS:
            self._forms = max(0, self._forms) + FORM_COSTS
            with contextlib.suppress(Exception):  # it has none
                self._form = Form(roots)

    def rests(self) -> bool:
        """Say, before a batch, that there is nothing to do for it but to see afterwards that all is
        `untouched`."""
        if self._sown:
            return False
        if self._lent:
            marks = [mark() for mark in self._marks]
            if marks != self._unmoved:  # the caller has drawn, meanwhile
                self._borrow(marks)
        return not self._sown

    def untouched(self) -> bool:
        """Say, while it rests, that nobody has drawn."""
        return [mark() for mark in self._marks] == self._unmoved

    def begin(self, position: int) -> None:
        """Begin a batch."""
        if self._lent:
            self._borrow([stream.generator.mark() for stream in self._streams])
        if self._sown:
            if self._epoch is None:
                seed, epoch = self._opened
                self._epoch = _mix(_mix(seed & LOW_64) + epoch * _STEP & LOW_64)
            self._batch = _mix(self._epoch + position * _STEP & LOW_64)

    def sow(self, place: int) -> None:
        """Seed what is in use, for one sample of the batch."""
        key = self._batch + place * _STEP
        for stream in self._sown:
            if stream.use is Use.WATCHED:
                self._look(stream)
            stream.generator.seed(_mix(key + stream.salt & LOW_64))
            if stream.use is Use.WATCHED:
                stream.mark = stream.generator.mark()
                stream.sown += 1

    def end(self) -> bool:
        """End a batch. Say whether it must be loaded again: it drew where nothing was seeded."""
        again = False
        for stream in self._quiet:
            if stream.generator.mark() != stream.mark:
                self._turn(stream, Use.DRAWN)
                again = True
        if self._sown:
            self._count()
        if self._lent:
            self._give_back()
        return again

    def __repr__(self) -> str:
        uses = ", ".join(f"{stream.name} {stream.use.value}" for stream in self._streams)
        return f"<Randomness {uses}>"

    def _look(self, stream: Stream) -> None:
        """See whether a watched generator was drawn from since it was seeded."""
        if stream.mark is not None and stream.generator.mark() != stream.mark:
            self._turn(stream, Use.DRAWN)

    def _count(self) -> None:
        """See which of the watched ones were drawn from, and which have been quiet for long."""
        for stream in self._sown:
            if stream.use is Use.WATCHED:
                self._look(stream)
            if stream.use is Use.WATCHED and stream.sown >= QUIET_AFTER:
                self._turn(stream, Use.QUIET)

    def _turn(self, stream: Stream, use: Use) -> None:
        """Note a new use. (Makes new lists: somebody may be going through the old ones.)"""
        stream.use = use
        if use is not Use.QUIET:
            stream.lent_mark = None  # to be saved in full: it may be given back after every batch
        stream.mark = stream.generator.mark()
        self._sown = [each for each in self._streams if each.use is not Use.QUIET]
        self._quiet = [each for each in self._streams if each.use is Use.QUIET]
        self.sows = bool(self._sown)
        self._marks = [each.generator.mark for each in self._quiet]
        self._unmoved = [each.mark for each in self._quiet]

    def _borrow(self, marks: list[object]) -> None:
        """Save the states of those that have moved. `marks` are those of all streams."""
        for stream, mark in zip(self._streams, marks, strict=True):
            # A state that keeps a number can be drawn from without a change of its mark.
            if mark != stream.lent_mark or stream.keeps:
                generator, quiet = stream.generator, stream.use is _QUIET
                lent = stream.lent = generator.lend() if quiet else generator.save()
                stream.lent_mark, stream.keeps = mark, generator.keeps(lent)
                if stream.keeps and quiet:
                    self._turn(stream, Use.WATCHED)
            stream.mark = mark
        all_quiet = len(self._quiet) == len(marks)
        self._unmoved = marks if all_quiet else [each.mark for each in self._quiet]

    def _give_back(self) -> None:
        for stream in self._streams:
            if stream.keeps or stream.generator.mark() != stream.lent_mark:
                stream.generator.restore(stream.lent)


def salts_in(*roots: Any) -> dict[str, int]:
    """Give what makes the streams of generators in these objects differ: their states, by path."""
    if not generators_in(roots):
        return {}
    return {path: _salt(path, generator, None) for path, generator in own_generators(roots)}


def _salt(path: str, generator: Generator, known: dict[str, int] | None) -> int:
    if known is None:
        return _hash(as_bytes(generator.save()))
    return known.get(path, _hash(path.encode()))


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _mix(number: int) -> int:
    """Spread a 64-bit number over all 64 bits, as splitmix64 ends."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & LOW_64
    number = (number ^ number >> 27) * 0x94D049BB133111EB & LOW_64
    return number ^ number >> 31
