"""transformers' Trainer makes its loaders by itself: `install()` makes them ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from .launching import INSTALL, LATE, OWN, RUN, Ending, each_times, flat, launch, needs, torchrun

pytestmark = needs("transformers", "accelerate")
PROGRAM = "hf_trainer.py"


def test_a_loader_from_its_hooks_is_used_as_it_is(tmp_path: Path) -> None:
    ending = launch(PROGRAM, tmp_path, "own-loader", way=OWN)
    ending.went_well()
    check_one(ending)


@pytest.mark.parametrize("way", [INSTALL, LATE, RUN])
def test_one_process_loses_workers_and_takes_all_steps(way: str, tmp_path: Path) -> None:
    ending = launch(PROGRAM, tmp_path, way=way, more={"TRAINER": "transformers.trainer"})
    ending.went_well()
    check_one(ending)


def check_one(ending: Ending) -> None:
    assert ending.killed == ["rows-0", "val-0"]
    (only,) = ending.ranks
    assert only["steps"] == len(only["trained"]) == 48
    for epoch in (slice(0, 24), slice(24, 48)):
        assert each_times(flat(only["trained"][epoch]), 96, times=1)
    assert flat(only["tried"]) == 2 * list(range(48))


@pytest.mark.parametrize("way", [INSTALL])
def test_a_run_that_goes_on_from_a_checkpoint_takes_the_rest(way: str, tmp_path: Path) -> None:
    ending = launch(PROGRAM, tmp_path, "resume", way=way)
    ending.went_well()
    assert ending.killed == ["again-0", "rows-0", "val-0"]
    (only,) = ending.ranks
    assert only["resumed_steps"] == 48
    assert only["resumed"] == only["trained"][10:]


@pytest.mark.parametrize("way", [INSTALL])
def test_two_processes_share_the_rows(way: str, tmp_path: Path) -> None:
    ending = launch(PROGRAM, tmp_path, way=way, before=torchrun(2))
    ending.went_well()
    ranks = ending.ranks
    assert [each["steps"] for each in ranks] == [24, 24]
    for epoch in (slice(0, 12), slice(12, 24)):
        rows = [row for each in ranks for row in flat(each["trained"][epoch])]
        assert each_times(rows, 96, times=1)
