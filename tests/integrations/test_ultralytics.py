"""ultralytics' InfiniteDataLoader, as its `build_dataloader` makes it, on our workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from .launching import INSTALL, LATE, RUN, VISION, each_times, flat, launch, needs

pytestmark = needs("ultralytics", "torchvision")


@pytest.mark.parametrize("way", [INSTALL, LATE, RUN])
def test_a_worker_dies_and_epochs_go_on_for_ever(way: str, tmp_path: Path) -> None:
    more = VISION | {"TRAINER": "ultralytics.data.build"}
    ending = launch("ultralytics_loader.py", tmp_path, way=way, more=more)
    ending.went_well()
    assert ending.killed == ["rows-0"]
    (only,) = ending.ranks
    assert only["loader"] == "ultralytics.data.build.InfiniteDataLoader"
    assert only["iterator"] == "antifreeze._engine.iterator"
    assert only["workers"] == [True, True]
    assert len(only["trained"]) == 3 * 24
    for at in (0, 24, 48):
        assert each_times(flat(only["trained"][at : at + 24]), 96, times=1)
