"""Random programs with threads and locks get the dataset's samples, each once, and never hang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ..patience import PATIENCE_S
from ..repetition import some_of

ROOT = Path(__file__).parents[2]
PROGRAMS = 12  # in one process, one after the other


def _differences(first: int, count: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rogues.random_threads", str(first), str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    said, _, ran = done.stdout.rpartition("ran ")
    assert int(ran) == count
    return said


@pytest.mark.parametrize("first", some_of([0, 12], 1))
def test_random_programs_with_threads_lose_nothing_and_never_hang(first: int) -> None:
    assert _differences(first, PROGRAMS) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(1000, 1200, 25))
def test_more_random_programs_with_threads(first: int) -> None:
    assert _differences(first, 25) == ""
