"""The table of bounds: all frozen, each with a unit and a reason, each in use."""

from __future__ import annotations

import ast
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

import antifreeze
from antifreeze._core import limits as table
from antifreeze._core.limits import LIMITS

ROOT = Path(antifreeze.__file__).parent
SOURCE = Path(table.__file__).read_text()
GROUPS = {each.name: getattr(LIMITS, each.name) for each in fields(LIMITS)}
GROUPS = {name: group for name, group in GROUPS.items() if hasattr(group, "__match_args__")}
UNITS = ("_s", "_ms", "_bytes", "_share", "_looks", "_share_of_limit", "_share_of_memory")


def _bounds() -> list[tuple[str, str, Any]]:
    own = [each.name for each in fields(LIMITS) if each.name not in GROUPS]
    found = [("Limits", name, getattr(LIMITS, name)) for name in own]
    for group in GROUPS.values():
        kind = type(group).__name__
        found += [(kind, each.name, getattr(group, each.name)) for each in fields(group)]
    return found


def test_there_is_something_to_read() -> None:
    assert len(GROUPS) > 10
    assert len(_bounds()) > 100


def test_nobody_can_change_a_bound() -> None:
    with pytest.raises(FrozenInstanceError):
        LIMITS.attempts = 3
    for group in GROUPS.values():
        with pytest.raises(FrozenInstanceError):
            setattr(group, fields(group)[0].name, 0)


def test_a_bound_that_is_no_count_has_its_unit_in_its_name() -> None:
    lacking = [
        f"{kind}.{name}"
        for kind, name, value in _bounds()
        if isinstance(value, float | tuple) and not name.endswith(UNITS)
    ]
    assert lacking == []


def test_each_bound_has_a_reason() -> None:
    """A comment right above it, or above the one that it belongs to."""
    lines = SOURCE.splitlines()
    for kind in ast.parse(SOURCE).body:
        if not isinstance(kind, ast.ClassDef) or not kind.name.endswith("Limits"):
            continue
        reasoned = False
        for field in kind.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                is_group = field.target.id in GROUPS and kind.name == "Limits"
                above = lines[field.lineno - 2].strip()
                reasoned = above.startswith("#") or (
                    reasoned and above.split(":")[0].isidentifier()
                )
                assert reasoned or is_group, f"{kind.name}.{field.target.id}"


def test_each_bound_is_kept_by_somebody() -> None:
    used: set[str] = set()
    for path in ROOT.rglob("*.py"):
        if path.name != "limits.py":
            tree = ast.parse(path.read_text())
            used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert [f"{kind}.{name}" for kind, name, _ in _bounds() if name not in used] == []
