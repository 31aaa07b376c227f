"""Fixes change what they name, keep all else as it is, and never overlap."""

from __future__ import annotations

import ast
from pathlib import Path

from antifreeze.doctor.check.check_result import RuleFinding
from antifreeze.doctor.check.checker import check_text
from antifreeze.doctor.check.files.source_reader import Source
from antifreeze.doctor.check.finding_builder import build_finding
from antifreeze.doctor.check.libcst_fixes import fix_text
from antifreeze.doctor.check.output.unified_diff import as_diff
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.rules import all_rules, find_rule
from antifreeze.doctor.rules.rule import DropArgument, Edit, Fix, Hit, Replace, Wrap
from antifreeze.doctor.rules.rule import SetArgument as Set

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


def found(at: ast.AST, *edits: Edit) -> RuleFinding:
    hit = Hit(at, "words", fix=Fix("do it", edits))
    return build_finding(all_rules()[0], hit, Source(Path("a.py"), TEXT))


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


def test_what_is_wrapped_stays_as_it_is_written() -> None:
    text = (
        'a = f(\n    "train",  # the big one\n)\nb = x  *  y\nc = (\n    x  # 63 bits\n    + y\n)\n'
    )
    nodes = [each.value for each in ast.parse(text).body if isinstance(each, ast.Assign)]
    hits = [
        Hit(node, "words", fix=Fix("wrap", (Wrap(node, before, after),)))
        for node, before, after in zip(
            nodes, ("g(", "(", "("), (", 1)", ") % 7", ") % 7"), strict=True
        )
    ]
    source = Source(Path("a.py"), text)
    fixed = fix_text(text, [build_finding(all_rules()[0], hit, source) for hit in hits])
    assert fixed.text == (
        'a = g(f(\n    "train",  # the big one\n), 1)\nb = (x  *  y) % 7\n'
        "c = (\n    x  # 63 bits\n    + y\n) % 7\n"
    )


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


def test_a_seed_is_made_smaller_and_nothing_else_changes() -> None:
    text = """import numpy as np
import torch
from torch.utils.data import DataLoader


def init(worker_id):
    np.random.seed(
        torch.initial_seed()  # another one in each worker
        + int('7')
    )


def load(dataset):
    return DataLoader(dataset, num_workers=2, worker_init_fn=init)
"""
    fixed = fix_text(text, check_text(text, Settings()).found)
    after = text.replace("torch.initial_seed()  #", "(torch.initial_seed()  #")
    assert fixed.text == after.replace("int('7')", "int('7')) % 2**32")


def test_a_listing_is_not_sorted_for_you_as_an_index_would_be_another_sample() -> None:
    text = (find_rule("AF604") or all_rules()[0]).page.bad
    (hit,) = check_text(text, Settings()).found
    assert hit.code == "AF604" and hit.fix is None


LOOP = """from torch.utils.data import DataLoader


def train(dataset, model, device, collate):
    for step, (x, y) in enumerate(DataLoader(dataset, 4, num_workers=2, pin_memory=True)):
        model.step(x.cuda(0, True), y.cuda(0), x.to(device), y.to(device, True))
    for batch in DataLoader(dataset, 4, num_workers=2, pin_memory=True):
        model.step(batch.to(device), batch["x"].cuda())
    for x, y in DataLoader(dataset, 4, num_workers=2, pin_memory=True, collate_fn=collate):
        model.step(x.to(device), y)
"""


def test_copies_do_not_wait_where_they_are_of_tensors_for_sure() -> None:
    fixed = fix_text(LOOP, check_text(LOOP, Settings()).found)
    wanted = LOOP.replace("y.cuda(0)", "y.cuda(0, non_blocking=True)")
    wanted = wanted.replace("x.to(device), y.to", "x.to(device, non_blocking=True), y.to")
    wanted = wanted.replace('batch["x"].cuda()', 'batch["x"].cuda(non_blocking=True)')
    assert fixed.text == wanted
    left = check_text(fixed.text, Settings()).found
    assert [(each.span.line, each.fix) for each in left] == [(8, None), (10, None)]


def test_a_whole_number_is_written_as_one() -> None:
    text = """from torch.utils.data import DataLoader

options = {"num_workers": "4"}


def load(dataset):
    yield DataLoader(dataset, num_workers="4", prefetch_factor=2.0)  # two
    yield DataLoader(dataset, num_workers=2.5)
    yield DataLoader(dataset, **options)
"""
    fixed = fix_text(text, check_text(text, Settings()).found)
    assert fixed.text == text.replace('="4", prefetch_factor=2.0', "=4, prefetch_factor=2")
