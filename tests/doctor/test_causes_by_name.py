"""A cause says itself what it means for others: nobody outside of it knows it by name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from antifreeze.doctor import attach
from antifreeze.doctor.attach.causes import all_causes

ROOM = Path(next(iter(attach.__path__)))
NAMES = {each.name for each in all_causes()}
MODULES = {each.replace("-", "_") for each in NAMES}
OUTSIDE = sorted(path for path in ROOM.rglob("*.py") if path.stem not in MODULES)


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOM)))
def test_no_cause_is_known_by_name(path: Path) -> None:
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    texts = {each.value for each in nodes if isinstance(each, ast.Constant)}
    assert not texts & NAMES
    imported = {
        part
        for each in nodes
        if isinstance(each, ast.ImportFrom)
        for part in [*(each.module or "").split("."), *(alias.name for alias in each.names)]
    }
    assert not imported & MODULES


def test_there_are_modules_and_causes_to_look_at() -> None:
    assert len(OUTSIDE) > 25 and len(NAMES) > 40
    assert ROOM / "diagnose.py" in OUTSIDE


@pytest.mark.parametrize(
    "meaning",
    [
        *("overrules_unsure", "hides_wait_of_loop", "blames_other_rank"),
        *("may_be_slow", "proven_by_time"),
    ],
)
def test_what_a_cause_may_mean_for_others_is_said_of_some(meaning: str) -> None:
    assert any(getattr(each, meaning) for each in all_causes())
