"""timm's loaders, made by `create_loader`, on our workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from .launching import INSTALL, LATE, RUN, VISION, each_times, flat, launch, needs

pytestmark = needs("timm", "torchvision")
KINDS = ["plain", "prefetcher", "persistent", "epochs"]


@pytest.mark.parametrize(
    ("way", "kind"),
    [*((INSTALL, kind) for kind in KINDS), (LATE, "epochs"), (RUN, "plain"), (RUN, "epochs")],
)
def test_a_worker_dies_and_all_steps_are_taken(way: str, kind: str, tmp_path: Path) -> None:
    ending = launch(
        "timm_loader.py", tmp_path, kind, way=way, more=VISION | {"TRAINER": "timm.data"}
    )
    ending.went_well()
    assert ending.killed == ["rows-0"]
    (only,) = ending.ranks
    assert len(only["trained"]) == 48
    for epoch in (slice(0, 24), slice(24, 48)):
        assert each_times(flat(only["trained"][epoch]), 96, times=1)
    if kind == "epochs":  # workers stay: one zygote, and one new life
        assert only["loader"] == "timm.data.loader.MultiEpochsDataLoader"
        assert len({pid for _, pid, _ in ending.loads()}) == 3
