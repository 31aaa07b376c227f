"""The gallery finds every script, bounds it, and counts what it says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from bounded import Run, run_bounded
from gallery import number_of
from s06_one_sample_a_batch import MILLION, WARM_UP_BATCHES, read_for
from s10_small_shared_memory import SMALL_BYTES, own_shm
from scenario import Spread, count, short

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "examples" / "scenarios"
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


def test_a_part_of_a_scenario_has_a_letter_and_its_place_between_the_numbers(
    tmp_path: Path,
) -> None:
    for name in ("s14_fine", "s13b_fine", "s13a_dies_at_once", "s12_fine"):
        (tmp_path / f"{name}.py").write_text(DIES if "dies" in name else FINE)
    found = gallery("--list", "--folder", str(tmp_path)).stdout.split()
    assert [number_of(Path(name)) for name in found] == [12, "13a", "13b", 14]
    _, results = results_for(tmp_path)
    assert [(one["number"], one["title"]) for one in results if not one["ok"]] == [
        ("13a", "dies at once")
    ]


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


def test_every_scenario_has_a_page_that_names_its_script_and_has_all_parts() -> None:
    scripts = {path.stem: path.name for path in SCENARIOS.glob("s[0-9][0-9]*_*.py")}
    folder = ROOT / "docs" / "gallery"
    pages = {path.stem: path.read_text() for path in folder.glob("s*.md")}
    assert set(pages) == set(scripts)
    index = (folder / "README.md").read_text()
    for name, page in pages.items():
        assert f"examples/scenarios/{scripts[name]}" in page
        headings = [line for line in page.splitlines() if line.startswith("## ")]
        assert headings[:4] == [
            "## Symptom",
            "## What torch does",
            "## What antifreeze does",
            "## Why",
        ], name
        assert f"({name}.md)" in index


def test_a_command_that_stands_still_is_ended_long_before_its_bound() -> None:
    code = "import time; print('batch', flush=True); time.sleep(600)"
    run = run_bounded([sys.executable, "-c", code], 500, still_s=0.5)
    assert run.ended == "frozen"
    assert run.stdout == "batch\n"


def test_a_command_that_has_not_begun_to_write_does_not_stand_still() -> None:
    code = "import time; time.sleep(1.5)"
    run = run_bounded([sys.executable, "-c", code], 500, still_s=0.2)
    assert run.ended == "finished"


def test_reading_for_a_time_notices_wrong_integers_and_an_end_that_comes_too_soon() -> None:
    length = 2 * WARM_UP_BATCHES
    right = [torch.tensor([index]) for index in range(length)]
    short_of_it = read_for(right, read_s=600)
    assert (short_of_it.samples, short_of_it.wrong) == (length - WARM_UP_BATCHES, 0)
    assert short_of_it.missing == MILLION - length
    swapped = [right[1], right[0], *right[2:]]
    assert read_for(swapped, read_s=600).wrong == 2
    in_time = read_for(right, read_s=0)
    assert (in_time.samples, in_time.missing) == (1, 0)


def test_a_small_shm_of_its_own_is_seen_by_the_command_and_by_nobody_else() -> None:
    prefix = own_shm(SMALL_BYTES)
    if not prefix:
        pytest.skip("no mount namespaces here: neither root nor user namespaces")
    before = os.statvfs("/dev/shm").f_blocks
    code = "import os; room = os.statvfs('/dev/shm'); print(room.f_blocks * room.f_frsize)"
    run = run_bounded([*prefix, sys.executable, "-c", code], BOUND_S)
    assert int(run.stdout) == SMALL_BYTES
    assert os.statvfs("/dev/shm").f_blocks == before


def test_rates_are_written_with_three_digits() -> None:
    written = [short(value) for value in (0, 86.04, 994.4, 3909, 26_629, 999_400, 1_146_684)]
    assert written == ["0.0", "86.0", "994", "3,910", "26.6k", "999k", "1.15M"]
    assert "1.15M" in str(Spread.over([1_146_684.0]))
