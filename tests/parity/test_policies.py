"""Samples that fail, by policy: the same data for any number of workers, and every fault kept."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, IterableDataset

import antifreeze
from antifreeze import DataLoader, policies
from antifreeze.errors import BudgetSpent, ConfigurationError, WorkerCrashed

BAD = (5, 13)
WAYS = ["raise", "none", "exit", "hang"]


class Flawed:
    """Loads its index, but for two samples: they fail in one of several ways."""

    def __init__(self, way: str, bad: tuple[int, ...] = BAD, length: int = 24) -> None:
        self.way, self.bad, self.length = way, bad, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            match self.way:
                case "raise":
                    raise OSError(f"cannot read {index}")
                case "none":
                    return None
                case "exit":
                    os._exit(3)
                case "hang":
                    time.sleep(1000)
        return index


def batches(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


REPLACED = [[0, 1, 2, 3], [4, 6, 6, 7], [8, 9, 10, 11], [12, 14, 14, 15], [16, 17, 18, 19]]
SKIPPED = [[0, 1, 2, 3], [4, 6, 7], [8, 9, 10, 11], [12, 14, 15], [16, 17, 18, 19]]
LAST = [[20, 21, 22, 23]]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("policy", "expected"), [("replace", REPLACED), ("skip", SKIPPED)])
def test_the_run_goes_on_and_every_other_sample_is_there(
    policy: Any, expected: list[list[int]], way: str, workers: int
) -> None:
    if workers == 0 and way in ("exit", "hang"):
        pytest.skip("without workers it is your own process")
    loader: DataLoader[Any] = DataLoader(
        Flawed(way),
        batch_size=4,
        num_workers=workers,
        on_error=policy,
        sample_timeout=0.4,
    )
    assert batches(loader) == expected + LAST
    done = {"replace": "replaced", "skip": "skipped"}[policy]
    kind = {"raise": "exception", "none": "none", "exit": "crash", "hang": "hang"}[way]
    found = [(f.kind, f.index, f.position) for f in loader.faults if f.verdict == done]
    assert sorted(found) == [(kind, 5, 1), (kind, 13, 3)]


def test_substitutes_that_fail_as_well_are_replaced_in_turn() -> None:
    for way, workers in (("raise", 0), ("raise", 2), ("exit", 2)):
        dataset: Any = Flawed(way, bad=(5, 6, 7))
        loader = DataLoader(dataset, batch_size=4, num_workers=workers, on_error="replace")
        assert batches(loader)[1] == [4, 8, 8, 8]


def test_the_user_says_what_comes_instead() -> None:
    policy = policies.replacing(by=lambda index, attempt: 20 + attempt)
    loader: DataLoader[Any] = DataLoader(
        Flawed("raise"),
        batch_size=4,
        num_workers=2,
        on_error=policy,
    )
    assert batches(loader)[1] == [4, 21, 6, 7]


def test_a_sample_is_tried_again_before_it_counts_as_failed(tmp_path: Path) -> None:
    class Flaky(Flawed):
        def __getitem__(self, index: int) -> int:
            tries = tmp_path / str(index)
            with tries.open("a") as file:
                file.write("x")
            if index in self.bad and len(tries.read_text()) < 3:
                raise ConnectionError("busy")
            return index

    for workers in (0, 2):
        for path in tmp_path.iterdir():
            path.unlink()
        loader: DataLoader[Any] = DataLoader(
            Flaky("raise"),
            batch_size=4,
            num_workers=workers,
            on_error=policies.raising(retries=2),
        )
        assert [index for batch in batches(loader) for index in batch] == list(range(24))
        tries = [(fault.verdict, fault.attempt) for fault in loader.faults]
        assert tries == 2 * [
            ("retried", 1),
            ("retried", 2),
        ]


def test_other_exceptions_than_those_named_are_raised() -> None:
    loader: DataLoader[Any] = DataLoader(
        Flawed("raise"),
        batch_size=4,
        num_workers=2,
        on_error=policies.replacing(only=(ValueError,)),
    )
    with pytest.raises(OSError, match="cannot read 5"):
        list(loader)
    (fault,) = loader.faults
    assert (fault.kind, fault.verdict, fault.position) == ("exception", "raised", 1)
    assert "OSError" in fault.exception and "__getitem__" in fault.traceback


@pytest.mark.parametrize("workers", [0, 2])
def test_too_many_faults_stop_the_run(workers: int) -> None:
    for budget, most in (
        (policies.Budget(most=3), 3),
        (policies.Budget(share=0.05, window=100), 5),
    ):
        loader: DataLoader[Any] = DataLoader(
            Flawed("raise", bad=tuple(range(1, 200, 2)), length=200),
            batch_size=2,
            num_workers=workers,
            on_error=policies.skipping(budget=budget),
        )
        with pytest.raises(BudgetSpent, match=f"{most + 1} .*samples have failed"):
            list(loader)


class Wrapped:
    """A batch sampler around another, as trainers make them; it knows no size of its own."""

    def __init__(self, behind: BatchSampler) -> None:
        self.batch_sampler = behind

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batch_sampler)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_budget_counts_samples_also_where_a_batch_sampler_makes_the_batches(
    wrapped: bool,
) -> None:
    behind = BatchSampler(range(400), batch_size=10, drop_last=False)
    loader: DataLoader[Any] = DataLoader(
        Flawed("raise", bad=tuple(range(7, 400, 20)), length=400),
        batch_sampler=Wrapped(behind) if wrapped else behind,
        on_error=policies.skipping(budget=policies.Budget(share=0.1, window=100)),
    )
    assert sum(len(batch) for batch in loader) == 380  # one in twenty fails; one in ten may


def test_every_fault_is_a_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "faults.jsonl"
    loader: DataLoader[Any] = DataLoader(
        Flawed("raise"),
        batch_size=4,
        num_workers=2,
        on_error="skip",
        fault_log=path,
    )
    list(loader)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["index"], line["verdict"]) for line in lines] == [(5, "skipped"), (13, "skipped")]
    assert all(datetime.fromisoformat(line["time"]).tzinfo for line in lines)
    assert all(line["epoch"] == 1 and "rank" not in line for line in lines)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "antifreeze: samples of this epoch: 2 skipped (exception): 5, 13."


def test_the_log_and_the_words_name_the_rank_where_there_are_several(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "2")
    path = tmp_path / "faults.jsonl"
    dataset: Any = Flawed("raise", bad=(5,))
    loader = DataLoader(dataset, batch_size=4, on_error="replace", fault_log=path)
    for _ in range(2):
        list(loader)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["rank"], line["epoch"]) for line in lines] == [(2, 1), (2, 2)]
    assert caplog.records[0].getMessage().startswith("antifreeze, rank 2: samples of this epoch: 1")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_log_that_cannot_be_written_is_one_warning_and_the_run_goes_on(
    caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    dataset: Any = Flawed("raise")
    loader = DataLoader(
        dataset, batch_size=4, num_workers=workers, on_error="skip", fault_log="/dev/full"
    )
    assert batches(loader) == SKIPPED + LAST
    assert [fault.index for fault in loader.faults] == [5, 13]
    said = [record.getMessage() for record in caplog.records]
    (warned,) = [line for line in said if "fault_log" in line]
    assert "fault_log='/dev/full' cannot be written" in warned and "No space left" in warned


def test_a_pipe_that_nobody_reads_is_no_reason_to_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "pipe")
    dataset: Any = Flawed("raise")
    loader = DataLoader(dataset, batch_size=4, on_error="skip", fault_log=tmp_path / "pipe")
    assert len(list(loader)) == 6
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize("make", [lambda **given: DataLoader([1], **given), antifreeze.install])
def test_a_file_that_cannot_be_is_refused_at_once(tmp_path: Path, make: Any) -> None:
    wrong = {
        str(tmp_path / "none" / "faults.jsonl"): r"the folder .*none does not exist; make it first",
        str(tmp_path): "that is a folder; name a file in it",
        "": "the name of no file",
    }
    for path, words in wrong.items():
        with pytest.raises(ConfigurationError, match=f"^fault_log='{path}': .*{words}"):
            make(fault_log=path)
    with pytest.raises(TypeError, match="should be a path or None, but got fault_log=5"):
        make(fault_log=5)
    missing = tmp_path / "none.json"
    with pytest.raises(ConfigurationError, match=r"^quarantine='.*none.json': there is no such"):
        make(quarantine=missing, on_error="replace")
    with pytest.raises(ConfigurationError, match=r"^quarantine=.* cannot be read: Is a directory"):
        make(quarantine=tmp_path, on_error="replace")


def test_a_file_that_may_not_be_written_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(ConfigurationError, match="nothing may be written in"):
        DataLoader([1], fault_log=tmp_path / "new.jsonl")
    (tmp_path / "old.jsonl").touch()
    with pytest.raises(ConfigurationError, match="this file may not be written"):
        DataLoader([1], fault_log=tmp_path / "old.jsonl")


def test_what_replaces_a_sample_draws_what_the_sample_would_have_drawn() -> None:
    class Random(Flawed):
        def __getitem__(self, index: int) -> Any:
            super().__getitem__(index)
            return torch.rand(()) + random.random()

    epochs = []
    for workers in (0, 1, 3):
        torch.manual_seed(3)
        dataset: Any = Random("raise")
        loader = DataLoader(dataset, batch_size=4, num_workers=workers, on_error="replace")
        epochs.append(torch.cat(list(loader)).tolist())
    assert epochs[0] == epochs[1] == epochs[2]


def test_a_healthy_run_has_no_faults_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    loader: DataLoader[Any] = DataLoader(range(8), num_workers=2, on_error="replace")
    assert len(list(loader)) == 8
    assert loader.faults == []
    assert caplog.records == []


def test_a_collate_that_ends_its_worker_is_raised_whatever_the_policy() -> None:
    loader: DataLoader[Any] = DataLoader(
        range(8),
        batch_size=4,
        num_workers=1,
        on_error="skip",
        collate_fn=lambda samples: os._exit(3),
    )
    with pytest.raises(WorkerCrashed, match="was collating batch 0"):
        list(loader)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"on_error": "ignore"}, ValueError, "on_error='ignore'"),
        ({"on_error": 3}, TypeError, "on_error=3"),
        ({"on_error": "skip", "batch_size": None}, ValueError, "batch_size=None"),
    ],
)
def test_a_wrong_policy_is_refused_at_once(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        DataLoader(range(3), **arguments)


def test_a_stream_takes_no_policy_that_asks_again() -> None:
    for policy in ("replace", policies.skipping(retries=1), policies.raising(retries=1)):
        with pytest.raises(ValueError, match="map-style"):
            DataLoader(Stream(), on_error=policy)


def test_skipping_is_refused_where_ranks_would_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="a run of 4 processes"):
        DataLoader(range(3), on_error="skip")
    DataLoader(range(3), on_error="replace")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: policies.Budget(most=-1),
        lambda: policies.Budget(share=0),
        lambda: policies.Budget(share=1.5),
        lambda: policies.raising(retries=-1),
        lambda: policies.replacing(only=(3,)),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        wrong()


def test_policies_are_public() -> None:
    assert antifreeze.policies is policies


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("policy", "bad", "named"),
    [
        (policies.raising(retries=1), (5,), "raised while loading sample 5 (batch 1)"),
        (policies.skipping(only=(ValueError,)), (5,), "raised while loading sample 5 (batch 1)"),
        (
            policies.replacing(by=lambda index, attempt: 13),
            BAD,
            "raised while loading sample 13 in place of sample 5 (batch 1)",
        ),
    ],
    ids=["retried", "of another kind", "replaced in vain"],
)
def test_what_is_raised_in_spite_of_a_policy_names_its_sample(
    policy: Any, bad: tuple[int, ...], named: str, workers: int
) -> None:
    loader: DataLoader[Any] = DataLoader(
        Flawed("raise", bad),
        batch_size=4,
        num_workers=workers,
        on_error=policy,
    )
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1, 2, 3]
    with pytest.raises((OSError, RuntimeError)) as caught:
        next(iterator)
    assert named in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


@pytest.mark.parametrize("workers", [0, 2])
def test_what_failed_before_a_batch_was_raised_is_kept_as_well(workers: int) -> None:
    loader: DataLoader[Any] = DataLoader(
        Flawed("raise", (5,)),
        batch_size=4,
        num_workers=workers,
        on_error=policies.raising(retries=2),
    )
    with pytest.raises(OSError):
        list(loader)
    *before, last = loader.faults
    assert [(fault.verdict, fault.index) for fault in before] == [("retried", 5), ("retried", 5)]
    assert {fault.position for fault in loader.faults} == {1}
    assert last.verdict == "raised"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_of_which_nothing_is_left_is_left_out_itself(workers: int) -> None:
    loader: DataLoader[Any] = DataLoader(
        Flawed("raise", (4, 5, 6, 7)),
        batch_size=4,
        num_workers=workers,
        on_error="skip",
    )
    seen = [index for batch in loader for index in batch.tolist()]
    assert seen == [index for index in range(len(loader.dataset)) if index not in (4, 5, 6, 7)]
    noted = [(fault.verdict, fault.index, fault.position) for fault in loader.faults]
    assert noted == [("skipped", index, 1) for index in (4, 5, 6, 7)]


def test_every_fault_is_named_however_many_batches_are_under_way() -> None:
    """With 16 workers the log of events no longer reaches back to where a ticket was sent."""
    bad = tuple(range(1000, 2600, 100))
    loader: DataLoader[Any] = DataLoader(
        Flawed("raise", bad=bad, length=3000),
        num_workers=16,
    )
    iterator, raised = iter(loader), 0
    for _ in range(3000):
        try:
            next(iterator)
        except OSError:
            raised += 1
    assert raised == 16
    assert [(fault.index, fault.position) for fault in loader.faults] == [(b, b) for b in bad]
    assert {fault.worker for fault in loader.faults} <= set(range(16))
