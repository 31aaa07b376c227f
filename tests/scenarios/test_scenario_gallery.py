"""The gallery finds every script, bounds it, and counts what it says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from bounded import Run, run_bounded
from scenario import count

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"
BOUND_S = 60.0

FINE = """
import json
print(json.dumps({"number": 1, "title": "fine", "torch": "frozen", "antifreeze": "finished",
    "wrong_samples": {"torch": 0, "antifreeze": 0}, "rates": {}, "findings": [], "ok": True}))
"""
DIES = """
raise RuntimeError("no scenario today")
"""
HANGS = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    with open(sys.argv[0] + ".pid", "w") as file:
        file.write(str(child))
while True:
    signal.pause()
"""


def gallery(*arguments: str) -> Run:
    return run_bounded([sys.executable, str(SCENARIOS / "gallery.py"), *arguments], BOUND_S)


def results_for(folder: Path, bound_s: float = 30) -> tuple[int, list[dict[str, Any]]]:
    run = gallery("--json", "--folder", str(folder), "--bound-s", str(bound_s))
    return run.exit_code, json.loads(run.stdout)


def test_the_gallery_finds_every_scenario_script() -> None:
    found = gallery("--list").stdout.split()
    assert found == sorted(found)
    assert {"s01_open_read_close.py", "s14_one_file_a_sample.py"} <= set(found)
    others = {"scenario.py", "bounded.py", "gallery.py"}
    assert set(found) == {path.name for path in SCENARIOS.glob("*.py")} - others


def test_a_gallery_in_which_all_is_well_exits_with_zero(tmp_path: Path) -> None:
    (tmp_path / "s01_fine.py").write_text(FINE)
    exit_code, results = results_for(tmp_path)
    assert exit_code == 0
    assert [result["title"] for result in results] == ["fine"]


def test_a_script_that_dies_is_a_row_that_says_so_and_the_others_still_run(tmp_path: Path) -> None:
    (tmp_path / "s01_dies_at_once.py").write_text(DIES)
    (tmp_path / "s02_fine.py").write_text(FINE)
    exit_code, results = results_for(tmp_path)
    assert exit_code != 0
    assert [result["ok"] for result in results] == [False, True]
    assert results[0]["title"] == "dies at once"
    assert "no scenario today" in results[0]["findings"][0]


@pytest.mark.slow
def test_a_script_that_hangs_is_ended_together_with_what_it_started(tmp_path: Path) -> None:
    script = tmp_path / "s03_hangs.py"
    script.write_text(HANGS)
    exit_code, results = results_for(tmp_path, bound_s=5)
    assert exit_code != 0
    assert "frozen" in results[0]["findings"][0]
    grandchild = int(Path(f"{script}.pid").read_text())
    assert not psutil.pid_exists(grandchild) or zombie(grandchild)


def zombie(pid: int) -> bool:
    """Tell whether a process is over and only waits for its new parent to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_empty_gallery_is_not_a_success(tmp_path: Path) -> None:
    assert results_for(tmp_path) == (1, [])


def test_counting_notices_wrong_content_wrong_places_and_missing_samples() -> None:
    def is_right(index: int, value: int) -> bool:
        return value == index * index

    def batches(*samples: tuple[int, int]) -> list[tuple[torch.Tensor, list[int]]]:
        return [(torch.tensor([index]), [value]) for index, value in samples]

    good = count(batches((0, 0), (1, 1), (2, 4)), 2, is_right, 3)
    assert (good.samples, good.wrong, good.missing) == (6, 0, 0)
    bad_content = count(batches((0, 0), (1, 7), (2, 4)), 1, is_right, 3)
    assert (bad_content.wrong, bad_content.missing) == (1, 0)
    swapped = count(batches((1, 1), (0, 0), (2, 4)), 1, is_right, 3)
    assert (swapped.wrong, swapped.missing) == (2, 0)
    short = count(batches((0, 0), (1, 1)), 1, is_right, 3)
    assert (short.wrong, short.missing) == (0, 1)
