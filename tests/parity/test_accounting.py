"""Datasets whose costs are known, on real workers: the accounts say where the time went."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from antifreeze import DataLoader
from antifreeze._core.limits import LIMITS
from antifreeze._reporting.wait_totals import CAUSES, Turnstile
from antifreeze.stats import entries

NAP_S = 0.01


class Costly(Dataset[torch.Tensor]):
    """Samples that cost what `cost` does."""

    def __init__(self, cost: Callable[[int], object], length: int = 120) -> None:
        self.cost, self.length = cost, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        self.cost(index)
        return torch.zeros(8)


def nap(index: int) -> None:
    time.sleep(NAP_S)


def compute(index: int) -> None:
    end = time.thread_time() + NAP_S
    while time.thread_time() < end:
        pass


def nothing(index: int) -> None:
    pass


def slow_now_and_then(index: int) -> None:
    if index % 40 == 17:
        time.sleep(0.4)


def slow_collate(samples: list[torch.Tensor]) -> torch.Tensor:
    time.sleep(0.05)
    return torch.stack(samples)


class SlowSampler:
    def __iter__(self) -> Iterator[int]:
        for index in range(60):
            time.sleep(NAP_S)
            yield index

    def __len__(self) -> int:
        return 60


def loop(loader: DataLoader[Any], work_s: float = 0.0) -> tuple[float, dict[str, float]]:
    """Run an epoch; give what it took by a clock of our own, and the statistics."""
    began = time.monotonic()
    for _ in loader:
        if work_s:
            time.sleep(work_s)
    took = time.monotonic() - began
    return took, loader.stats()


def shares(stats: dict[str, float]) -> dict[str, float]:
    return {cause: stats[f"wait_{cause}_s"] / stats["waited_s"] for cause in CAUSES}


def adds_up(took: float, stats: dict[str, float]) -> None:
    """The whole of the time is accounted for, and next to nothing of it is unknown."""
    # The test's clock is not the loader's: a busy machine may take the core away in between.
    assert stats["waited_s"] + stats["away_s"] == pytest.approx(took, rel=0.05, abs=0.05)
    assert sum(stats[f"wait_{cause}_s"] for cause in CAUSES) == pytest.approx(
        stats["waited_s"], rel=0.02, abs=0.005
    )
    assert stats["wait_unknown_s"] <= 0.05 * stats["waited_s"]


CASES: dict[str, tuple[Callable[[int], object], dict[str, Any], str]] = {
    "waits": (nap, {}, "fetch_io"),
    "computes": (compute, {}, "fetch_cpu"),
    "collates": (nothing, {"collate_fn": slow_collate}, "collate"),
    "samples": (nothing, {"sampler": SlowSampler()}, "sampler"),
}


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("case", CASES)
def test_each_cause_shows_as_that_cause(case: str, workers: int) -> None:
    cost, options, cause = CASES[case]
    loader = DataLoader(Costly(cost), batch_size=4, num_workers=workers, **options)
    took, stats = loop(loader)
    adds_up(took, stats)
    found = shares(stats)
    assert max(found, key=lambda each: found[each]) == cause, found
    if workers == 0 and case == "computes":  # on a busy machine it waits for a core as well
        assert stats["wait_fetch_cpu_s"] > 0.9 * NAP_S * 120, found
    elif workers == 0:
        assert found[cause] > 0.8, found
    assert stats["wait_share"] > 0.8
    if cause == "sampler" and workers:
        return  # its words are the same with and without workers
    assert cause.split("_")[0] in ("fetch", "collate", "sampler")
    assert loader.explain().advice


def test_late_batches_with_others_ready_are_the_order() -> None:
    loader = DataLoader(Costly(slow_now_and_then, 200), batch_size=4, num_workers=2)
    took, stats = loop(loader)
    adds_up(took, stats)
    assert shares(stats)["order"] > 0.5, shares(stats)
    told = loader.explain()
    assert "a batch that is late while others are ready" in told.sentence
    assert any("in_order=False" in line for line in told.advice)


def test_a_slow_loop_is_away_and_its_loader_keeps_up() -> None:
    loader = DataLoader(Costly(nothing, 200), batch_size=4, num_workers=2, persistent_workers=True)
    loop(loader)  # workers come up
    before = loader.stats()
    took, stats = loop(loader, work_s=0.03)
    waited = stats["waited_s"] - before["waited_s"]
    away = stats["away_s"] - before["away_s"]
    assert waited + away == pytest.approx(took, rel=0.05)
    assert away > 50 * 0.03
    assert waited < 0.2 * away


def test_a_killed_worker_costs_recovery() -> None:
    class Once(Dataset[int]):
        def __init__(self, mark: Path) -> None:
            self.mark = mark

        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> int:
            if index == 7 and not self.mark.exists():
                self.mark.touch()
                time.sleep(0.5)
                os.kill(os.getpid(), signal.SIGKILL)
            return index

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(Once(Path(folder) / "mark"), batch_size=2, num_workers=1)
        took, stats = loop(loader)
    adds_up(took, stats)
    assert stats["wait_recovery_s"] > 0.4
    assert (stats["workers_lost"], stats["faults"]) == (1, 1)
    assert "1 fault: see `loader.faults`" in str(loader.explain())


def test_streams_are_accounted_for() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            for number in range(60):
                time.sleep(NAP_S)
                yield number

    took, stats = loop(DataLoader(Stream(), batch_size=4, num_workers=1))
    adds_up(took, stats)
    assert shares(stats)["fetch_io"] > 0.5
    assert stats["samples"] == 60


def test_tiny_batches_that_travel_together_are_accounted_for() -> None:
    took, stats = loop(DataLoader(range(20_000), num_workers=2))
    adds_up(took, stats)
    assert (stats["batches"], stats["samples"]) == (20_000, 20_000)


def test_counts_go_on_over_epochs_and_their_times_are_the_loops() -> None:
    loader = DataLoader(Costly(nothing, 40), batch_size=4, num_workers=1)
    took = 0.0
    for _ in range(3):
        took += loop(loader)[0]
        time.sleep(0.2)  # between epochs: nobody's time
    stats = loader.stats()
    assert (stats["epochs"], stats["batches"], stats["samples"]) == (3, 30, 120)
    assert stats["seconds"] == pytest.approx(took, rel=0.1)


def test_the_line_where_samples_take_their_time_is_named() -> None:
    loader = DataLoader(Costly(nap, 200), batch_size=4, num_workers=2)
    loop(loader)
    assert "test_accounting.py" in str(loader.explain())
    assert " in nap" in loader.explain().sentence


def test_the_slowest_samples_are_known_by_index() -> None:
    def cost(index: int) -> None:
        time.sleep(1.0 if index == 33 else 0.002)

    loader = DataLoader(Costly(cost, 80), batch_size=4, num_workers=2)
    loop(loader)
    slowest = loader._entry.accounts.slowest[-1]
    assert (slowest.index, slowest.position) == (33, 8)
    assert loader.stats()["slowest_sample_s"] == pytest.approx(1.0, abs=0.5)
    assert "sample 33 took" in str(loader.explain())


def test_a_slow_sample_among_cheap_ones_is_found_as_well() -> None:
    loader = DataLoader(Costly(slow_now_and_then, 120), batch_size=4, num_workers=2)
    loop(loader)
    assert {each.index for each in loader._entry.accounts.slowest} & {17, 57, 97}


def test_statistics_are_plain_numbers_and_may_be_had_at_any_time() -> None:
    loader = DataLoader(Costly(nap, 24), batch_size=4, num_workers=2)
    assert loader.stats()["batches"] == 0
    seen: list[dict[str, float]] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.append(loader.stats())
            time.sleep(0.005)

    looker = threading.Thread(target=look)
    looker.start()
    iterator = iter(loader)
    next(iterator)
    inside = loader.stats()
    for _ in iterator:
        pass
    done.set()
    looker.join()
    assert inside["batches"] == 1 and inside["workers_threads"] > 0
    assert inside["worker_own_bytes"] > 0
    assert all(type(value) in (int, float) for value in inside.values())
    batches = [each["batches"] for each in seen]
    assert batches == sorted(batches)
    assert loader.stats()["batches"] == 6


def test_a_snapshot_has_what_each_worker_uses_and_the_worst_of_everything() -> None:
    loader = DataLoader(Costly(nap, 40), batch_size=4, num_workers=2, persistent_workers=True)
    loop(loader)
    snapshot = loader.snapshot()
    assert {each.worker for each in snapshot.usages} == {0, 1}
    assert all(each.threads > 0 and each.own_bytes > 0 for each in snapshot.usages)
    assert snapshot.slowest and snapshot.slowest[-1].seconds >= NAP_S
    assert any(wait.cause == "fetch_io" for wait in snapshot.waits)


def test_printing_a_loader_tells_its_state() -> None:
    loader = DataLoader(Costly(nothing, 24), batch_size=4, num_workers=1)
    assert "6 batches of 4, 1 worker" in repr(loader)
    assert "test_accounting.py:" in repr(loader)
    iterator = iter(loader)
    next(iterator)
    assert "epoch 1, batch 1" in repr(loader)
    list(iterator)
    assert "waited" in str(loader)


def test_accounts_outlive_their_loader_for_who_looks_at_the_program() -> None:
    loader = DataLoader(Costly(nothing, 24), batch_size=4)
    list(loader)
    entry = loader._settled()
    del loader
    assert any(each is entry for each in entries())
    assert "test_accounting.py:" in entry.profile.name
    assert entry.explain().sentence


def test_a_loader_that_was_not_looped_over_is_in_nobodys_way() -> None:
    before = len(entries())
    loader = DataLoader(Costly(nothing, 24), batch_size=4)
    assert "no loop has run over this loader yet" in str(loader.explain())
    assert len(entries()) == before


# ---- what must not go wrong ----------------------------------------------------------------------


class Pairs(Dataset[int]):
    """Samples by indices that cannot be compared."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: Any) -> int:
        time.sleep(0.002)
        return int(index[0])


@pytest.mark.parametrize("workers", [0, 1])
def test_indices_of_any_kind_are_no_trouble(workers: int) -> None:
    batches = [[np.array([n, 1]), torch.tensor([n, 2])] for n in range(6)]
    loader = DataLoader(Pairs(), batch_sampler=batches, num_workers=workers)
    assert [batch.tolist() for batch in loader] == [[n, n] for n in range(6)]
    assert all(type(each.index) is str for each in loader._entry.accounts.slowest)


def test_a_slow_sample_of_every_epoch_is_one_of_the_slowest_once() -> None:
    loader = DataLoader(Costly(lambda i: time.sleep(0.05 if i == 7 else 0.001), 24), batch_size=4)
    for _ in range(3):
        loop(loader)
    indices = [each.index for each in loader._entry.accounts.slowest]
    assert indices.count(7) == 1 and indices[-1] == 7


def test_a_wait_that_times_out_has_a_cause() -> None:
    loader = DataLoader(
        Costly(lambda i: time.sleep(3 if i == 4 else 0), 8), 4, num_workers=1, timeout=1
    )
    with pytest.raises(RuntimeError, match="timed out"):
        loop(loader)
    stats = loader.stats()
    assert sum(stats[f"wait_{cause}_s"] for cause in CAUSES) == pytest.approx(
        stats["waited_s"], rel=0.02
    )
    assert stats["wait_recovery_s"] > 0.9


def test_a_wait_that_is_broken_off_was_waiting_and_not_the_loops_own_work() -> None:
    class Broken(Exception):
        pass

    def ring(number: int, frame: object) -> None:
        raise Broken

    before = signal.signal(signal.SIGALRM, ring)
    try:
        loader = DataLoader(Costly(lambda i: time.sleep(1.5 * (i == 4)), 8), 4, num_workers=1)
        iterator = iter(loader)
        next(iterator)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(Broken):
            next(iterator)
        assert next(iterator).shape == (4, 8)
        stats = loader.stats()
        assert stats["away_s"] < 0.3
        assert stats["wait_unknown_s"] == pytest.approx(0.5, abs=0.3)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_wait_that_is_not_over_is_told(workers: int) -> None:
    loader = DataLoader(Costly(lambda i: time.sleep(4 * (i == 4)), 8), 4, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    told: list[str] = []
    seen: dict[str, float] = {}

    def look() -> None:
        time.sleep(2.5)
        told.append(loader.explain().sentence)
        seen.update(loader.stats())

    looker = threading.Thread(target=look)
    looker.start()
    next(iterator)
    looker.join()
    assert "the loop waits for data now, since" in told[0]
    assert ", for the dataset, waiting (disk, network, locks)" in told[0]
    assert seen["wait_fetch_io_s"] > 1.5
    assert seen["wait_unknown_s"] < 0.1
    assert sum(seen[f"wait_{cause}_s"] for cause in CAUSES) == pytest.approx(
        seen["waited_s"], rel=0.02
    )
    assert "now" not in loader.explain().sentence
    assert loader.stats()["wait_unknown_s"] < 0.1


def test_a_sampler_that_takes_long_to_begin_is_the_sampler() -> None:
    class Begins:
        def __iter__(self) -> Iterator[int]:
            time.sleep(0.6)
            return iter(range(24))

        def __len__(self) -> int:
            return 24

    loader = DataLoader(Costly(nothing, 24), 4, sampler=Begins(), num_workers=2)
    took, stats = loop(loader)
    adds_up(took, stats)
    assert stats["wait_sampler_s"] > 0.5
    assert stats["wait_startup_s"] < 0.5


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_policy_leaves_out_is_no_batch(workers: int) -> None:
    def cost(index: int) -> None:
        if index < 4:
            raise ValueError

    loader = DataLoader(Costly(cost, 8), 2, num_workers=workers, on_error="skip")
    took, stats = loop(loader)
    adds_up(took, stats)
    assert (stats["batches"], stats["samples"], stats["skipped"]) == (2, 4, 4)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_end_of_a_stream_is_no_sample(workers: int) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:  # antifreeze: allow[iterable-in-every-worker]
            return iter(range(8))

    loader = DataLoader(Stream(), batch_size=4, num_workers=workers)
    for _ in range(3):
        loop(loader)
    assert (loader.stats()["samples"], loader.stats()["batches"]) == (24, 6)


def test_asking_after_the_end_is_nobodys_time() -> None:
    loader = DataLoader(Costly(nothing, 8), 4, num_workers=1, persistent_workers=True)
    iterator = iter(loader)
    list(iterator)
    time.sleep(0.5)
    assert next(iterator, None) is None
    assert loader.stats()["away_s"] < 0.3


def test_threads_that_ask_first_do_not_lose_the_count() -> None:
    for _ in range(30):
        loader = DataLoader(Costly(nothing, 4))
        asks = [threading.Thread(target=loader.stats) for _ in range(4)]
        for thread in asks:
            thread.start()
        list(loader)
        for thread in asks:
            thread.join()
        assert loader.stats()["batches"] == 4


def test_the_longest_loops_of_a_program_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antifreeze.stats._entries", [])  # other tests may have had longer ones
    long = DataLoader(Costly(nap, 24), 4)
    list(long)
    for _ in range(LIMITS.records.loaders + 5):
        list(DataLoader(Costly(nothing, 1)))
    assert any(each is long._entry for each in entries())
    assert len(entries()) <= LIMITS.records.loaders


def test_a_loader_that_is_not_made_yet_can_be_printed() -> None:
    class Early(DataLoader[Any]):
        def __init__(self) -> None:
            self.num_workers = 3
            self.text = repr(self)
            super().__init__(Costly(nothing, 4))

    assert "not made yet" in Early().text


def test_where_torchs_loader_does_the_work_nothing_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTIFREEZE", "off")
    loader = DataLoader(Costly(nothing, 8), batch_size=4)
    assert len(list(loader)) == 2
    assert "nothing is counted" in str(loader.explain())
    assert loader.stats()["batches"] == 0


def test_sums_that_were_broken_off_are_made_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(list(range(100)), batch_size=1)
    batches = iter(loader)
    next(batches)
    add = Turnstile.add

    def interrupted(self: Turnstile, *sums: object) -> None:
        monkeypatch.setattr(Turnstile, "add", add)
        raise KeyboardInterrupt

    monkeypatch.setattr(Turnstile, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loader.stats()
    for _ in batches:
        pass
    assert loader.stats()["batches"] == 99  # all but those that were being summed
