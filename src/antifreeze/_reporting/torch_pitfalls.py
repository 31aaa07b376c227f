"""Where torch's behaviour is a trap: it is kept, and said, once a loader, with its remedy.

Workers and shell tell what they noticed; what of it is worth a word is decided here.

1. Nothing is said on suspicion: two workers that begin with the same samples, several that differ
   from each other, and never asked who they are, do load the same. Where somebody asked, all
   workers must agree, and in more.
2. Each trap is told once for a loader, however often it is walked into.
"""

from __future__ import annotations

from .._loading.observations import (
    Change,
    Changed,
    Drew,
    Observation,
    Opening,
    SampleFailed,
    StreamCarry,
    StreamEnded,
    StreamPrint,
    StreamState,
    Suspects,
)

SHOWN = 3  # attributes in one warning
FEW = 8  # different samples: as many do not begin two parts of one dataset
PLENTY = 64  # as many do not, even if somebody makes parts
AT_THE_END = 4  # different samples, if they are all that two workers gave
WORTH_A_WORD = 0.01  # of the samples given: as many were dropped


class TorchPitfalls:
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
        self._openings: dict[tuple[int, bool], dict[int, Opening]] = {}
        self._ended: dict[int, StreamEnded] = {}
        self._drew: dict[tuple[str, int], set[int]] = {}
        self.raised: set[int] = set()  # seats whose errors the loop has just received
        self._borne: set[int] = set()  # seats after whose errors the loop went on

    def went_on(self) -> None:
        """Take note that the loop asks for more after an error it has received."""
        self._borne |= self.raised
        self.raised.clear()
        self._look_for_cuts()

    def notice(self, seat: int, seen: Observation) -> None:
        match seen:
            case Opening():
                self._compare_openings(seat, seen)
            case Drew(paths=paths):
                for path, state in paths:
                    seats = self._drew.setdefault((path, state), set())
                    seats.add(seat)
                    if len(seats) > 1:
                        self._pass("drew", same_draws(path, self._seats))
            case StreamEnded(error=error):
                self._ended[seat] = seen
                self._look_for_twins(seen)
                if error:
                    self._look_for_cuts()
                self._look_at_dropped()
            case Changed(attributes=attributes):
                self._tell("changed there", changed_in_workers(attributes))
            case SampleFailed() | Suspects() | StreamState() | StreamPrint() | StreamCarry():
                pass  # no trap: kept elsewhere

    def changed_here(self, changes: tuple[Change, ...]) -> None:
        """Take note of what the main process changed after its workers had been made."""
        if changes:
            self._tell("changed here", changed_in_main(changes))

    def _compare_openings(self, seat: int, latest: Opening) -> None:
        """See whether workers begin with the same samples.

        Where there are few different ones, as labels are, they are compared only if nobody asked:
        parts of what repeats itself may be alike.
        """
        opened = self._openings.setdefault((latest.different, latest.runs), {})
        mine = opened.setdefault(seat, latest)  # its next life begins where it began
        same = [each for each in opened.values() if each.fingerprint == mine.fingerprint]
        if any(each.asked for each in same):
            parts = latest.different < PLENTY or latest.runs
            agree = len(same) == self._seats and not parts
        else:
            agree = len(same) > 1
        if agree:
            self._pass("twins", twins(self._seats))

    def _look_for_twins(self, latest: StreamEnded) -> None:
        """See whether workers gave the same samples, if in another order.

        Where most are the same, as labels are, any two parts of a dataset may agree.
        """
        if latest.tally is None or 2 * latest.different < latest.samples:
            return
        given = (latest.samples, latest.tally)
        same = [each for each in self._ended.values() if (each.samples, each.tally) == given]
        if any(each.asked for each in same):
            agree = len(same) == self._seats and latest.different >= FEW
        else:
            agree = len(same) > 1 and latest.different >= AT_THE_END
        if agree:
            self._pass("twins", twins(self._seats, begin="give the same samples"))

    def _look_for_cuts(self) -> None:
        """Tell of streams that ended with their error, if the loop goes on without the rest: one
        that ends with the error misses nothing it does not know of."""
        for seat in sorted(self._borne):
            ended = self._ended.get(seat)
            if ended is not None and ended.error:
                self._tell("cut short", cut_short(seat, ended.error))

    def _look_at_dropped(self) -> None:
        if len(self._ended) < self._seats or self._seats == 1:
            return  # or it is what drop_last means
        given = sum(each.samples for each in self._ended.values())
        dropped = sum(each.dropped for each in self._ended.values())
        batch = max(each.batch for each in self._ended.values())
        if not dropped or not batch:
            return
        usual = (given + dropped) % batch  # by one process
        if dropped - usual >= batch and dropped > WORTH_A_WORD * given:
            self._tell("dropped", much_dropped(dropped, usual, given, self._seats))

    def two_loops(self) -> None:
        """Note that an iterator is advanced although `iter()` has restarted it for a later loop."""
        self._tell("two loops", two_loops())

    def _pass(self, trap: str, text: str) -> None:
        if trap not in self._told:
            self._told.add(trap)
            self.in_passing.append(text)

    def _tell(self, trap: str, text: str) -> None:
        if trap not in self._told:
            self._told.add(trap)
            self.due.append(f"antifreeze: {text}")


# ---- in words ------------------------------------------------------------------------------------


def twins(seats: int, begin: str = "begin with the same samples") -> str:
    return (
        f"the {seats} workers {begin}: each of them iterates over the whole"
        f" IterableDataset, so that every sample comes {seats} times an epoch. Have its __iter__"
        " ask torch.utils.data.get_worker_info() and give each worker a part:"
        " `itertools.islice(samples, info.id, None, info.num_workers)`; or give a DataPipe a"
        " `.sharding_filter()`; or num_workers=1."
    )


def same_draws(path: str, seats: int) -> str:
    return (
        f"{path} gives the same numbers in each of the {seats} workers, and again whenever workers"
        " are started: each has a copy of it as it was. Where samples should differ, make it in"
        " __iter__ from torch.utils.data.get_worker_info().seed; where all workers are to shuffle"
        " alike, all is well."
    )


def much_dropped(dropped: int, usual: int, given: int, seats: int) -> str:
    return (
        f"drop_last dropped {dropped} of {dropped + given} samples: each of the {seats} workers"
        " drops the rest of its own part of an IterableDataset, which did not fill a batch. One"
        f" process would have dropped {usual}. Use fewer workers, smaller batches, or"
        " drop_last=False."
    )


def cut_short(seat: int, error: str) -> str:
    return (
        f"the stream of worker {seat} ended with its error ({error}): a generator that raises is"
        " over, and what would have followed is missing from this epoch. Handle the error inside"
        " the dataset's __iter__, where it can go on with the next sample."
    )


def changed_in_main(changes: tuple[Change, ...]) -> str:
    shared = "."
    if any(each.is_number for each in changes):
        shared = (
            "; or keep numbers in a tensor that all processes see, and change what is in it:"
            " `self.value = torch.tensor(0).share_memory_()`."
        )
    return (
        f"{_listed(tuple(each.words for each in changes))} in this process, and persistent workers"
        " do not see it: they have dataset and collate_fn as they were when they started. Use"
        f" persistent_workers=False, which makes workers anew for each epoch{shared}"
    )


def changed_in_workers(attributes: tuple[str, ...]) -> str:
    return (
        f"{_listed(attributes)} in a worker: each worker has a dataset of its own, and the one in"
        " the main process stays as it was. Return such values with the sample; or keep"
        " numbers where all processes see them: `self.value = torch.tensor(0).share_memory_()`."
    )


def two_loops() -> str:
    return (
        "two loops share this loader at the same time: iter() was called again while an earlier"
        " loop over it was not finished, and that loop is still running. With"
        " persistent_workers=True a loader has one iterator, as in torch: the later iter()"
        " restarted it, each batch goes to whichever loop asks first, and both loops end together."
        " Use a DataLoader for each loop, or persistent_workers=False."
    )


def _listed(attributes: tuple[str, ...]) -> str:
    more = f" and {len(attributes) - SHOWN} more" if len(attributes) > SHOWN else ""
    have = "has" if len(attributes) == 1 else "have"
    return f"{', '.join(attributes[:SHOWN])}{more} {have} changed"
