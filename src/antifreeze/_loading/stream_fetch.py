"""The stream of an iterable dataset, as the fetcher takes samples from it; and the way to where
another worker was in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

from .._core.health.worker_phases import OURS, SAMPLE
from .._loading.observations import Opening, SampleFailed, StreamEnded
from .._transport.status_board import Steps
from .._transport.traceback_frames import formatted
from ..errors import WorkerFailed
from ..policies import SUBSTITUTES
from .cpu_or_waiting import Stopwatch
from .dataset_mutations import Tally, print_of_batch
from .job import Job, Resume
from .resumable_streams import Bookmark, begin_stream
from .sample_file_names import file_of

NOT_THERE = (
    "a worker was replaced, and the state of its stream did not lead back to where it was: loaded"
    " again, it gave other samples than it had given after that state before. This worker's stream"
    " ends here, so that no sample comes twice. Let state_dict() tell exactly which sample comes"
    " next (not the shard, say), and let samples depend on nothing else"
)


STAYS_THERE = (
    "a worker was replaced, and this epoch starts with the batches at which the one before was"
    " resumed: the dataset keeps the state that was loaded, and applies it at every iter(). This"
    " worker's stream ends here, so that no epoch is cut short silently. Let load_state_dict()"
    " apply to the next iter() only"
)
Seen = tuple[int | None, object]
COMPARED = 2  # batches after a state: one may be the same by chance, as of a shuffled dataset


class StreamOver(Exception):
    """The stream of an iterable dataset has no more batches."""


class StreamPart:
    """What a fetcher has and does for a stream."""

    _job: Job
    _steps: Steps
    _stream: Iterator[Any] | None
    _watch: Stopwatch | None
    _phase: str
    _about: Any
    _file: str
    failures: list[SampleFailed]

    def _prepare_stream(self, job: Job) -> None:
        self.over = False  # the stream has met its end
        self.bookmark: Bookmark | None = None
        self._error = ""  # of the stream, the last time it was asked
        self._given = self._dropped = 0  # samples
        self._wanted = 0  # of them at a time
        self._tally: Tally | None = None
        if job.streams and job.num_workers > 1:
            self._tally = Tally(parted=job.init_fn is not None)
        self.asked = 0  # samples
        self.printed: int | None = None  # a fingerprint of the last batch, if that was wanted
        self.number = 0  # of the last batch, counted from 1
        self._resume: Resume | None = None  # what another life has given of the stream
        # Of the first batches after a state: fingerprints, and the states after them.
        self.after_load: list[Seen] = []
        self.unlike: list[Seen] = []  # the same, of the epoch before, where this one does not begin
        self._alike = True  # so far it does not
        self.peek: Callable[[Any], object] = lambda stream: None  # returns the state, as it is now

    def _begin_stream(self, job: Job, resume: Resume | None) -> None:
        if resume is not None and resume.over and not job.stays:
            self._stream, self.over = iter(()), True  # nobody will know the difference
            return
        self._stream = begin_stream(job, resume)
        if resume is not None:
            self._resume, self.number, self._tally = resume, resume.batches, None
            self._given = self.asked = resume.asked

    def _at(self, step: int) -> None:
        words, at = self._steps
        words[at] = step

    @property
    def ending(self) -> StreamEnded:
        """Say how the stream ended."""
        goes_on = self._job.policy.action == "skip" and not isinstance(self._stream, GeneratorType)
        error = "" if goes_on else self._error  # an iterator that raised last was over by itself
        batch = self._wanted if self._job.drop_last else 0
        if self._tally is None:
            return StreamEnded(self._given, self._dropped, error, batch=batch)
        tally = self._tally.sum, self._tally.different, self._tally.asked
        return StreamEnded(self._given, self._dropped, error, *tally, batch=batch)

    def openings(self) -> list[Opening]:
        """Give, once, what the stream began with, when there is enough of it."""
        return [] if self._tally is None else self._tally.openings()

    def _stream_samples(self, stream: Iterator[Any], indices: Any) -> Any:
        self._phase, self._about = "taking the next sample of the stream", None
        self._wanted = wanted = len(indices) if self._job.auto_collation else 1
        self.failures.clear()
        self.number += 1
        samples = self._take(stream, wanted)
        if not samples:
            raise StreamOver
        if self._job.drop_last and len(samples) < wanted:
            self._dropped = len(samples)
            raise StreamOver
        self._given += len(samples)
        if self._tally is not None:
            self._tally.add(samples)
        return samples if self._job.auto_collation else samples[0]

    def _look_at_batch(self, batch: Any) -> None:
        """Take the fingerprint of a batch of the stream, if somebody may want it."""
        self.printed = None
        compared = self._resume is None and self._alike and self.number <= len(self.unlike)
        if self.bookmark is not None and self.bookmark.wants_print:
            self.printed = self.bookmark.print_of(batch)
        if compared:
            now, then = self._seen(batch), self.unlike[self.number - 1]
            self._alike = any(
                each is not None and each == other for each, other in zip(now, then, strict=True)
            )
            if self._alike and self.number == len(self.unlike):
                self.over = True
                raise WorkerFailed(STAYS_THERE)
        if self._follows_state():
            self.after_load.append(self._seen(batch))

    def _seen(self, batch: Any) -> Seen:
        state = self.peek(self._stream)
        return print_of_batch(batch), None if state == (None, None) else state

    def _follows_state(self) -> bool:
        """Whether the present batch is one of the first after a state that was loaded."""
        resume = self._resume
        if resume is None or not resume.state:
            return False
        return self.number == resume.batches + len(self.after_load) + 1 <= resume.batches + COMPARED

    def catch_up(self, *, leaving: bool = False) -> None:
        """Bring the stream to where another life was: take again what that has given, which must be
        the same, and collate it, which may draw. Raises WorkerFailed, or what the stream does.

        `leaving`: that life was asked for more, which nobody has received; it may have met the end.
        """
        resume = self._resume
        if resume is None:
            return
        assert self._stream is not None
        wanted = self._job.batch_size if self._job.auto_collation else 1
        known = dict(resume.known)
        steps, self._steps = self._steps, ([OURS], 0)  # it is the beginning of an epoch
        try:
            while self.number < resume.past:
                self.number += 1
                if not self._again(self._stream, wanted, known.get(self.number)):
                    if leaving and self.over and not any(each >= self.number for each in known):
                        break
                    raise WorkerFailed(NOT_THERE)
            ends_now = resume.over and not self.over
            if ends_now:
                more = self._take(self._stream, wanted)
                if not self.over or (more and not self._job.drop_last):
                    raise WorkerFailed(NOT_THERE)
        except WorkerFailed:
            self.over = True
            raise
        finally:
            self._steps = steps
            self.failures.clear()
        if self.after_load and self.after_load[0][0] == known.get(1, 0):
            self.after_load.clear()  # the batches are all alike, perhaps

    def _again(self, stream: Iterator[Any], wanted: int, known: int | None) -> bool:
        """Take a batch once more. Return whether it can be the one that it was."""
        self.failures.clear()  # these were told then
        try:
            samples = self._take(stream, wanted)
            if not samples:
                return False
            self._given += len(samples)
            batch = self._job.collate_fn(samples if self._job.auto_collation else samples[0])
        except Exception:  # it was raised then, too
            return known is None
        if self._follows_state():
            self.after_load.append(self._seen(batch))
        return known is None or print_of_batch(batch) == known

    def _take(self, stream: Iterator[Any], wanted: int) -> list[Any]:
        samples: list[Any] = []
        while len(samples) < wanted and not self.over:
            self._at(SAMPLE + len(samples))
            if self._watch is not None:
                self._watch.lap(len(samples))
            self.asked += 1
            try:
                samples.append(next(stream))
                self._error = ""
                if self.bookmark is not None and self.bookmark.probes:
                    self.bookmark.probe(self.asked)
            except StopIteration:
                self.over = True
            except Exception as error:
                self._error = f"{type(error).__name__}: {error}".splitlines()[0]
                self._pass_over(error)
        return samples

    def _pass_over(self, error: Exception) -> None:
        """Leave out a sample of a stream, if the policy says so and the stream still gives some."""
        policy = self._job.policy
        if policy.action != "skip" or not isinstance(error, policy.only):
            self._file = file_of(error, None, None)
            raise error
        if len(self.failures) >= SUBSTITUTES:
            raise error
        told, file = formatted(error), file_of(error, None, None)
        self.failures.append(
            SampleFailed(
                "exception", "skipped", self.asked - 1, 1, 0.0, self._error, told, file=file
            )
        )
