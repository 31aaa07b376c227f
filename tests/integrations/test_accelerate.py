"""accelerate builds loaders of its own: `install()` makes them ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .launching import INSTALL, LATE, OWN, RUN, each_times, flat, launch, needs, torchrun

pytestmark = needs("accelerate")
PROGRAM = "accelerate_loop.py"


# On CPU it starts one process, whatever it is told; two are torchrun's business.
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_machines=1"]
LAUNCH += ["--num_processes=1", "--mixed_precision=no", "--dynamo_backend=no"]


def test_without_install_a_loader_given_to_prepare_becomes_torchs(tmp_path: Path) -> None:
    """The trap that the page names. Should accelerate keep the class one day, this says so."""
    ending = launch(PROGRAM, tmp_path, way=OWN)
    assert "is killed by signal: Killed" in ending.err
    assert ending.code in (1, None)  # now and then torch's loader does not let it end
    assert {who for _, _, who in ending.loads()} == {"torch"}


def test_what_is_written_at_a_loader_goes_through_prepare(tmp_path: Path) -> None:
    ending = launch(PROGRAM, tmp_path, "options", way=INSTALL)
    ending.went_well()
    (only,) = ending.ranks
    assert only["on_error"] == "replace"


@pytest.mark.parametrize(
    ("way", "before"), [(INSTALL, []), (LATE, []), (RUN, LAUNCH)], ids=[INSTALL, LATE, RUN]
)
def test_one_process_loses_a_worker_and_takes_all_steps(
    way: str, before: list[str], tmp_path: Path
) -> None:
    ending = launch(PROGRAM, tmp_path, way=way, before=before, more={"TRAINER": "accelerate"})
    ending.went_well()
    assert ending.killed == ["rows-0"]
    (only,) = ending.ranks
    for epoch in (slice(0, 24), slice(24, 48)):
        assert each_times(flat(only["trained"][epoch]), 96, times=1)
    assert len(only["trained"]) == 48
    assert len(only["resumed"]) == 14


@pytest.mark.parametrize("way", [INSTALL, RUN])
def test_two_processes_share_the_rows(way: str, tmp_path: Path) -> None:
    ending = launch(PROGRAM, tmp_path, way=way, before=torchrun(2))
    ending.went_well()
    assert ending.killed == ["rows-0", "rows-1"]
    ranks = ending.ranks
    assert [len(each["trained"]) for each in ranks] == [24, 24]
    for epoch in (slice(0, 12), slice(12, 24)):
        rows = [row for each in ranks for row in flat(each["trained"][epoch])]
        assert each_times(rows, 96, times=1)
    assert [len(each["resumed"]) for each in ranks] == [2, 2]
