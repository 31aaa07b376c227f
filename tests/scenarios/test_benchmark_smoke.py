"""The benchmark runs from end to end; its numbers are nobody's promise here."""

from __future__ import annotations

import json
import os
import shutil
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest
from bounded import run_bounded

ROOT = Path(__file__).parents[2]
COMPARE = ROOT / "benchmarks" / "compare.py"
RECOVERY = ROOT / "benchmarks" / "recovery.py"
# Those that need nothing but torch and antifreeze: the peers are not installed for tests.
ALWAYS = ["torch", "torch-plain", "torch-0", "antifreeze", "antifreeze-plain", "bound"]
BOUND_S = 150.0
MISHAPS_S = 400.0  # twelve programs, each of which imports torch, and some workers do


@pytest.mark.slow
def test_a_quick_benchmark_gives_figures_bars_a_picture_and_a_page(tmp_path: Path) -> None:
    picture, page = tmp_path / "rates.svg", tmp_path / "page.md"
    shutil.copy(ROOT / "docs" / "benchmarks.md", page)
    written = ["--picture", str(picture), "--markdown", str(page)]
    chosen = ["--quick", "--json", "--only", "tokens", "--contenders", *ALWAYS]
    run = run_bounded([sys.executable, str(COMPARE), *chosen, *written], BOUND_S)
    assert run.ended == "finished", run.stderr

    results = json.loads(run.stdout)
    assert results["machine"]["torch"]
    figures = results["workloads"]["tokens"]
    assert [one["contender"] for one in figures] == ALWAYS
    for one in figures:
        assert one["error"] == ""
        assert one["median"] > 0
        assert len(one["ratio"]) == len(one["rates"])
        assert one["main_cpu_s_per_1000_batches"] > 0
    assert figures[0]["ratio"] == [1.0] * len(figures[0]["rates"])
    assert [bar["asked"] for bar in results["bars"]] == [">= 8 x torch"]

    drawn = xml.etree.ElementTree.parse(picture).getroot()
    assert "tokens" in "".join(drawn.itertext())
    assert "| antifreeze, persistent |" in page.read_text()
    assert page.read_text().startswith("# Benchmarks")


SMALL = """
import sys
sys.path.insert(0, "benchmarks")
import json, moments
from bars import judge
from contenders import CONTENDERS
from results import Results

results = Results({}, [])
for moment in moments.MOMENTS:
    if moment.key.startswith("small-"):
        results.moments[moment.key] = moments.measure(moment, CONTENDERS, quick=True)
bars = [bar.what for bar in judge(results)]
print(json.dumps(results.as_json() | {"bars": bars}))
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_small_epochs_are_measured_with_new_workers_and_without_any() -> None:
    run = run_bounded(["env", f"--chdir={ROOT}", sys.executable, "-c", SMALL], BOUND_S)
    assert run.ended == "finished", run.stderr
    results = json.loads(run.stdout)
    assert set(results["moments"]) == {"small-new", "small-0", "small-0-ten"}
    for times in results["moments"].values():
        assert len(times) == 2
        assert all(one["error"] == "" and one["median_s"] > 0 for one in times)
    assert len(results["bars"]) == 3


PROGRAMS = """
import sys
sys.path.insert(0, "benchmarks")
import json, programs, report
from bars import judge
from contenders import CONTENDERS
from pathlib import Path
from results import Results

# The other two need TensorBoard, which tests have not.
programs.PROGRAMS = tuple(each for each in programs.PROGRAMS if not each.has_threads)
programs.ROUNDS_QUICK = 1
results = Results({}, [])
results.programs = programs.measure(CONTENDERS, quick=True)
bars = judge(results)
report.write(Path(sys.argv[1]), results, bars, "")
print(json.dumps(results.as_json() | {"bars": [bar.what for bar in bars]}))
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_programs_with_a_context_are_measured_beside_plain_ones(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shutil.copy(ROOT / "docs" / "benchmarks.md", page)
    command = ["env", f"--chdir={ROOT}", sys.executable, "-c", PROGRAMS, str(page)]
    run = run_bounded(command, BOUND_S)
    assert run.ended == "finished", run.stderr
    results = json.loads(run.stdout)
    assert set(results["programs"]) == {"plain", "accelerator"}
    for measured in results["programs"].values():
        assert [one["contender"] for one in measured] == ["antifreeze", "torch"]
        for one in measured:
            assert one["error"] == ""
            assert len(one["medians"]) == 8
            assert all(value > 0 for value in one["medians"].values())
    assert results["programs"]["plain"][0]["accelerator"] == ""
    assert results["programs"]["accelerator"][0]["accelerator"]
    assert len(results["bars"]) == 7 + 7 + 2
    # The figures of other parts stay on the page.
    assert "| memory of all processes, mid-epoch, antifreeze |" in page.read_text()
    assert page.read_text().count("| first-batch |") == (
        (ROOT / "docs" / "benchmarks.md").read_text().count("| first-batch |")
    )


@pytest.mark.thorough
@pytest.mark.slow
def test_a_peer_that_is_missing_is_a_failed_bar_and_a_failure(tmp_path: Path) -> None:
    # A module in the package's place: `torchdata.nodes` cannot be found, installed or not.
    (tmp_path / "torchdata.py").touch()
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    chosen = ["--quick", "--json", "--only", "integers", "--contenders", "torch", "nodes-thread"]
    command = ["env", f"PYTHONPATH={path}", sys.executable, str(COMPARE), *chosen]
    run = run_bounded(command, BOUND_S)
    assert run.exit_code == 1, run.stderr
    assert "missing: pip install torchdata" in run.stderr
    bars = json.loads(run.stdout)["bars"]
    assert {"met": False, "what": "torchdata.nodes, thread takes part"}.items() <= bars[0].items()


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(MISHAPS_S + 50.0)
def test_a_quick_run_of_recovery_says_what_each_loader_does_after_a_mishap() -> None:
    chosen = ["--quick", "--json", "--peers", "antifreeze-plain", "torch-plain", "grain"]
    run = run_bounded([sys.executable, str(RECOVERY), *chosen], MISHAPS_S)
    assert run.ended == "finished", run.stderr

    figures = json.loads(run.stdout)
    assert len(figures["kill to batch, ms"]) == 2
    assert len(figures["hang to batch beyond the limit, ms"]) == 1
    assert figures["rate with a kill a second, to undisturbed"][0] > 0
    assert figures["kills"][0] >= 1
    after = figures["after a mishap"]
    assert {each["mishap"] for each in after} == {"worker killed", "sample hangs"}
    for each in after:
        assert each["outcome"] in ("goes on", "raises", "hangs", "ends", "not installed"), each
        assert each["words"] and each["lost"] == 64 - each["samples"]
    ours = [each for each in after if each["loader"].startswith("antifreeze")]
    assert [(each["outcome"], each["lost"], each["twice"]) for each in ours] == [
        ("goes on", 0, 0)
    ] * 2
    torchs = [each["outcome"] for each in after if each["loader"] == "torch, as written"]
    assert torchs == ["raises", "hangs"]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_loader_that_is_not_installed_is_left_out_of_the_mishaps(tmp_path: Path) -> None:
    (tmp_path / "torchdata.py").touch()
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    chosen = ["--quick", "--json", "--peers", "nodes-process", "stateful"]
    run = run_bounded(
        ["env", f"PYTHONPATH={path}", sys.executable, str(RECOVERY), *chosen], BOUND_S
    )
    assert run.ended == "finished", run.stderr
    after = json.loads(run.stdout)["after a mishap"]
    assert [each["words"] for each in after] == ["not installed"] * 4


@pytest.mark.thorough
@pytest.mark.slow
def test_two_trees_are_measured_in_turns() -> None:
    script = ROOT / "benchmarks" / "before_after.py"
    run = run_bounded(
        [sys.executable, str(script), str(ROOT / "src"), "--rounds", "1", "integers"], BOUND_S
    )
    assert run.ended == "finished", run.stderr
    assert run.stdout.count("integers, ") == 2  # with workers, and without
