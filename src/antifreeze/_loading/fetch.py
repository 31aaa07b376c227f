"""From indices to a batch: the dataset's and the collate function's turn, timed and named.

The same code runs in a worker and, with no workers, in the main process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import GeneratorType
from typing import Any, Protocol

from torch.utils.data import default_collate, default_convert

from .._core.batch_timings import Timings
from .._core.health.worker_phases import COLLATE, ITER, OURS, SAMPLE, WHOLE
from .._linux.clock import monotonic
from .._loading.observations import SampleFailed
from .._reporting.formatting import said, shown
from .._transport.status_board import Steps
from ..errors import WorkerFailed
from .collate_mismatch import odd_samples
from .cpu_or_waiting import Effort, Stopwatch
from .error_advice import Phase, next_step
from .job import Job, Resume
from .on_error import Careful
from .sample_file_names import file_of
from .sample_rng import COLLATING, FIRST, Randomness
from .stream_fetch import StreamPart
from .subset_indices import behind, translated, underneath

NAMED = 16  # samples listed in a note, at most
# Samples that take longer, in the mean, are timed one by one: a look at the clock is nothing then.
TIMED_S = 0.0001
# For one of several batches in a message; and between two that are measured: a look costs 3 us.
UNUSUAL_S = 0.001


class Room(Protocol):
    """Where a batch may be collated."""

    def open(self) -> None:
        """Let it be collated here."""

    def again(self) -> None:
        """Forget what was collated here."""


class Fetcher(StreamPart):
    """Load batches; know what was being done when something raised."""

    def __init__(
        self,
        job: Job,
        randomness: Randomness | None = None,
        room: Room | None = None,
        steps: Steps | None = None,
        resume: Resume | None = None,
    ) -> None:
        """`steps`: where to write what is being done (see `_core/health/worker_phases.py`)."""
        self._steps: Steps = ([OURS], 0) if steps is None else steps
        self._job = job
        self._randomness = randomness
        self._room = room
        # Torch's own draw nothing. (What draws in there all the same, in a type of the user's, goes
        # on where the last sample has stopped: that depends on the place in the epoch as well.)
        collate: Any = job.collate_fn
        self._collate_draws = collate is not default_collate and collate is not default_convert
        self._stream: Iterator[Any] | None = None
        # Samples of the last batch that failed: left out, or about to be raised.
        self.failures: list[SampleFailed] = []
        self._careful: Careful | None = None
        if not job.streams and job.auto_collation and job.policy.watches:
            none_fails = job.collate_fn is default_collate
            self._careful = Careful(
                job.dataset, job.policy, none_fails=none_fails, quarantine=job.quarantine
            )
            self.failures = self._careful.failed
        self._spared: Sequence[int] = ()
        self._prepare_stream(job)
        self._about: Any = None
        self._phase = ""  # what is being done, and to which index or indices
        self._odd = ""  # what is unlike the rest in a batch that could not be collated
        self._has_none = False  # in that batch, and torch's collate does not take it
        self._file = ""  # of the sample that raised, if that is known
        self._proven = False  # the user's code has loaded a batch
        self.fetch_s, self.collate_s = 1.0, 0.0  # as if samples were slow: the first are timed
        self.io_s = 0.0  # of fetching
        self.samples = 0
        self._effort = Effort()
        self._measures = self._alone = False
        self._io_share = 0.0  # of fetching, when it was last measured
        self._watch: Stopwatch | None = None  # while samples are timed one by one
        if job.streams:
            self._phase = "calling iter() on the dataset"
            self._at(ITER)
            self._begin_stream(job, resume)

    def end(self) -> None:
        """Let go of the stream, if there is one: it is closed unless others hold it."""
        self._stream = None

    def take_pace_of(self, other: Fetcher) -> None:
        """Expect batches to take what those of an earlier epoch took, so that the first ones need
        not be measured closely."""
        self.fetch_s, self.samples = other.fetch_s, other.samples
        self._effort, self._io_share = other._effort, other._io_share

    def load(self, indices: Any, position: int, spared: Sequence[int] = ()) -> Any:
        """Load the batch of a position, so that nothing but its position decides what it draws.

        If it drew from a generator that had been quiet, it is loaded again. `spared`: see tickets.
        """
        self._spared = spared
        chance = self._randomness
        if chance is None:
            return self._load(indices)
        if chance.rests():
            try:
                batch = self._load(indices)
                if chance.untouched():
                    return batch
                del batch
            except BaseException as error:
                if chance.untouched():
                    raise
                if not isinstance(error, Exception):
                    chance.end()
                    raise
            chance.end()
            self._once_more()
        while True:  # bounded: each time there is one generator less that is quiet
            chance.begin(position)
            try:
                batch = self._load(indices)
            except BaseException as error:
                if not chance.end() or not isinstance(error, Exception):
                    raise
            else:
                if not chance.end():
                    return batch
                del batch
            self._once_more()

    def _once_more(self) -> None:
        self.failures.clear()
        if self._room is not None:
            self._room.again()

    def _load(self, indices: Any) -> Any:
        """Load one batch. Raises StreamOver at the end of a stream, else what the user's code did.

        A StopIteration from user code would end the caller's `for` loop without a word, so it
        becomes a RuntimeError, as in Python's own generators.
        """
        times = self._alone and self.fetch_s > TIMED_S * self.samples
        self._watch = Stopwatch() if times else None
        if self._measures:
            self._effort.begin()
        began, fetched = monotonic(), 0.0
        try:
            samples = self._samples(indices)
            fetched = monotonic()
            fetch_s = self.fetch_s = fetched - began
            many = self._job.auto_collation and type(samples) is list
            self.samples = len(samples) if many else 1
            if self._measures or fetch_s > UNUSUAL_S:
                self._note_effort(fetch_s)
            else:
                self.io_s = fetch_s * self._io_share
            if self._job.auto_collation:
                self._phase, self._about = "collating", indices
            self._at(COLLATE)
            if self._collate_draws and self._randomness is not None and self._randomness.sows:
                self._randomness.sow(COLLATING)
            if self._room is not None:
                self._room.open()
            try:
                batch = self._job.collate_fn(samples)
                self._proven = True
                if self._stream is not None:
                    self._look_at_batch(batch)
            except WorkerFailed:
                raise
            except Exception:
                default = self._job.collate_fn is default_collate
                self._has_none = default and _has_none(samples)
                self._odd = odd_samples(samples, indices, self._job.dataset, default=default)
                raise
        except StopIteration as error:
            raise RuntimeError(f"StopIteration was raised while {self.doing()}") from error
        finally:
            if fetched:
                self.collate_s = monotonic() - fetched
            else:  # it raised
                self.fetch_s = monotonic() - began
                self.samples, self.collate_s = 0, 0.0
                self._note_effort(self.fetch_s)
        return batch

    def measure(self, *, alone: bool) -> None:
        """Tell waiting from computing in the next batch, if the last time is some while ago; what
        it shows is taken for those after it. `alone`: no others travel with it."""
        self._alone = alone
        self._measures = monotonic() - self._effort.began_at > UNUSUAL_S

    def waits_since(self) -> float | None:
        """Say how long the fetch that is under way has waited; None if nobody has measured when it
        began. In the thread that fetches."""
        return self._effort.waited_s() if self._measures else None

    def _note_effort(self, fetch_s: float) -> None:
        """Say how much of a fetch it waited. One that was not measured from its beginning waited no
        longer than all since then."""
        self._measures = False
        self.io_s = min(fetch_s, self._effort.waited_s())
        self._io_share = self.io_s / fetch_s if fetch_s else 0.0
        if self._watch is not None:
            self._watch.stop()

    def timings(self, begun_at: float, loaded_at: float, sealed_at: float) -> Timings:
        """Give what the last batch took. Packing it began at `loaded_at`."""
        watch = self._watch
        slowest = (0.0, 0) if watch is None else (watch.slowest_s, watch.slowest)
        return Timings(
            self.fetch_s,
            self.collate_s,
            sealed_at - loaded_at,
            begun_at,
            sealed_at,
            self.io_s,
            self.samples,
            *slowest,
        )

    def doing(self) -> str:
        """Say in words what the last call of `load` was about when it ended."""
        return self._phase if self._about is None else f"{self._phase} {self._names(self._about)}"

    def notes(self, error: BaseException) -> tuple[str, ...]:
        """Return what else is known of the last batch, which could not be loaded: its file, what is
        odd in it, and what to try."""
        odd, self._odd = self._odd, ""
        file, self._file = self._file, ""
        none, self._has_none = self._has_none, False
        step = next_step(error, self._job, self._stage(), proven=self._proven, none=none)
        if file and file in said(error):  # it names it itself
            file = ""
        told = f"file: {file}" if file else "", odd, step
        return tuple(f"antifreeze: {each}" for each in told if each)

    def _stage(self) -> Phase:
        words, at = self._steps
        if words[at] == COLLATE:
            return Phase.COLLATE
        if words[at] < SAMPLE and words[at] != WHOLE:
            return Phase.OTHER
        if self._stream is None:
            return Phase.SAMPLE
        return Phase.GENERATOR if isinstance(self._stream, GeneratorType) else Phase.STREAM

    def _samples(self, indices: Any) -> Any:
        job = self._job
        if self._stream is not None:
            return self._stream_samples(self._stream, indices)
        dataset = job.dataset
        if not job.auto_collation:
            self._phase, self._about = "loading", indices
            self._sow(FIRST)
            self._at(WHOLE)
            try:
                return dataset[indices]
            except Exception as error:
                self._file = file_of(error, dataset, indices)
                raise
        if self._careful is not None:
            return self._by_policy(self._careful, list(indices))
        if hasattr(dataset, "__getitems__") and dataset.__getitems__:
            self._phase, self._about = "calling __getitems__ for", indices
            self._at(WHOLE)
            if (under := underneath(dataset)) is None:
                self._sow(FIRST)
                try:
                    return dataset.__getitems__(indices)
                except Exception as error:
                    self._file = file_of(error, dataset, None)
                    raise
            dataset, layers = under
            indices = list(indices)
            return self._one_by_one(dataset, translated(indices, layers), indices)
        if type(indices) is not list:
            self._phase, self._about = "reading the indices", None
            indices = list(indices)
        return self._one_by_one(dataset, indices, indices)

    def _one_by_one(self, dataset: Any, inner: list[Any], indices: list[Any]) -> list[Any]:
        """Load samples by the indices that `dataset` has for them; `indices` is what they are
        called."""
        words, at = self._steps
        words[at] = OURS
        numbered = enumerate(inner, SAMPLE)
        try:
            if self._watch is not None:
                return [self._timed(dataset, words[at], index) for words[at], index in numbered]
            if self._randomness is None or not self._randomness.sows:
                # Where a sample is a row of a table, a line more would cost more than it does.
                return [dataset[index] for words[at], index in numbered]
            return [self._sample(dataset, words[at], index) for words[at], index in numbered]
        except BaseException as error:
            place = words[at] - SAMPLE
            self._proven = self._proven or place > 0
            self._phase, self._about = "loading", indices
            if 0 <= place < len(indices):  # else it changed meanwhile, or nothing was begun
                sample = shown(indices[place]) + behind(self._job.dataset, indices[place])
                self._phase, self._about = f"loading sample {sample}", None
                self._file = file_of(error, self._job.dataset, indices[place])
                self.failures.append(
                    SampleFailed("exception", "raised", indices[place], 1, file=self._file)
                )
            raise

    def _by_policy(self, careful: Careful, indices: list[Any]) -> list[Any]:
        self._phase, self._about = "loading", indices
        try:
            return careful.load(indices, self._spared, self._begin_sample)
        except BaseException as error:
            self._file = file_of(error, self._job.dataset, careful.loading())
            if present := careful.present():
                self._phase, self._about = f"loading {present}", None
            raise

    def _begin_sample(self, place: int) -> None:
        self._at(SAMPLE + place)
        if self._watch is not None:
            self._watch.lap(place)
        self._sow(place)

    def failed(self) -> Sequence[SampleFailed]:
        """Give, once, the samples of the last batch that failed. Ask only if there are `failures`:
        most batches have none, and tiny ones feel a call."""
        noted = self.failures.copy()
        self.failures.clear()
        return noted

    def _timed(self, dataset: Any, step: int, index: Any) -> Any:
        self._begin_sample(step - SAMPLE)
        return dataset[index]

    def _sample(self, dataset: Any, step: int, index: Any) -> Any:
        self._sow(step - SAMPLE)
        return dataset[index]

    def _sow(self, place: int) -> None:
        if self._randomness is not None and self._randomness.sows:
            self._randomness.sow(place)

    @property
    def stream(self) -> Iterator[Any] | None:
        return self._stream

    def _names(self, indices: Any) -> str:
        if self._stream is not None:
            return "samples of the stream"
        if not self._job.auto_collation or not isinstance(indices, list | tuple):
            return f"sample {shown(indices)}{behind(self._job.dataset, indices)}"
        listed = indices
        more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
        return f"samples {', '.join(shown(index) for index in listed[:NAMED])}{more}"


def _has_none(samples: Any) -> bool:
    return type(samples) is list and any(sample is None for sample in samples)
