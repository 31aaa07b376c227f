"""Plain DDP under torchrun: each of two ranks loses a worker, and none waits for the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..repetition import some_of
from .launching import INSTALL, OWN, RUN, each_times, flat, launch, torchrun


@pytest.mark.parametrize("way", some_of([RUN, INSTALL, OWN], 1))
def test_two_ranks_each_lose_a_worker_and_take_all_steps(way: str, tmp_path: Path) -> None:
    ending = launch("ddp.py", tmp_path, way=way, before=torchrun(2))
    ending.went_well()
    assert ending.killed == ["rows-0", "rows-1"]
    first, second = ending.ranks
    assert len(first["trained"]) == len(second["trained"]) == 2 * 12
    assert each_times(flat(first["trained"] + second["trained"]), 96, times=2)
    assert first["weight"] == second["weight"]
    for epoch in (slice(0, 12), slice(12, 24)):
        assert each_times(flat(first["trained"][epoch] + second["trained"][epoch]), 96, times=1)
