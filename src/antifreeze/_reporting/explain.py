"""Who waits for whom: one sentence, what it rests on, and what would help most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from .._core.frozen_values import frozen
from .._loading.observations import FOR_A_LOCK
from .wait_totals import CAUSES, Accounts, SlowSample, share_of_time

KEEPS_UP = 5  # percent of the time waited, as shown: up to it there is nothing to gain
BUSY = 0.8  # of the workers' time
WORTH_TELLING = 0.01  # of the loop's time
MOST_WORKERS = 64  # that are advised
STEP = 4  # times as many as there are, at the most: what comes then is another loop
FEW = 16  # batches a worker and epoch: with fewer, its idle end looks like bursts
CHEAP_S = 0.00005  # a sample: below it, the way between processes costs more than it
WORKERS_THAT_WAIT = 4  # to begin with, where there are none
# Of the looks at samples: where so many find them waiting for a lock, it is taken all the time (of
# two workers that do nothing but take turns, half), and more workers would wait for it, too.
AT_LOCK = 0.2
CHEAP_BATCH_S = 0.0001  # below it, to hand a batch over costs about as much as to make it
LONG_S = 1.0  # a wait that is not over
LEAST_S = 0.5  # of a loop; shorter ones are mostly their own beginning
TIMES = 3.0  # slower than the median, and
NAMED_S = 0.01  # as slow: such samples are named

WORDS = {
    "startup": "starting workers",
    "sampler": "the sampler",
    "fetch_io": "the dataset, waiting (disk, network, locks)",
    "fetch_cpu": "the dataset, computing",
    "collate": "collating",
    "transport": "moving batches between processes",
    "order": "a batch that is late while others are ready",
    "recovery": "loading again what lost workers had",
    "memory": "memory",
    "ending": "ending workers",
    "unknown": "unknown",
}
WITHOUT_LOCK = (
    "more workers would only wait for the same lock: read without it, each from a file of its"
    " own (`antifreeze.per_worker`)"
)
WITHOUT_WORKERS = {
    "startup": "beginning epochs",
    "transport": "the loader itself",
    "ending": "ending epochs",
}


@frozen
class Profile:
    """What a loader is, as far as advice depends on it."""

    name: str = "DataLoader"
    workers: int = 0
    prefetch: int = 2
    in_order: bool = True
    persistent: bool = False
    cores: int = 1  # that this process may use


@frozen
class Explanation:
    """Why a loop is as fast as it is."""

    sentence: str
    evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [self.sentence, *(f"  {line}" for line in self.evidence)]
        if self.advice:
            lines.append("to try")
            lines.extend(f"  {line}" for line in self.advice)
        return "\n".join(lines)


IS_REPORTED = "`antifreeze` reports what keeps it, on stderr, within 10 s"  # no advice after that


def explain(accounts: Accounts, profile: Profile, faults: int = 0) -> Explanation:
    """Say who waits for whom."""
    if not accounts.seconds:
        return Explanation("no loop has run over this loader yet")
    evidence = tuple(_evidence(accounts, profile, faults))
    share = accounts.wait_share
    if accounts.open_s > max(LONG_S, accounts.waited_s):
        before = share_of_time(accounts.waited_s, accounts.seconds - accounts.open_s)
        return Explanation(
            f"the loop waits for data now, since {_duration(accounts.open_s)}"
            f"{_open_for(accounts, profile)}; before, {_percent(before)} of the time",
            evidence,
            (IS_REPORTED,),
        )
    if round(100 * share) <= KEEPS_UP:
        return Explanation(
            f"the loop's own work takes {_percent(1 - share)} of the time: the loader keeps up"
            f" (waited for data: {_percent(share)})",
            evidence,
        )
    cause = max(CAUSES, key=accounts.waited_for)
    story, advice = _OF_CAUSE[cause](accounts, profile)
    of_all = _percent(accounts.waited_for(cause) / accounts.seconds)
    what = f"; {story}"
    if cause != "unknown":
        what = f", {of_all} of all time for {_words(cause, profile)}; {story}"
    sentence = f"the loop waited for data {_percent(share)} of the time{what}"
    if accounts.seconds < LEAST_S:
        sentence += f" (in only {accounts.seconds:.2g} s)"
    return Explanation(sentence, evidence, advice)


# ---- one for each cause --------------------------------------------------------------------------

Told = tuple[str, tuple[str, ...]]


def _computing(accounts: Accounts, profile: Profile) -> Told:
    where = _where(accounts)
    if not profile.workers:
        story = f"it loads its samples itself{where}"
        if _each_s(accounts) < CHEAP_S:
            return story, ("samples are cheap: workers would not help; make fewer, larger batches",)
        if (few := _few_batches(accounts, 1)) is not None:
            return story, few
        workers = min(max(1, profile.cores), _most_useful(accounts))
        which = "this process may use as many cores"
        if workers < profile.cores:
            which = "so many batches an epoch has"
        return story, (f"num_workers={workers}: {which}",)
    full = profile.workers >= profile.cores
    story = f"{_busy_workers(accounts, profile)} busy{where}"
    if accounts.busy_share < BUSY and not _is_short(accounts, profile):
        return story, _more_ahead(accounts, profile)
    if full:
        cores = "1 core is" if profile.cores == 1 else f"{profile.cores} cores are"
        return f"{story}; {cores} full", ("move work out of `__getitem__`, or cache what it gives",)
    if (few := _few_batches(accounts, profile.workers)) is not None:
        return story, few
    return story, (f"num_workers={_enough(accounts, profile, profile.cores)}",)


def _waiting(accounts: Accounts, profile: Profile) -> Told:
    where = _where(accounts)
    nearer = "larger files, a local copy, or a cache"
    if not profile.workers:
        story = f"it loads its samples itself{where}"
        if lock := _lock(accounts):
            return f"it waits for others, for a lock in {lock}", (WITHOUT_LOCK,)
        if (few := _few_batches(accounts, 1)) is not None:
            return story, (*few, nearer)
        workers = min(WORKERS_THAT_WAIT, _most_useful(accounts))
        more = " or more" if workers == WORKERS_THAT_WAIT else ""
        return story, (f"num_workers={workers}{more}: workers that wait need no core",)
    story = f"{_busy_workers(accounts, profile)} waiting{where}"
    if lock := _lock(accounts):
        return f"workers take turns, at a lock in {lock}", (WITHOUT_LOCK,)
    if accounts.busy_share < BUSY and not _is_short(accounts, profile):
        return story, _more_ahead(accounts, profile)
    if (few := _few_batches(accounts, profile.workers)) is not None:
        return story, (*few, nearer)
    workers = _enough(accounts, profile, MOST_WORKERS)
    return story, (f"num_workers={workers} or so: workers that wait need no core", nearer)


def _collating(accounts: Accounts, profile: Profile) -> Told:
    story = "collate_fn takes it"
    if not profile.workers:
        if _batch_s(accounts) < CHEAP_BATCH_S:
            return story, ("batches are cheap: workers would not help; make fewer, larger batches",)
        if (few := _few_batches(accounts, 1)) is not None:
            return story, few
        return story, ("num_workers=1 or more: batches are then collated beside the loop",)
    return story, ("make collate_fn cheaper: tensors of one shape are stacked fastest",)


def _moving(accounts: Accounts, profile: Profile) -> Told:
    if not profile.workers:
        return "samples are cheap beside it", ("larger batches",)
    each_s = _each_s(accounts)
    story = f"a sample takes {_duration(each_s)} to load"
    if each_s < CHEAP_S:
        return story, ("num_workers=0: loading costs less than the way between processes",)
    return story, ("tensors or arrays in place of many small objects; larger batches",)


def _late(accounts: Accounts, profile: Profile) -> Told:
    story = "workers had nothing to do meanwhile"
    if named := _slow_samples(accounts):
        story = f"{named[0]}; {story}"
    advice = []
    if not _all_ahead(accounts, profile):
        advice.append(f"prefetch_factor={4 * profile.prefetch}: a slow sample then has more time")
    if profile.in_order:
        advice.append("in_order=False, if the order of batches is no matter")
    return story, tuple(advice)


def _starting(accounts: Accounts, profile: Profile) -> Told:
    each_s = accounts.waited_for("startup") / max(1, accounts.epochs)
    if accounts.epochs < 2:  # to be started once is no advice for those who were
        return f"{_duration(each_s)}, once", ("less work where the dataset is opened",)
    story = f"{_duration(each_s)} an epoch, in {_count(accounts.epochs, 'epoch')}"
    if profile.workers and not profile.persistent:
        return story, ("persistent_workers=True: they are then started once",)
    return story, ("longer epochs; less work where the dataset is opened",)


def _again(accounts: Accounts, profile: Profile) -> Told:
    return "workers were lost", ("`loader.faults` says which samples, and why",)


def _memory(accounts: Accounts, profile: Profile) -> Told:
    fewer = "fewer workers, " if profile.workers > 1 else ""
    less = f"{fewer}a smaller batch_size or prefetch_factor; see `loader.faults`"
    return "there was too little of it", (less,)


def _sampling(accounts: Accounts, profile: Profile) -> Told:
    return "it runs in the loop's own thread", ("make the sampler's `__iter__` cheaper",)


def _ending(accounts: Accounts, profile: Profile) -> Told:
    each_s = accounts.wait.ending / max(1, accounts.epochs)
    story = f"{_duration(each_s)} an epoch"
    stays = profile.workers and not profile.persistent and accounts.epochs > 1
    return story, ("persistent_workers=True: they then stay",) if stays else ()


def _nobody_knows(accounts: Accounts, profile: Profile) -> Told:
    return "what for is not known", ()


_OF_CAUSE: dict[str, Callable[[Accounts, Profile], Told]] = {
    "startup": _starting,
    "sampler": _sampling,
    "fetch_io": _waiting,
    "fetch_cpu": _computing,
    "collate": _collating,
    "transport": _moving,
    "order": _late,
    "recovery": _again,
    "memory": _memory,
    "ending": _ending,
    "unknown": _nobody_knows,
}


# ---- what it rests on ----------------------------------------------------------------------------


def _evidence(accounts: Accounts, profile: Profile, faults: int) -> Iterator[str]:
    seconds, waits = accounts.seconds, accounts.waits
    yield (
        f"{seconds:.3g} s in {_count(accounts.epochs, 'epoch')}, {accounts.batches:,} steps:"
        f" {accounts.waited_so_far_s:.3g} s waiting, {accounts.away_s:.3g} s away with"
        " its own work"
    )
    yield (
        f"a wait: median {_duration(waits.quantile(0.5))}, 99 % {_duration(waits.quantile(0.99))},"
        f" longest {_duration(waits.highest)}; own work: median"
        f" {_duration(accounts.aways.quantile(0.5))}"
    )
    parts = sorted(((accounts.waited_for(each), each) for each in CAUSES), reverse=True)
    told = [(s, each) for s, each in parts if s >= WORTH_TELLING * seconds]
    if told:
        shares = ", ".join(f"{_words(each, profile)} {_percent(s / seconds)}" for s, each in told)
        yield f"of all time: {shares}"
    if profile.workers:
        yield (
            f"workers were busy {_percent(accounts.busy_share)} of the time;"
            f" {_count(profile.workers, 'worker')}, {_count(profile.cores, 'core')}"
        )
    if places := _places(accounts):
        all_of = sum(count for _, count in places)
        found = ", ".join(f"{place} ({_percent(count / all_of)})" for place, count in places[:3])
        yield f"samples were in {found}"
    if slow := _slow_samples(accounts):
        yield "; ".join(slow[:3])
    if faults:
        yield f"{_count(faults, 'fault')}: see `loader.faults`"


def _open_for(accounts: Accounts, profile: Profile) -> str:
    """Say what a wait is for that is not over, if that is known."""
    cause = max(CAUSES, key=lambda each: float(getattr(accounts.still, each)))
    if cause == "unknown":
        return _where(accounts)
    where = _where(accounts) if cause.startswith("fetch_") else ""
    return f", for {_words(cause, profile)}{where}"


def _words(cause: str, profile: Profile) -> str:
    return WORDS[cause] if profile.workers else WITHOUT_WORKERS.get(cause, WORDS[cause])


def _slow_samples(accounts: Accounts) -> list[str]:
    """Name samples that are far slower than most."""
    usual_s = accounts.sample_s.quantile(0.5)
    least_s = max(TIMES * usual_s, NAMED_S)
    slow = [each for each in reversed(list(accounts.slowest)) if each.seconds > least_s]
    return [f"{_name(each)} took {_duration(each.seconds)}" for each in slow]


def _name(sample: SlowSample) -> str:
    if sample.index is None:
        return f"a sample of batch {sample.position}"
    return f"sample {sample.index!r:.40}"


def _where(accounts: Accounts) -> str:
    places = _places(accounts)
    return f" in {places[0][0]}" if places else ""


def _places(accounts: Accounts) -> list[tuple[str, int]]:
    """Give lines of code, the commonest first; from a copy: another thread may be counting."""
    return sorted(dict(accounts.places).items(), key=lambda each: -each[1])


def _busy_workers(accounts: Accounts, profile: Profile) -> str:
    busy = round(accounts.busy_share * profile.workers)
    return f"{busy} of {_count(profile.workers, 'worker')} {'was' if busy == 1 else 'were'}"


def _is_short(accounts: Accounts, profile: Profile) -> bool:
    """Say whether the beginnings and ends of epochs are too much of it all."""
    return accounts.batches < FEW * profile.workers * accounts.epochs


def _each_s(accounts: Accounts) -> float:
    return accounts.work.fetch_s / max(1, accounts.work.samples)


def _batch_s(accounts: Accounts) -> float:
    return accounts.work.busy_s / max(1, accounts.work.parcels)


def _enough(accounts: Accounts, profile: Profile, most: int) -> int:
    """Say how many workers would keep up with the loop's own work, as far as that is known."""
    most = min(most, _most_useful(accounts))
    if not accounts.away_s:
        return max(profile.workers + 1, min(most, 2 * profile.workers))
    needed = math.ceil(profile.workers * accounts.seconds / accounts.away_s)
    return max(profile.workers + 1, min(most, needed, STEP * profile.workers))


def _most_useful(accounts: Accounts) -> int:
    """Return the number of batches of an epoch: more workers than that have nothing to do. Epochs
    that were left early, or are not over, make it smaller, never larger."""
    return max(1, accounts.batches // max(1, accounts.epochs))


def _few_batches(accounts: Accounts, workers: int) -> tuple[str, ...] | None:
    """Return what to try where there are no more batches than workers; None if there are."""
    batches = _most_useful(accounts)
    if batches > workers:
        return None
    if not accounts.epochs_ended:
        return ("ask again when the loop has had more batches",)
    count = _count(batches, "batch", "batches")
    return (f"an epoch has {count}: more workers help only with a smaller batch_size",)


def _all_ahead(accounts: Accounts, profile: Profile) -> bool:
    """Whether all batches of an epoch are under way from its beginning."""
    return bool(accounts.epochs_ended) and (
        profile.workers * profile.prefetch >= _most_useful(accounts)
    )


def _lock(accounts: Accounts) -> str:
    """Return the line at which samples wait for a lock; empty if few of them do."""
    places = _places(accounts)
    locked = [each for each in places if each[0].endswith(FOR_A_LOCK)]
    if sum(count for _, count in locked) <= AT_LOCK * sum(count for _, count in places):
        return ""
    return locked[0][0].removesuffix(FOR_A_LOCK)


def _more_ahead(accounts: Accounts, profile: Profile) -> tuple[str, ...]:
    if _all_ahead(accounts, profile):
        return ()
    return (f"prefetch_factor={4 * profile.prefetch}: batches come in bursts",)


def _count(number: int, what: str, many: str = "") -> str:
    return f"{number:,} {what if number == 1 else many or f'{what}s'}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 or not share else "under 1 %"


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 0.001 else f"{1e6 * seconds:.3g} us"
