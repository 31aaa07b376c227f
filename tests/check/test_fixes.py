"""Fixes change what they name, keep all else as it is, and never overlap."""

from __future__ import annotations

import ast
from pathlib import Path

from antifreeze.doctor.check.fixes import as_diff, fix_text
from antifreeze.doctor.check.found import Found
from antifreeze.doctor.check.looking import Source, as_found
from antifreeze.doctor.rules import all_rules
from antifreeze.doctor.rules.base import DropArgument, Edit, Fix, Hit, Replace
from antifreeze.doctor.rules.base import SetArgument as Set

TEXT = """import torch

loader = DataLoader(
    dataset,  # dé data
    batch_size=4,
)
x.to(device)  # keep
y = f(a, b=1,  c=2)
z = outer(inner(1))
"""


def calls() -> dict[str, ast.Call]:
    nodes = [node for node in ast.walk(ast.parse(TEXT)) if isinstance(node, ast.Call)]
    return {ast.unparse(each.func): each for each in nodes}


def found(at: ast.AST, *edits: Edit) -> Found:
    hit = Hit(at, "words", fix=Fix("do it", edits))
    return as_found(all_rules()[0], hit, Source(Path("a.py"), TEXT))


def test_arguments_are_set_added_and_dropped_and_formatting_stays() -> None:
    at = calls()
    fixed = fix_text(
        TEXT,
        [
            found(at["DataLoader"], Set(at["DataLoader"], "persistent_workers", "True")),
            found(at["x.to"], Set(at["x.to"], "non_blocking", "True")),
            found(at["f"], Set(at["f"], "b", "7"), DropArgument(at["f"], "c")),
        ],
    )
    assert (
        "    dataset,  # dé data\n    batch_size=4,\n    persistent_workers=True,\n)" in fixed.text
    )
    assert "x.to(device, non_blocking=True)  # keep\n" in fixed.text
    assert "y = f(a, b=7)\n" in fixed.text
    assert len(fixed.applied) == 3


def test_code_is_replaced() -> None:
    at = calls()["inner"]
    fixed = fix_text(TEXT, [found(at, Replace(at, "cycle(1)"))])
    assert "z = outer(cycle(1))" in fixed.text
    again = fix_text(fixed.text, [])
    assert again.text == fixed.text and not again.applied


def test_a_statement_is_replaced_whole() -> None:
    statement = ast.parse(TEXT).body[2]
    assert isinstance(statement, ast.Expr)
    fixed = fix_text(TEXT, [found(statement, Replace(statement, "del x"))])
    assert ")\ndel x  # keep\n" in fixed.text


def test_of_two_that_overlap_the_second_waits() -> None:
    outer, inner = calls()["outer"], calls()["inner"]
    fixed = fix_text(TEXT, [found(outer, Replace(outer, "1")), found(inner, Replace(inner, "2"))])
    assert "z = 1\n" in fixed.text and len(fixed.applied) == 1


def test_a_diff_shows_the_lines() -> None:
    at = calls()["x.to"]
    fixed = fix_text(TEXT, [found(at, Set(at, "non_blocking", "True"))])
    diff = as_diff("a.py", TEXT, fixed.text)
    assert "-x.to(device)  # keep\n+x.to(device, non_blocking=True)  # keep\n" in diff
