"""The benchmark runs from end to end; its numbers are nobody's promise here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from bounded import run_bounded

COMPARE = Path(__file__).parents[2] / "benchmarks" / "compare.py"


@pytest.mark.slow
def test_a_quick_benchmark_gives_a_rate_and_a_ratio_for_every_contender() -> None:
    command = [sys.executable, str(COMPARE), "--quick", "--json", "--only", "integers"]
    run = run_bounded(command, 100.0)
    assert run.ended == "finished", run.stderr
    results = json.loads(run.stdout)
    assert results["machine"]["torch"]
    figures = results["workloads"]["integers"]
    assert len(figures) == 4
    for one in figures:
        assert one["error"] == ""
        assert one["median"] > 0
        assert len(one["ratio"]) == len(one["rates"])
    assert figures[0]["ratio"] == [1.0] * len(figures[0]["rates"])
