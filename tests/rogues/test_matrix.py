"""Every phase of a worker's life, every way to misbehave in it, on real processes: the matrix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from .matrix import ALWAYS, HANGS, PHASES, TABLE, WAYS, Cell, Sees, page
from .misdeeds import WAYS as DEEDS

ROOT = Path(__file__).parents[2]
PATIENCE_S = 800.0  # for all of them; it takes about a minute

pytestmark = pytest.mark.timeout(900)


def programs(cells: list[Cell]) -> list[list[Cell]]:
    """Share out cells: those that need a clean process share one, which takes seconds to make."""
    shared: dict[str, list[Cell]] = {}
    for cell in cells:
        key = cell.name
        if cell.phase in ("import", "unpickle"):
            key = cell.phase
            if cell.way in ("eat memory", *HANGS):
                key = f"{cell.way}, {cell.once}"
        shared.setdefault(key, []).append(cell)
    return sorted(shared.values(), key=lambda each: -sum(cell.within_s for cell in each))


@pytest.fixture(scope="module")
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Run the cells that were chosen, several at once; give what was seen, by name."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    asked = [call.params["cell"] for call in calls if call is not None and "cell" in call.params]
    chosen = [cell for cell in TABLE + ALWAYS if cell in asked]
    folder = tmp_path_factory.mktemp("matrix")
    lines = [json.dumps([cell.as_json() for cell in cells]) for cells in programs(chosen)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.rogues.matrix_runner"],
        input="\n".join(lines),
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        cwd=ROOT,
        # What lies under the second is a library to Python, and to us.
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUSERBASE": str(folder / "user")},
    )
    assert done.returncode == 0
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {each["name"]: each for each in told}


@pytest.mark.parametrize("cell", TABLE, ids=lambda cell: cell.name)
def test_misbehaves_once(cell: Cell, seen: dict[str, Any]) -> None:
    check(cell, seen[cell.name])


def _is_usual(cell: Cell) -> bool:
    """Whether `make test` has it. The others take the same way with another ending."""
    if cell.phase == "getitem" and "on_error" not in cell.arguments:
        return cell.way != "eat memory"
    return cell.way in ("raise", "SIGKILL", "hang without it")


ALWAYS_SOME = [
    pytest.param(cell, marks=() if _is_usual(cell) else pytest.mark.thorough) for cell in ALWAYS
]


@pytest.mark.parametrize("cell", ALWAYS_SOME, ids=lambda cell: cell.name)
def test_misbehaves_every_time(cell: Cell, seen: dict[str, Any]) -> None:
    check(cell, seen[cell.name])


def check(cell: Cell, it: dict[str, Any]) -> None:
    """Hold what was seen against the table."""
    if "skipped" in it:
        pytest.skip(it["skipped"])
    assert "broke" not in it, it
    assert it["did"], "the rogue did nothing"
    assert Counter(it["batches"]) == expected(cell, it["batches"]), it
    assert it["surplus"] <= 0 or cell.sees is Sees.OVER, it
    if cell.error:
        assert all(cell.error in error["types"] for error in it["errors"][:1]), it["errors"]
        told = it["errors"][0]["text"]
    else:
        assert it["errors"] == []
        told = it["said"]
    missing = [words for words in cell.words if words not in told]
    assert not missing, told
    assert it["left"] == [] and it["left_at_end"] == []
    assert it["grandchild"] == (cell.way == "fork a grandchild")
    assert it["seconds"] <= cell.within_s


def expected(cell: Cell, batches: list[str]) -> Counter[str]:
    """Say what all batches are to be like. (`worker_init_fn` that raises takes the batches of its
    worker with it, however many those are.)"""
    match cell.sees:
        case Sees.SAME:
            return Counter({"same": 4})
        case Sees.WITHOUT:
            return Counter({"same": 3, "without": 1})
        case Sees.RAISED:
            lost = batches.count("error") if cell.phase == "init_fn" else 1
            return Counter({"same": 4 - lost, "error": lost})
        case Sees.OVER:
            before = batches.count("same") if cell.leaves_at_error else 0
            return Counter({"same": before, "error": len(batches) - before})
    raise AssertionError("it cannot be")


def test_the_table_has_every_cell_once_and_each_an_outcome() -> None:
    assert len(TABLE) == 80
    assert [(cell.phase, cell.way) for cell in TABLE] == list(product(PHASES, WAYS))
    assert list(WAYS) == list(DEEDS)
    for cell in TABLE:
        assert (cell.sees is Sees.CANNOT) == bool(cell.why_not)
        assert cell.within_s > 0 or cell.why_not
    assert len([cell for cell in TABLE if cell.why_not]) <= 8


def test_no_two_cells_have_one_name() -> None:
    names = Counter(cell.name for cell in TABLE + ALWAYS)
    assert names.most_common(1)[0][1] == 1


def test_the_page_is_the_one_the_table_gives() -> None:
    assert (ROOT / "docs" / "crash-matrix.md").read_text() == page(), "run `make docs`"
