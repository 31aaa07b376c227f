"""Where torch's behaviour is a trap: it is kept, and said, once a loader, with its remedy.

Workers and shell tell what they noticed; what of it is worth a word is decided here.

1. Nothing is said on suspicion: two workers that begin with the same batch, and never asked who
   they are, do load the same.
2. Each trap is told once for a loader, however often it is walked into.
"""

from __future__ import annotations

from typing import Any

from .messages import frozen


@frozen
class FirstBatch:
    """A worker brings its first batch of a stream, and nobody in it has asked who it is."""

    fingerprint: int


@frozen
class Drew:
    """A worker's stream has drawn from generators of the dataset's own."""

    paths: tuple[tuple[str, int], ...]  # with the state they began with


@frozen
class StreamState:
    """Where a worker's stream is, after so many batches of an epoch."""

    epoch: int
    batches: int
    state: bytes


@frozen
class StreamEnded:
    """A worker's stream is over."""

    samples: int  # it gave
    dropped: int  # of its last batch, which was not full
    error: str = ""  # after which it ended at once
    tally: int | None = None  # of all samples, in whatever order; if nobody asked who it is


@frozen
class Changed:
    """Attributes of a worker's dataset are not what they were, in words."""

    attributes: tuple[str, ...]


@frozen
class Suspect:
    """Something of the user's in a worker that holds much."""

    path: str  # "dataset.cache"
    items: int
    bytes: int = 0  # about; 0: nobody knows


@frozen
class Suspects:
    """What may have grown in a worker: the largest first."""

    found: tuple[Suspect, ...]


QUARANTINED = "quarantined"


@frozen
class SampleFailed:
    """A sample failed, and a policy says what becomes of it."""

    kind: str
    verdict: str
    index: Any
    attempt: int
    seconds: float = 0.0
    exception: str = ""
    traceback: str = ""
    position: int | None = None


Observation = FirstBatch | Drew | StreamState | StreamEnded | Changed | Suspects | SampleFailed

SHOWN = 3  # attributes in one warning


class Traps:
    """All that was noticed of one loader's run, and what is to be said of it."""

    def __init__(self, seats: int, told: set[str] | None = None) -> None:
        """`told`: what has been said of this loader before."""
        self._seats = seats
        self._told: set[str] = set() if told is None else told
        self.due: list[str] = []  # to be said, by whoever is in the user's thread
        # To be logged: torch's own tests allow no warning in the middle of a stream.
        self.in_passing: list[str] = []
        self.begin_epoch()

    def begin_epoch(self) -> None:
        self._firsts: dict[int, int] = {}
        self._ended: dict[int, StreamEnded] = {}
        self._drew: dict[tuple[str, int], set[int]] = {}

    def notice(self, seat: int, seen: Observation) -> None:
        match seen:
            case FirstBatch(fingerprint=fingerprint):
                self._firsts.setdefault(seat, fingerprint)
                same = [each for each in self._firsts.values() if each == fingerprint]
                if len(same) > 1 and "twins" not in self._told:
                    self._told.add("twins")
                    self.in_passing.append(twins(self._seats))
            case Drew(paths=paths):
                for path, state in paths:
                    seats = self._drew.setdefault((path, state), set())
                    seats.add(seat)
                    if len(seats) > 1 and "drew" not in self._told:
                        self._told.add("drew")
                        self.in_passing.append(same_draws(path, self._seats))
            case StreamEnded(error=error):
                self._ended[seat] = seen
                self._look_for_twins(seen)
                if error:
                    self._tell("cut short", cut_short(seat, error))
                self._look_at_dropped()
            case Changed(attributes=attributes):
                self._tell("changed there", changed_in_workers(attributes))
            case SampleFailed() | Suspects() | StreamState():
                pass  # no trap: kept elsewhere

    def changed_here(self, attributes: tuple[str, ...]) -> None:
        """Take note of what the main process changed after its workers had been made."""
        if attributes:
            self._tell("changed here", changed_in_main(attributes))

    def _look_for_twins(self, latest: StreamEnded) -> None:
        """See whether two workers gave the same samples, if in another order."""
        if latest.tally is None or latest.samples < 2:
            return
        given = (latest.samples, latest.tally)
        same = [each for each in self._ended.values() if (each.samples, each.tally) == given]
        if len(same) > 1:
            self._tell("twins", twins(self._seats, begin="give the same samples"))

    def _look_at_dropped(self) -> None:
        if len(self._ended) < self._seats or self._seats == 1:
            return  # or it is what drop_last means
        given = sum(each.samples for each in self._ended.values())
        dropped = sum(each.dropped for each in self._ended.values())
        if dropped > given:
            self._tell("dropped", mostly_dropped(dropped, given, self._seats))

    def two_loops(self) -> None:
        """Take note that a loop begins while another has the loader's persistent workers."""
        self._tell("two loops", two_loops())

    def _tell(self, trap: str, text: str) -> None:
        if trap not in self._told:
            self._told.add(trap)
            self.due.append(f"antifreeze: {text}")


# ---- in words ------------------------------------------------------------------------------------


def twins(seats: int, begin: str = "begin with the same batch") -> str:
    return (
        f"the {seats} workers {begin}: each of them iterates over the whole"
        f" IterableDataset, so that every sample comes {seats} times an epoch. Have its __iter__"
        " ask torch.utils.data.get_worker_info() and give each worker a part:"
        " `itertools.islice(samples, info.id, None, info.num_workers)`; or num_workers=1."
    )


def same_draws(path: str, seats: int) -> str:
    return (
        f"{path} gives the same numbers in each of the {seats} workers, and again in every epoch:"
        " each has a copy of it as it was. Where samples should differ, make it in __iter__ from"
        " torch.utils.data.get_worker_info().seed; where all workers are to shuffle alike, all is"
        " well."
    )


def mostly_dropped(dropped: int, given: int, seats: int) -> str:
    return (
        f"drop_last dropped {dropped} of {dropped + given} samples: each of the {seats} workers"
        " drops the rest of its own part of an IterableDataset, which did not fill a batch. Use"
        " fewer workers, smaller batches, or drop_last=False."
    )


def cut_short(seat: int, error: str) -> str:
    return (
        f"the stream of worker {seat} ended with its error ({error}): a generator that raises is"
        " over, and what would have followed is missing from this epoch. Handle the error inside"
        " the dataset's __iter__, where it can go on with the next sample."
    )


def changed_in_main(attributes: tuple[str, ...]) -> str:
    return (
        f"{_listed(attributes)} in this process, and persistent workers do not see it: they have"
        " the dataset as it was when they started. Use persistent_workers=False, which makes"
        " workers anew for each epoch; or keep the value where all processes see it:"
        " `self.value = torch.tensor(0).share_memory_()`."
    )


def changed_in_workers(attributes: tuple[str, ...]) -> str:
    return (
        f"{_listed(attributes)} in a worker: each worker has a dataset of its own, and the one in"
        " the main process stays as it was. Return such values with the sample; or keep them"
        " where all processes see them: `self.value = torch.tensor(0).share_memory_()`."
    )


def two_loops() -> str:
    return (
        "the persistent workers of this loader are busy with another loop, which is not finished:"
        " this one gets workers of its own. (Torch would have both loops share one epoch.) For"
        " good, give each loop a loader; or end the first one: `del iterator`."
    )


def _listed(attributes: tuple[str, ...]) -> str:
    more = f" and {len(attributes) - SHOWN} more" if len(attributes) > SHOWN else ""
    have = "has" if len(attributes) == 1 else "have"
    return f"{', '.join(attributes[:SHOWN])}{more} {have} changed"
