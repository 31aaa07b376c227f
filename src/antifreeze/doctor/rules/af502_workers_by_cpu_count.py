"""As many workers as the machine has cores, whoever may use them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.step_budget import cached_walk
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import LIKELY, SLOW, Hit, Rule

COUNTS = frozenset({"os.cpu_count", "multiprocessing.cpu_count", "psutil.cpu_count"})


def find(view: View) -> Iterator[Hit]:
    for node, call in _given(view):
        count = _count(node, view, 0)
        if count is not None:
            yield Hit(
                count if view.module.holds(count) else view.here(node, call),
                f"the number of workers comes from `{text_of(count)}`, which counts all cores"
                " of the machine: where fewer are allowed, workers crowd each other out",
            )


def _given(view: View) -> Iterator[tuple[ast.expr, ast.Call]]:
    for loader in view.loaders:
        node = loader["num_workers"].node
        if node is not None:
            yield node, loader.node
    for call in view.training_arguments:
        node = view.call_arguments(call)["dataloader_num_workers"].node
        if node is not None:
            yield node, call


@cached_walk
def _count(node: ast.expr, view: View, depth: int) -> ast.Call | None:
    """Return the call that counts cores, if the number is that, or that and a constant."""
    if depth > 4:
        return None
    for value in view.origins(node):
        match value:
            case ast.Call() if view.resolve(value.func) in COUNTS:
                return value
            case ast.Call(func=ast.Name(id="int" | "max" | "round"), args=[inner, *_]):
                deeper = _count(inner, view, depth + 1)
            case ast.BinOp(
                op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Div(), left=left
            ) if isinstance(view.constant(value.right), (int, float)):
                deeper = _count(left, view, depth + 1)
            case ast.BinOp(op=ast.Add() | ast.Mult(), right=right) if isinstance(
                view.constant(value.left), (int, float)
            ):
                deeper = _count(right, view, depth + 1)
            case _:
                continue
        if deeper is not None:
            return deeper
    return None


RULE = Rule(
    code="AF502",
    name="workers-by-cpu-count",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
