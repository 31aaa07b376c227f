"""Lightning's Trainer runs to its end with our loader, whoever is killed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from .launching import INSTALL, OWN, RUN, each_times, flat, launch, needs

pytestmark = needs("lightning")
PROGRAM = "lightning_trainer.py"
LENGTH = 96
SANITY = 2  # batches that Lightning tries before it begins


@pytest.mark.parametrize(
    ("way", "where"), [(OWN, "passed"), (OWN, "hooks"), (INSTALL, "hooks"), (RUN, "passed")]
)
def test_fit_and_its_validation_lose_a_worker_each_and_take_all_steps(
    way: str, where: str, tmp_path: Path
) -> None:
    ending = launch(PROGRAM, tmp_path, "fit", "1", where, way=way)
    ending.went_well()
    assert ending.killed == ["rows-0", "val-0"]
    (only,) = ending.ranks
    assert only["steps"] == len(only["trained"]) == 2 * 24
    for epoch in (slice(0, 24), slice(24, 48)):
        assert each_times(flat(only["trained"][epoch]), LENGTH, times=1)
    assert flat(only["tried"][SANITY:]) == 2 * list(range(LENGTH))
    assert only["loader"] == "antifreeze.loader.DataLoader"


@pytest.mark.parametrize("way", [OWN, INSTALL, RUN])
def test_validate_tries_each_row_once(way: str, tmp_path: Path) -> None:
    ending = launch(PROGRAM, tmp_path, "validate", "1", way=way)
    ending.went_well()
    assert ending.killed == ["val-0"]
    (only,) = ending.ranks
    assert flat(only["tried"]) == list(range(LENGTH))


@pytest.mark.parametrize("way", [OWN, INSTALL, RUN])
def test_predict_names_the_rows_of_each_batch(way: str, tmp_path: Path) -> None:
    """Lightning wraps the batch sampler and notes what it gives, in the main process, in order."""
    ending = launch(PROGRAM, tmp_path, "predict", "1", way=way)
    ending.went_well()
    assert ending.killed == ["rows-0"]
    (only,) = ending.ranks
    assert flat(only["predicted"]) == list(range(LENGTH))
    assert only["batch_sampler"] == "_IndexBatchSamplerWrapper"
    if way == OWN:
        assert only["on_error"] == "replace"


@pytest.mark.parametrize(
    ("way", "where"), [(OWN, "passed"), (OWN, "hooks"), (INSTALL, "hooks"), (RUN, "passed")]
)
def test_two_processes_get_samplers_of_their_own_and_each_loses_a_worker(
    way: str, where: str, tmp_path: Path
) -> None:
    ending = launch(PROGRAM, tmp_path, "fit", "2", where, way=way)
    ending.went_well()
    assert ending.killed == ["rows-0", "rows-1", "val-0", "val-1"]
    ranks = ending.ranks
    assert [each["steps"] for each in ranks] == [2 * 12, 2 * 12]
    for epoch in (slice(0, 12), slice(12, 24)):
        rows = [row for each in ranks for row in flat(each["trained"][epoch])]
        assert each_times(rows, LENGTH, times=1)
    for each in ranks:
        assert each["sampler"] == "DistributedSampler"
        assert each["loader"] == "antifreeze.loader.DataLoader"
        if way == OWN:
            assert each["on_error"] == "replace"
