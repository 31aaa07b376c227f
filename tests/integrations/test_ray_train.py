"""Ray Train: in the function that its workers run, `install()`, or our loader with its sampler."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from .launching import INSTALL, OWN, each_times, flat, launch, needs

pytestmark = needs("ray")


@pytest.mark.parametrize("way", [INSTALL, OWN])
def test_two_workers_of_ray_each_lose_one_of_ours(way: str, tmp_path: Path) -> None:
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets want short paths
    try:
        ending = launch("ray_train.py", tmp_path, way=way, more={"RAY_FOLDER": folder})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ending.went_well(told=False)  # Ray forwards what it likes of what its workers say
    assert ending.killed == ["rows-0", "rows-1"]
    ranks = ending.ranks
    assert {each["loader"] for each in ranks} == {"antifreeze.loader.DataLoader"}
    assert [len(each["trained"]) for each in ranks] == [24, 24]
    for epoch in (slice(0, 12), slice(12, 24)):
        rows = [row for each in ranks for row in flat(each["trained"][epoch])]
        assert each_times(rows, 96, times=1)
