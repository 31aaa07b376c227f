"""Where time goes: sums, histograms, the worst few, what creeps, and the sentence about it."""

from __future__ import annotations

import random
import re
from array import array
from statistics import quantiles

import pytest

from antifreeze._core.batch_timings import Timings
from antifreeze._core.limits import LIMITS
from antifreeze._loading.observations import FOR_A_LOCK
from antifreeze._reporting import slowdown_trends
from antifreeze._reporting.explain import WORDS, Profile, explain
from antifreeze._reporting.fault_log import FaultTally
from antifreeze._reporting.histogram import Histogram
from antifreeze._reporting.slowdown_trends import LEAST, Trends, Window
from antifreeze._reporting.wait_totals import (
    CAUSES,
    Accounts,
    SlowSample,
    Split,
    Turnstile,
    WorkAccount,
)
from antifreeze.stats import Entry, flat

# ---- histograms ----------------------------------------------------------------------------------


def test_a_histogram_knows_quantiles_to_three_percent() -> None:
    dice = random.Random(3)
    values = [10 ** dice.uniform(-7, 3) for _ in range(20_000)]
    histogram = Histogram(values)
    percentiles = quantiles(values, n=100)
    for share in (0.01, 0.25, 0.5, 0.75, 0.99):
        assert histogram.quantile(share) == pytest.approx(
            percentiles[int(share * 100) - 1], rel=0.02
        )
    assert histogram.count == 20_000
    assert histogram.total == pytest.approx(sum(values))
    assert histogram.highest == max(values)
    assert histogram.quantile(1.0) == pytest.approx(max(values), rel=0.035)


def test_a_histogram_does_not_grow_with_what_it_counts() -> None:
    histogram = Histogram()
    for _ in range(50):
        histogram.add_all(array("d", (1e-6 * number for number in range(1, 10_000))))
    assert histogram.count == 50 * 9_999
    assert len(histogram) < 300


def test_two_histograms_add_up_to_that_of_all_values() -> None:
    some, others = [0.0, 0.001, 3.0], [0.5, 7.0]
    both, whole = Histogram(some) + Histogram(others), Histogram(some + others)
    assert list(both.buckets()) == list(whole.buckets())
    assert (both.count, both.total, both.highest) == (whole.count, whole.total, whole.highest)


def test_an_empty_histogram_and_one_of_zeros_have_quantiles() -> None:
    assert Histogram().quantile(0.5) == Histogram().mean == 0.0
    zeros = Histogram([0.0, 0.0])
    assert (zeros.quantile(0.99), zeros.highest, zeros.mean) == (0.0, 0.0, 0.0)


# ---- the loop ------------------------------------------------------------------------------------


def test_the_loop_is_either_waiting_or_away_and_between_epochs_neither() -> None:
    accounts = Accounts()
    turnstile = Turnstile(accounts, seats=2)
    turnstile.count(10.0, 12.0)  # waited 2
    turnstile.count(15.0, 15.5)  # away 3, waited 0.5
    turnstile.pause(15.5)
    turnstile.count(100.0, 101.0)  # waited 1
    turnstile.fold(101.0)
    assert (accounts.waited_s, accounts.away_s, accounts.batches) == (3.5, 3.0, 3)
    assert accounts.seat_s == 2 * 6.5
    assert accounts.wait_share == pytest.approx(3.5 / 6.5)


def test_it_is_no_matter_how_often_times_are_summed() -> None:
    dice, rare, often = random.Random(5), Accounts(), Accounts()
    one, other = Turnstile(rare, 1), Turnstile(often, 1)
    one.fold_at = 1e9
    now = 100.0
    for _ in range(1_000):
        came = now + dice.random()
        now = came + dice.random()
        one.count(came, now)
        other.count(came, now)
        if dice.random() < 0.1:
            other.fold(now)
    one.fold(now)
    other.fold(now)
    assert rare.waited_s == pytest.approx(often.waited_s)
    assert rare.away_s == pytest.approx(often.away_s)
    assert rare.waits.count == often.waits.count == 1_000
    assert list(rare.aways.buckets()) == list(often.aways.buckets())


def test_the_end_of_an_epoch_is_no_batch_and_is_waited_for() -> None:
    accounts = Accounts()
    turnstile = Turnstile(accounts, 1)
    turnstile.began(0.25)
    turnstile.count(1.0, 2.0)
    turnstile.over()
    turnstile.count(2.0, 2.5)
    turnstile.ended(0.5)
    turnstile.fold(2.5)
    assert (accounts.batches, accounts.epochs) == (1, 1)
    assert accounts.waited_s == 0.25 + 1.0 + 0.5 + 0.5
    assert (accounts.wait.startup, accounts.wait.ending) == (0.25, 0.5)


def test_the_work_of_all_parcels_is_summed() -> None:
    account = WorkAccount()
    account.add(Timings(1.0, 0.5, 0.25, 7.0, 9.0, io_s=0.75, samples=8), 1)
    account.add(Timings(fetch_s=2.0, samples=3), 4)
    assert (account.parcels, account.fetch_s, account.samples) == (5, 3.0, 11)
    assert (account.collate_s, account.pack_s, account.io_s) == (0.5, 0.25, 0.75)
    assert account.busy_s == 3.75


def test_the_slowest_samples_are_kept_each_once() -> None:
    accounts = Accounts()
    for index in range(100):
        accounts.note_slow(SlowSample(float(index % 50), index % 50, 0, 0))
    assert [each.index for each in accounts.slowest] == list(
        range(50 - LIMITS.records.slow_samples, 50)
    )


def test_indices_that_cannot_be_asked_for_a_place_are_no_trouble() -> None:
    accounts = Accounts()
    accounts.note_slowest(Timings(slowest_s=1.0, slowest=3), object(), 7, worker=1)
    assert accounts.slowest == [SlowSample(1.0, None, 7, 1)]


def test_lines_of_code_are_counted_without_growing_for_ever() -> None:
    accounts = Accounts()
    for number in range(10 * LIMITS.records.lines_of_code):
        accounts.note_places(((f"file.py:{number}", 1), ("hot.py:1", 5)))
    assert len(accounts.places) <= LIMITS.records.lines_of_code
    assert accounts.places.most_common(1)[0][0] == "hot.py:1"


# ---- what creeps ---------------------------------------------------------------------------------


def windows(count: int, sample_s: object = None, wait: object = None) -> Trends:
    found = Trends()
    for number in range(count):
        each_s = sample_s(number) if callable(sample_s) else 0.01
        share = wait(number) if callable(wait) else 0.1
        found.add(Window(30.0 * number, each_s, share))
    return found


def test_samples_that_take_longer_and_longer_are_noticed_once() -> None:
    found = windows(40, sample_s=lambda number: 0.010 * (1 + number / 10))
    assert [trend.what for trend in found.due] == ["sample_s"]
    text = str(found.due[0])
    assert "times as long as at first" in text and "ms then" in text


def test_a_loop_that_waits_more_and_more_is_noticed() -> None:
    found = windows(40, wait=lambda number: min(1.0, 0.05 + 0.02 * number))
    assert [trend.what for trend in found.due] == ["wait_share"]
    assert "waits for data" in str(found.due[0])


def test_memory_that_rises_is_noticed() -> None:
    found = Trends()
    for number in range(40):
        found.own_bytes = (1 + number) << 28
        found.add(Window(30.0 * number, 0.01, 0.1))
    assert [trend.what for trend in found.due] == ["own_bytes"]
    assert "GiB" in str(found.due[0])


@pytest.mark.parametrize("seed", range(20))
def test_what_goes_up_and_down_is_no_trend(seed: int) -> None:
    dice = random.Random(seed)
    found = windows(
        300,
        sample_s=lambda number: 0.01 * dice.uniform(0.5, 2.0),
        wait=lambda number: dice.uniform(0.0, 0.6),
    )
    assert found.due == []


def test_a_cold_beginning_a_burst_and_a_validation_are_no_trend() -> None:
    cold = windows(60, sample_s=lambda number: 0.05 if number < 5 else 0.01)
    burst = windows(60, sample_s=lambda number: 0.1 if 30 < number < 36 else 0.01)
    validated = windows(120, wait=lambda number: 0.9 if number % 10 == 9 else 0.1)
    assert cold.due == burst.due == validated.due == []


def test_nothing_is_said_of_a_short_run() -> None:
    assert windows(LEAST - 1, sample_s=lambda number: 0.001 * 2**number).due == []


def test_a_run_of_months_is_kept_in_few_windows() -> None:
    found = windows(100_000, sample_s=lambda number: 0.01 * (1 + number / 20_000))
    assert len(found.windows) < LIMITS.records.trend_windows
    assert [trend.what for trend in found.due] == ["sample_s"]
    assert found.windows[-1].at - found.windows[0].at > 0.5 * 30.0 * 100_000


def test_cheap_samples_may_double_without_a_word() -> None:
    assert windows(40, sample_s=lambda number: 1e-6 * (1 + number)).due == []


def test_trends_have_a_window_for_each_half_minute_of_a_loop() -> None:
    accounts = Accounts()
    turnstile = Turnstile(accounts, 1)
    now = 0.0
    for _ in range(200):
        turnstile.count(now, now + 0.5)
        accounts.note_work(Timings(fetch_s=0.5, samples=10), 1)
        now += 1.0
    assert len(accounts.trends.windows) == int(200 / LIMITS.records.trend_window_s)
    assert accounts.trends.windows[1].sample_s == pytest.approx(0.05)
    assert accounts.trends.windows[1].wait_share == pytest.approx(0.5, abs=0.02)
    assert slowdown_trends.LEAST > 2


# ---- the sentence --------------------------------------------------------------------------------


def counted(cause: str, waited_s: float = 71.0, away_s: float = 29.0, seats: int = 2) -> Accounts:
    accounts = Accounts(waited_s=waited_s, away_s=away_s, epochs=1, batches=100)
    setattr(accounts.wait, cause, 0.9 * waited_s)
    accounts.wait.unknown += 0.1 * waited_s  # or all of it
    accounts.seat_s = seats * (waited_s + away_s)
    accounts.work = WorkAccount(parcels=100, samples=1_000, fetch_s=0.95 * accounts.seat_s)
    accounts.places.update({"dataset.py:41 in decode": 9, "dataset.py:7 in read": 1})
    return accounts


def test_each_cause_has_words_and_a_sentence() -> None:
    assert set(WORDS) == set(CAUSES)
    for cause in CAUSES:
        told = explain(counted(cause), Profile(workers=2, cores=2))
        assert told.sentence.startswith("the loop waited for data 71 % of the time")
        if cause == "unknown":
            assert told.sentence.endswith("; what for is not known")
        else:
            assert f", 64 % of all time for {WORDS[cause]}; " in told.sentence
        assert told.advice or cause in ("unknown", "ending")


def test_busy_workers_on_full_cores_are_told_with_their_line() -> None:
    told = explain(counted("fetch_cpu"), Profile(workers=2, cores=2))
    assert "2 of 2 workers were busy in dataset.py:41 in decode; 2 cores are full" in told.sentence
    assert "`__getitem__`" in told.advice[0]
    assert any("dataset.py:41 in decode (90 %)" in line for line in told.evidence)


def test_free_cores_are_reason_for_more_workers_but_no_more_than_there_are() -> None:
    told = explain(counted("fetch_cpu"), Profile(workers=2, cores=16))
    assert told.advice == ("num_workers=7",)  # 2 x 100 / 29
    assert explain(counted("fetch_cpu"), Profile(workers=2, cores=4)).advice == ("num_workers=4",)


def test_workers_that_wait_need_no_core_so_more_of_them_are_advised() -> None:
    told = explain(counted("fetch_io"), Profile(workers=2, cores=1))
    assert "num_workers=7 or so" in told.advice[0]
    assert "2 of 2 workers were waiting" in told.sentence


def test_no_more_than_four_times_as_many_workers_are_advised() -> None:
    told = explain(counted("fetch_io", waited_s=99.0, away_s=1.0), Profile(workers=2, cores=1))
    assert "num_workers=8 or so" in told.advice[0]


def test_a_short_loop_whose_workers_have_come_and_gone_does_not_come_in_bursts() -> None:
    accounts = counted("fetch_io", waited_s=1.0, away_s=0.1)
    accounts.batches, accounts.work.fetch_s = 12, 1.0
    assert "num_workers" in explain(accounts, Profile(workers=2, cores=2)).advice[0]
    accounts.batches = 1_000
    assert "bursts" in explain(accounts, Profile(workers=2, cores=2)).advice[0]


def test_the_time_in_which_workers_come_up_is_none_they_were_idle_in() -> None:
    accounts = counted("fetch_cpu", waited_s=10.0, away_s=0.0)
    accounts.wait.startup, accounts.wait.fetch_cpu, accounts.wait.unknown = 4.0, 6.0, 0.0
    accounts.work.fetch_s = 2 * 6.0
    assert "2 of 2 workers were busy" in explain(accounts, Profile(workers=2, cores=2)).sentence


def test_the_sentence_and_the_numbers_give_one_share_of_busy_workers() -> None:
    accounts = counted("startup", waited_s=40.0, away_s=60.0)
    accounts.wait.ending, accounts.wait.unknown = 4.0, 0.0
    accounts.work.fetch_s = 2 * 45.0
    given = flat(Entry(Profile(workers=2), accounts, FaultTally()))["workers_busy_share"]
    assert given == pytest.approx(45 / 60)
    assert any("busy 75 % of" in line for line in explain(accounts, Profile(workers=2)).evidence)


def test_to_start_workers_once_is_advice_from_the_second_epoch_on() -> None:
    for cause in ("startup", "ending"):
        accounts = counted(cause)
        for epochs, persistent in ((1, False), (2, False), (2, True)):
            accounts.epochs = epochs
            told = explain(accounts, Profile(workers=2, persistent=persistent))
            advised = any("persistent_workers=True" in line for line in told.advice)
            assert advised == (epochs > 1 and not persistent)
    assert explain(counted("startup"), Profile(workers=2)).sentence.endswith(" s, once")


@pytest.mark.parametrize("cause", ["fetch_io", "fetch_cpu"])
@pytest.mark.parametrize("workers", [0, 1, 2, 3, 4, 8])
@pytest.mark.parametrize("batches", [1, 2, 3, 4, 5, 100])
def test_more_workers_than_an_epoch_has_batches_are_never_advised(
    cause: str, workers: int, batches: int
) -> None:
    accounts = counted(cause, seats=max(1, workers))
    accounts.epochs = accounts.epochs_ended = 3
    accounts.batches = 3 * batches
    told = explain(accounts, Profile(workers=workers, cores=16))
    advised = re.findall(r"num_workers=(\d+)", " ".join(told.advice))
    assert all(workers < int(number) <= batches for number in advised), told.advice
    assert bool(advised) == (batches > max(1, workers)), told.advice
    if not advised:
        assert f"an epoch has {batches} batch" in told.advice[0]


def test_the_length_of_an_epoch_that_is_not_over_is_not_claimed() -> None:
    accounts = counted("fetch_io")
    accounts.batches = 2
    (advice, _) = explain(accounts, Profile(workers=2, cores=2)).advice
    assert advice == "ask again when the loop has had more batches"


@pytest.mark.parametrize("cause", ["fetch_io", "order"])
def test_where_all_batches_are_ahead_no_more_of_them_are_advised(cause: str) -> None:
    accounts = counted(cause)
    accounts.work.fetch_s = 1.0  # workers were idle
    accounts.epochs_ended = 1
    for batches, advised in ((64, True), (32, False)):
        accounts.batches = batches
        told = explain(accounts, Profile(workers=2, prefetch=16))
        assert any("prefetch_factor" in line for line in told.advice) == advised


@pytest.mark.parametrize("workers", [0, 2, 8])
def test_no_workers_are_advised_for_a_lock(workers: int) -> None:
    accounts = counted("fetch_io", seats=max(1, workers))
    accounts.places.clear()
    accounts.places.update({"dataset.py:41 in read": 60, f"dataset.py:40 in read{FOR_A_LOCK}": 40})
    told = explain(accounts, Profile(workers=workers, cores=16))
    assert "at a lock in dataset.py:40 in read" in told.sentence.replace("for a", "at a")
    assert not any("num_workers" in line for line in told.advice)
    assert "antifreeze.per_worker" in told.advice[0]
    accounts.places[f"dataset.py:40 in read{FOR_A_LOCK}"] = 10
    assert "num_workers" in explain(accounts, Profile(workers=workers, cores=16)).advice[0]


def test_no_workers_are_no_remedy_for_memory() -> None:
    for workers in (1, 2, 8):
        (advice,) = explain(counted("memory"), Profile(workers=workers)).advice
        assert "num_workers=0" not in advice and "batch_size" in advice
        assert ("fewer workers" in advice) == (workers > 1)


def test_cheap_batches_need_no_workers_to_be_collated() -> None:
    accounts = counted("collate")
    accounts.work = WorkAccount(parcels=10_000, samples=100_000, fetch_s=0.2, collate_s=0.3)
    assert "larger batches" in explain(accounts, Profile()).advice[0]
    accounts.work.collate_s = 30.0
    assert "num_workers=1 or more" in explain(accounts, Profile()).advice[0]


def test_samples_that_cost_less_than_their_way_need_no_workers() -> None:
    accounts = counted("transport")
    accounts.work = WorkAccount(parcels=10, samples=1_000_000, fetch_s=1.0)
    assert "num_workers=0" in explain(accounts, Profile(workers=2, cores=2)).advice[0]


def test_a_late_sample_is_named_where_order_is_the_matter() -> None:
    accounts = counted("order")
    accounts.sample_s.add(0.001)
    accounts.note_slow(SlowSample(3.0, 4711, 12, 1))
    told = explain(accounts, Profile(workers=2, cores=2, prefetch=2))
    assert "sample 4711 took 3 s" in told.sentence
    assert "prefetch_factor=8" in told.advice[0]


def test_a_loader_that_keeps_up_is_left_alone() -> None:
    told = explain(counted("fetch_cpu", waited_s=2.0, away_s=98.0), Profile(workers=2, cores=2))
    assert told.sentence.startswith("the loop's own work takes 98 % of the time: the loader keeps")
    assert told.advice == ()


@pytest.mark.parametrize(("waited_s", "shown"), [(4.9, 5), (5.0, 5), (5.4, 5), (5.6, 6), (6.0, 6)])
def test_five_percent_as_shown_is_keeping_up_and_six_is_not(waited_s: float, shown: int) -> None:
    told = explain(counted("startup", waited_s, 100 - waited_s), Profile(workers=2, cores=2))
    assert ("keeps up" in told.sentence) == (shown == 5) == (told.advice == ())
    assert f" {shown} %" in told.sentence


def test_nothing_is_explained_before_a_loop() -> None:
    assert "no loop has run" in str(explain(Accounts(), Profile()))


def test_without_workers_the_loader_moves_nothing_between_processes() -> None:
    told = explain(counted("transport"), Profile(workers=0, cores=2))
    assert "the loader itself" in told.sentence
    assert "between processes" not in str(told)


def test_an_explanation_reads_as_lines() -> None:
    text = str(explain(counted("fetch_cpu"), Profile(workers=2, cores=2), faults=3))
    assert text.splitlines()[0].startswith("the loop waited")
    assert "  3 faults: see `loader.faults`" in text
    assert "to try\n" in text


def test_every_second_that_is_split_has_a_name() -> None:
    split = Split(**dict.fromkeys(CAUSES, 1.0))
    assert split.total == len(CAUSES)
