"""The demo in one sentence, of nothing but its own measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from three_faults import WHAT, Seen, went_well
from watched import Progress

# Samples a second, a number a round, by loader. The rounds were taken in turns.
Rounds = dict[str, list[float]]

# Nobody would notice less in a training run; rounds of a quiet machine differ by no more.
SAME = 0.05
# Rounds that differ by more than this were spoilt by something else that ran meanwhile.
APART = 1.5
# A loader whose own rounds differ by more had to share its cores, or a processor that throttles.
SPREAD = 1.25
# Said of every ratio, in the table and in the sentence, that was taken while others used the cores.
BUSY = "this machine is busy with other things"


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast both loaders were, round by round."""

    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(one / other for one, other in zip(self.ours, self.theirs, strict=True))

    @property
    def overlaps(self) -> bool:
        """Tell whether some round of the slower one was as fast as one of the faster."""
        return max(self.ours) >= min(self.theirs) and max(self.theirs) >= min(self.ours)

    @property
    def agrees(self) -> bool:
        """Tell whether all rounds say the same: faster, slower, or about this much."""
        low, high = min(self.ratios), max(self.ratios)
        return high / low <= 1 + 2 * SAME or (high / low <= APART and (low > 1 or high < 1))

    @property
    def middle(self) -> float:
        """Give the one ratio that is told, here and in the table."""
        return ratio_of(self.ours, self.theirs)


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(ours) / statistics.median(theirs)


def differ(rounds: Rounds) -> bool:
    """Tell whether rounds differ by more than they would on a quiet machine."""
    found = speed(rounds)
    if found is not None and not found.agrees:
        return True
    return any(each and max(each) > SPREAD * min(each) for each in rounds.values())


def is_busy(load: float, cores: int) -> bool:
    """Tell whether a machine has other things to do, by its load before we began."""
    return load > 0.5 * cores


def speed(rounds: Rounds) -> Speed | None:
    """Compare round with round; nothing if a loader failed in one."""
    ours, theirs = rounds["antifreeze"], rounds["torch"]
    if not ours or len(ours) != len(theirs):
        return None
    return Speed(tuple(ours), tuple(theirs))


def verdict(
    ends: list[Progress],
    seen: dict[str, Seen],
    training: Rounds,
    alone: dict[str, Rounds],
    *,
    busy: bool = False,
) -> str:
    """Say what became of both loaders, and how much faster ours was."""
    faults = f"{of_torch(ends[0], seen['torch'])}; {of_ours(ends[1], seen['antifreeze'])}"
    rates = f"{in_training(speed(training))}, {by_itself([speed(each) for each in alone.values()])}"
    return f"{faults}; {rates}{f' ({BUSY})' if busy else ''}."


def of_torch(end: Progress, seen: Seen) -> str:
    """Say how torch's loader fared in parts one and two."""
    froze = f"froze after batch {end.batch} of {end.batches}"
    first = froze if end.state == "frozen" else f"{end.state} where it should have frozen"
    over = [epoch for epoch in seen.epochs if epoch.end is not None and not epoch.end["error"]]
    return f"torch's loader {first} and got over {len(over) or 'none'} of the {len(WHAT)} faults"


def of_ours(end: Progress, seen: Seen) -> str:
    """Say how ours fared there."""
    if end.state == "finished" and went_well(seen):
        return "antifreeze's finished, and got over all of them"
    return "antifreeze's did not get through, which is a bug of ours"


def in_training(found: Speed | None) -> str:
    """Say how fast ours trained."""
    if found is None:
        return "with all repaired, one of them failed to train"
    if found.overlaps or abs(found.middle - 1) <= SAME:
        return "with all repaired, it trains about as fast as torch's"
    if not found.agrees and min(found.ratios) > 1:
        return f"with all repaired, it trains {at_least(found.ratios)} as fast as torch's"
    if not found.agrees:
        how = f"{between(found.ratios)} as fast"
        return f"with all repaired, this machine is too busy to tell who trains faster ({how})"
    return f"with all repaired, it trains {found.middle:.2f} times as fast as torch's"


def by_itself(found: list[Speed | None]) -> str:
    """Say how fast ours brings batches that cost nothing to load, of all kinds."""
    sure = [each for each in found if each is not None]
    if not sure or len(sure) < len(found):
        return "and without training one of them failed"
    if not all(each.agrees for each in sure):
        every = [ratio for each in sure for ratio in each.ratios]
        if min(every) > 1:
            return f"and without training it brings batches {at_least(every)} as fast"
        return f"and without training the rounds disagree ({between(every)} as fast)"
    middles = [each.middle for each in sure]
    return f"and without training it brings batches {between(middles)} as fast"


def at_least(ratios: list[float] | tuple[float, ...]) -> str:
    """Write what the rounds have in common where they differ too much."""
    return f"{min(ratios):.1f} times or more"


def between(ratios: list[float] | tuple[float, ...]) -> str:
    """Write a range of ratios."""
    low, high = f"{min(ratios):.1f}", f"{max(ratios):.1f}"
    return f"{low} times" if low == high else f"{low} to {high} times"
