"""An error in a sample that nobody hears of, and another sample in its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import DatasetKind, Function
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.exception_handlers import (
    TryNode,
    exception_handlers,
    is_broad,
    own_nodes,
    reports_exception,
)
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.kind is DatasetKind.MAP:
            starts = [dataset.methods.get("__getitem__"), dataset.methods.get("__getitems__")]
        else:
            starts = [dataset.methods.get("__iter__"), dataset.methods.get("__next__")]
        own = set(starts)
        for function in dataset.loading:
            if view.module.holds(function.node):
                yield from _hits(function, any(f and f.node is function.node for f in own))


def _hits(function: Function, is_start: bool) -> Iterator[Hit]:
    """Yield a function's hits. Handlers that all do the same are one habit: only the first is
    shown."""
    shown: set[str] = set()
    for hit in _every(function, is_start):
        if hit.words not in shown:
            shown.add(hit.words)
            yield hit


def _every(function: Function, is_start: bool) -> Iterator[Hit]:
    for attempt, handler in exception_handlers(function):
        if not is_broad(handler) or reports_exception(handler):
            continue
        again = _another(handler, function)
        if again is not None:
            yield Hit(
                handler,
                f"any error that `{function.name}` catches here gives `{text_of(again)}`"
                " instead, and nobody counts how often: broken files and bugs become repeated"
                " samples",
                LIKELY,
            )
        elif _goes_on(handler) and _loads(attempt):
            left_out = any(isinstance(each, ast.Continue) for each in handler.body)
            what = "leaves the sample out" if left_out else "is passed over"
            yield Hit(
                handler,
                f"any error that `{function.name}` catches here {what}, and nobody counts how"
                " often",
                LIKELY if left_out and is_start else POSSIBLE,
            )


def _another(handler: ast.ExceptHandler, function: Function) -> ast.expr | None:
    """Return what loads another sample: `self[other]`, `self.__getitem__(other)`."""
    for node in own_nodes(handler):
        index: ast.expr
        match node:
            case ast.Call(func=ast.Attribute(attr="__getitem__"), args=[index]):
                pass
            case ast.Subscript(value=ast.Name(id="self"), slice=index, ctx=ast.Load()):
                pass
            case _:
                continue
        same = isinstance(index, ast.Name) and index.id in function.parameters
        changed = any(
            isinstance(each, ast.Name)
            and isinstance(each.ctx, ast.Store)
            and same
            and each.id == getattr(index, "id", "")
            for each in own_nodes(handler)
        )
        if not same or changed:
            assert isinstance(node, ast.expr)
            return node
    return None


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether it does nothing at all: `pass`, `continue`, at most a `print`."""
    return all(
        isinstance(each, (ast.Pass, ast.Continue))
        or (isinstance(each, ast.Expr) and isinstance(each.value, (ast.Constant, ast.Call)))
        for each in handler.body
    )


def _loads(attempt: TryNode) -> bool:
    """Whether what is tried gives something to a sample: not an import, not a clean-up."""
    return any(isinstance(each, (ast.Assign, ast.Return, ast.Expr)) for each in attempt.body) and (
        any(
            isinstance(node, (ast.Return, ast.Yield, ast.Assign))
            for each in attempt.body
            for node in own_nodes(each)
        )
    )


RULE = Rule(
    code="AF405",
    name="error-swallowed-in-loading",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
