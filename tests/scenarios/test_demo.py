"""The demo holds what it shows: torch's loader freezes on the broken script, ours finishes."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from bounded import run_bounded
from faults import BROKEN, HANGS, KILLED, FaultyPictures, break_picture
from pictures import COUNT, make_pictures
from PIL import Image
from rich.console import Console
from three_faults import Epoch, Seen, fault_table, went_well
from throughput import LOADS
from verdict import BUSY, differ, is_busy, ratio_of, verdict
from watched import Progress, State, WatchedRun

from run import LOADERS, MEASURES, Cost, cost_table

DEMO = Path(__file__).parents[2] / "examples" / "demo"
BOUND_S = 60.0
FREEZE_S = 8.0
PICTURES = 128
BATCHES_AN_EPOCH = PICTURES // 16


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    make_pictures(folder, PICTURES)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("broken", [True, False])
def test_the_training_script_finishes_with_antifreeze_and_says_no_more_than_it_should(
    data: Path, broken: bool
) -> None:
    command = [sys.executable, str(DEMO / "train.py"), "--loader", "antifreeze"]
    command += ["--data", str(data), "--epochs", "4"] + ["--broken"] * broken
    run = run_bounded(command, BOUND_S)
    assert run.ended == "finished", run.stderr
    if broken:  # one warning, at the script's own line: the history of a tensor stays in its worker
        assert run.stderr.count("Warning") == 1 and "batch[0] was computed from" in run.stderr
    else:
        assert run.stderr == ""
    events = [json.loads(line) for line in run.stdout.splitlines()]
    assert events[0] == {
        "event": "started",
        "batches": 4 * BATCHES_AN_EPOCH,
        "samples": 4 * PICTURES,
    }
    assert events[-1]["event"] == "finished"
    assert events[-1]["samples"] == 4 * PICTURES
    assert events[-2]["batch"] == 4 * BATCHES_AN_EPOCH


@pytest.mark.slow
def test_the_broken_training_script_freezes_under_torch_and_is_ended_with_its_workers(
    data: Path,
) -> None:
    with WatchedRun("torch", data, epochs=12, broken=True) as run:
        while run.poll() and run.progress().since_batch_s < FREEZE_S:
            assert run.progress().elapsed_s < BOUND_S
            time.sleep(0.1)
        run.give_up()
        progress = run.progress()
    assert progress.state == "frozen"
    assert progress.batch < progress.batches
    # The proof that it is the freeze we mean, and not a slow machine.
    assert "requires_grad" in progress.last_words


@pytest.mark.thorough
@pytest.mark.slow
def test_the_whole_demo_ends_well_and_writes_its_results_as_json() -> None:
    run = run_bounded([sys.executable, str(DEMO / "run.py"), "--json", "--rounds", "1"], 250.0)
    assert run.ended == "finished", run.stderr
    results = json.loads(run.stdout)
    assert " ".join(run.stderr.split()).endswith(results["verdict"])
    assert results["freeze"]["torch"]["state"] == "frozen"
    assert results["freeze"]["antifreeze"]["state"] == "finished"
    check_three_faults(results["three_faults"])
    for loader in ("torch", "antifreeze"):
        (cost,) = results["healthy"][loader]
        assert cost["samples_per_s"] > 0
        assert 0 <= cost["waited_share"] <= 1
        assert cost["peak_pss_mib"] > 0
        assert cost["descriptors"] > 0
    assert [load.title for load in LOADS] == list(results["samples_per_s"])
    for rates in results["samples_per_s"].values():
        assert all(len(rates[loader]) == 1 and rates[loader][0] > 0 for loader in rates), rates


def check_three_faults(seen: dict[str, list[dict[str, Any]]]) -> None:
    """Ours: one epoch, all samples but two, each fault with its verdict. torch: no epoch ends."""
    (ours,) = seen["antifreeze"]
    assert ours["end"]["error"] == "" and ours["batch"] == ours["batches"]
    assert ours["end"]["missing"] == [BROKEN, HANGS]
    assert ours["end"]["samples"] == COUNT - 2  # so each of the others came once
    told = sorted((one["index"], one["kind"], one["verdict"]) for one in ours["told"])
    assert told == [
        (BROKEN, "exception", "skipped"),
        (HANGS, "hang", "retried"),
        (HANGS, "hang", "skipped"),
        (KILLED, "crash", "retried"),
    ]
    broken, killed, hangs = seen["torch"]
    assert [epoch["faults"] for epoch in seen["torch"]] == [[BROKEN], [KILLED], [HANGS]]
    assert "Caught OSError" in broken["end"]["error"]
    assert killed["end"]["error"]  # which one depends on what the worker was handing over
    assert hangs["frozen"] and hangs["end"] is None


def test_the_broken_picture_is_real_and_the_others_are_whole(data: Path) -> None:
    break_picture(data)
    faulty = FaultyPictures(data, (BROKEN,))
    with Image.open(faulty.paths[BROKEN]) as picture, pytest.raises(OSError, match="truncated"):
        picture.load()
    assert faulty[BROKEN + 1][0] == BROKEN + 1
    assert FaultyPictures(data, ())[BROKEN][0] == BROKEN


@pytest.mark.parametrize("columns", [80, 100])
def test_the_table_of_faults_says_what_was_done_about_each(columns: int) -> None:
    ours = Epoch([BROKEN, KILLED, HANGS], 16, 16)
    hang = "DataLoader worker 1 (pid 7) hung for 1 s: sample 90 (batch 5) was stuck at f.py:5, in g"
    crash = "DataLoader worker (pid 8) is killed by signal: Killed. Worker 1, life 3, was loading"
    for index, kind, done, what in (
        (BROKEN, "exception", "skipped", "OSError: truncated"),
        (HANGS, "hang", "retried", hang),
        (HANGS, "hang", "skipped", hang),
        (KILLED, "crash", "retried", crash),
    ):
        ours.told.append({"index": index, "kind": kind, "verdict": done, "what": what})
    ours.end = {"error": "", "samples": COUNT - 2, "missing": [BROKEN, HANGS], "seconds": 2.5}
    seen = {"torch": Seen([Epoch([HANGS], 16, 5, frozen=True)]), "antifreeze": Seen([ours])}
    console = Console(width=columns, record=True, file=io.StringIO())
    console.print(fault_table(seen))
    text = console.export_text()
    assert "\u2026" not in text
    for word in ("truncated", "hangs", "twice", "yet", "f.py:5", "254"):  # they may wrap
        assert word in text
    assert went_well(seen["antifreeze"])
    ours.end["missing"] = [BROKEN]
    assert not went_well(seen["antifreeze"])


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits_into_a_terminal_whatever_the_numbers(columns: int) -> None:
    costs = [Cost(*numbers) for numbers in ((9_999, 0.1, 9_999, 16), (9_000, 1.0, 1_000, 16))]
    rates = {load.title: {one: [123_456.0, 98_765.0] for one in LOADERS} for load in LOADS}
    console = Console(width=columns, record=True, file=io.StringIO())
    console.print(cost_table({loader: list(costs) for loader in LOADERS}, rates))
    text = console.export_text()
    assert "\u2026" not in text  # rich's sign for what it had to cut
    for row in [*(load.title for load in LOADS), *(measure.title for measure in MEASURES)]:
        assert row in text
    assert "123k" in text


def test_a_loader_that_fails_is_a_red_cell_and_no_ratio() -> None:
    rates = {"tokens": {"torch": [], "antifreeze": [10.0]}}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(cost_table({loader: [None] for loader in LOADERS}, rates))
    (line,) = [one for one in console.export_text().splitlines() if "tokens" in one]
    assert "failed" in line and "10  10-10" in line and line.rstrip("\u2502 ").endswith("-")


def ended(loader: str, state: State) -> Progress:
    return Progress(loader, state, 11, 96, None, 9.0, 8.0, 6.0, "")


FROZE = "torch's loader froze after batch 11 of 96 and got over none of the 3 faults; "
SURVIVED = "antifreeze's finished, and got over all of them; with all repaired, "


@pytest.mark.parametrize(
    ("training", "alone", "words"),
    [
        ([1.04, 0.97], [2.0, 2.1], "it trains about as fast as torch's, and without training it"),
        ([1.2, 1.3], [1.4, 1.4], "it trains 1.25 times as fast as torch's, and without training"),
        ([0.8, 0.7], [1.0, 1.0], "it trains 0.75 times as fast as torch's, and without training"),
        ([0.8, 1.2], [1.0, 1.0], "it trains about as fast as torch's, and without training"),
        ([0.3, 0.9], [1.0, 1.0], "this machine is too busy to tell who trains faster (0.3 to 0.9 "),
        (
            [2.0, 9.0],
            [1.0, 1.0],
            "it trains 2.0 times or more as fast as torch's",
        ),
        (
            [1.0, 1.0],
            [2.0, 8.0],
            "it brings batches 2.0 times or more as fast",
        ),
        ([1.0, 1.0], [2.0, 0.5], "torch's, and without training the rounds disagree (0.5 to 3.0 "),
        ([], [2.0, 2.0], "one of them failed to train, and without training it brings batches"),
        ([1.0], [2.0, 2.0], "one of them failed to train, and without training it brings batches"),
        ([1.0, 1.0], [], "it trains about as fast as torch's, and without training one of them"),
    ],
)
def test_the_last_sentence_says_no_more_than_was_measured(
    training: list[float], alone: list[float], words: str
) -> None:
    ends = [ended("torch", "frozen"), ended("antifreeze", "finished")]
    over = {"error": "", "samples": COUNT - 2, "missing": [BROKEN, HANGS], "seconds": 2.5}
    ours = Seen([Epoch([BROKEN, KILLED, HANGS], 16, 16, end=over)])
    seen = {"torch": Seen([Epoch([HANGS], 16, 5, frozen=True)]), "antifreeze": ours}
    rounds = {"torch": [100.0, 100.0], "antifreeze": [100 * ratio for ratio in training]}
    rates = {
        "some": {"torch": [10.0, 10.0], "antifreeze": [10 * ratio for ratio in alone]},
        "others": {"torch": [10.0, 10.0], "antifreeze": [30.0, 30.0]},
    }
    said = verdict(ends, seen, rounds, rates)
    assert said.startswith(FROZE + SURVIVED) and words in said, said
    assert said.endswith(".") and ". " not in said


def test_the_last_sentence_and_the_table_give_one_ratio_and_one_caveat() -> None:
    ends = [ended("torch", "frozen"), ended("antifreeze", "finished")]
    seen = {"torch": Seen(), "antifreeze": Seen()}
    rounds = {"torch": [100.0, 140.0, 90.0], "antifreeze": [150.0, 150.0, 190.0]}
    costs = {one: [Cost(rate, 0.1, 10, 16) for rate in rounds[one]] for one in LOADERS}
    alone = {"some": rounds}
    for busy in (False, True):
        said = verdict(ends, seen, rounds, alone, busy=busy)
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(cost_table({one: list(costs[one]) for one in LOADERS}, alone, busy=busy))
        table = console.export_text()
        assert "1.50x" in table
        assert (BUSY in said) == (BUSY in " ".join(table.split())) == busy
    steady = {"torch": [100.0, 104.0], "antifreeze": [150.0, 148.0]}
    assert "it trains 1.46 times as fast" in verdict(ends, seen, steady, {"some": steady})
    assert f"{ratio_of(steady['antifreeze'], steady['torch']):.2f}" == "1.46"


def test_a_machine_is_busy_by_its_load_before_the_demo_began_or_by_rounds_that_differ() -> None:
    assert differ({"torch": [1.0, 1.3], "antifreeze": []})
    assert differ({"torch": [1.0, 1.2], "antifreeze": [1.2, 1.0]})
    assert not differ({"torch": [1.0, 1.2], "antifreeze": [2.0]})
    assert is_busy(1.5, 2) and not is_busy(0.4, 2) and not is_busy(3.0, 16)


def test_the_last_sentence_says_too_what_did_not_go_as_announced() -> None:
    ends = [ended("torch", "finished"), ended("antifreeze", "failed")]
    over = {"error": "", "samples": COUNT, "missing": [], "seconds": 2.5}
    seen = {"torch": Seen([Epoch([HANGS], 16, 16, end=over)]), "antifreeze": Seen()}
    said = verdict(ends, seen, {"torch": [1.0], "antifreeze": [1.0]}, {})
    assert "torch's loader finished where it should have frozen and got over 1 of the 3" in said
    assert "antifreeze's did not get through, which is a bug of ours" in said
