"""ignite's engines run to their end, also where they build the loader again."""

from __future__ import annotations

from pathlib import Path

import pytest

from .launching import INSTALL, OWN, RUN, each_times, flat, launch, needs, torchrun

pytestmark = needs("ignite")
PROGRAM = "ignite_engine.py"


@pytest.mark.parametrize("kind", ["plain", "deterministic"])
@pytest.mark.parametrize("way", [OWN, INSTALL, RUN])
def test_an_engine_loses_a_worker_and_takes_all_steps(way: str, kind: str, tmp_path: Path) -> None:
    ending = launch(PROGRAM, tmp_path, kind, way=way)
    ending.went_well()
    assert ending.killed == ["rows-0"]
    (only,) = ending.ranks
    assert only["steps"] == 48
    for epoch in (slice(0, 24), slice(24, 48)):
        assert each_times(flat(only["trained"][epoch]), 96, times=1)


@pytest.mark.parametrize("way", [INSTALL])
def test_auto_dataloader_gives_two_ranks_their_shares(way: str, tmp_path: Path) -> None:
    """It calls the class by a name of its own: only `install()` makes that ours."""
    ending = launch(PROGRAM, tmp_path, "auto", way=way, before=torchrun(2))
    ending.went_well()
    assert ending.killed == ["rows-0", "rows-1"]
    ranks = ending.ranks
    assert [each["steps"] for each in ranks] == [24, 24]
    for epoch in (slice(0, 12), slice(12, 24)):
        rows = [row for each in ranks for row in flat(each["trained"][epoch])]
        assert each_times(rows, 96, times=1)
