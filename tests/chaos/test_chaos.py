"""Some random faults, and some healthy runs: a taste of `python -m tests.chaos`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..repetition import some_of
from . import healthy
from .contents import Deed
from .judge import Raised, compare, expected
from .recipes import draw

ROOT = Path(__file__).parents[2]
MINUTES = 1 / 6
LONGEST_S = 290.0  # a recipe that was begun is finished, at most twice its two minutes


def run(*arguments: str) -> tuple[int, str]:
    """Run it in a program of its own: what it leaves behind would be its own, too."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=LONGEST_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, out


@pytest.mark.slow
@pytest.mark.parametrize("seed", some_of([4, 5, 6], 1))
def test_ten_seconds_of_chaos_loses_doubles_and_changes_nothing(seed: int) -> None:
    code, out = run("--seed", str(seed), "--minutes", str(MINUTES))
    assert code == 0, out
    assert "0 lost, 0 duplicated, 0 wrong, 0 left behind" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", some_of(["many small samples", "stopped for 15 s", "busy siblings"], 2)
)
def test_healthy_workers_are_left_alone_and_nothing_is_said(name: str) -> None:
    code, out = run("--healthy", "--seed", "1", "--only", str(list(healthy.CASES).index(name)))
    assert code == 0, out
    assert "0 rightful reports, 0 runs with a false report" in out


def test_a_recipe_is_the_same_for_the_same_seed_and_number() -> None:
    assert [draw(7, number) for number in range(50)] == [draw(7, number) for number in range(50)]
    assert draw(7, 3) != draw(8, 3)


def test_the_judge_sees_what_is_lost_doubled_wrong_or_out_of_order() -> None:
    recipe = next(r for r in (draw(1, n) for n in range(99)) if r.kind == "rows" and r.in_order)
    due = expected(recipe)
    assert compare(recipe, due, due, set()).problems == []
    assert compare(recipe, due, due, set()).samples == recipe.length
    changed = {
        "lost": due[1:],
        "doubled": [due[0], *due],
        "wrong": ["0" * 32, *due[1:]],
        "out of order": [due[1], due[0], *due[2:]],
        "raised": [Raised("WorkerCrashed", "sample 3 "), *due[1:]],
    }
    for what, came in changed.items():
        assert compare(recipe, due, came, set()).problems, what
    let_go = compare(recipe, due, changed["raised"], {0})
    assert (let_go.problems, let_go.raised_after_two_hits) == ([], 1)


def test_the_judge_knows_what_policies_make_of_bad_samples() -> None:
    recipes = [draw(3, number) for number in range(400)]
    bad = Deed("raise", once=False)
    for on_error, kind in (("raise", Raised), ("replace", str), ("skip", str)):
        recipe = next(
            r
            for r in recipes
            if r.on_error == on_error
            and r.batch_size > 2
            and r.kind == "rows"
            and bad.what in {d.what for d in r.deeds.values() if not d.once}
        )
        index = next(i for i, d in recipe.deeds.items() if d.what == "raise")
        place = next(p for p, batch in enumerate(recipe.batches) if index in batch)
        assert isinstance(expected(recipe)[place], kind)
