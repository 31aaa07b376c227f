"""StopIteration from a sample: the loop takes it for the end of the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import DatasetKind, Function
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.exception_handlers import catches_any_of, is_broad
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

_ENDS = (
    "the loop over the loader takes it for the end of the data and stops early, without an error"
)


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.kind is not DatasetKind.MAP or dataset.only_ours:
            continue
        for function in dataset.loading:
            if not function.is_generator and view.module.holds(function.node):
                yield from _hits(function, view)


def _hits(function: Function, view: View) -> Iterator[Hit]:
    for node in function.nodes():
        if isinstance(node, ast.Raise) and _raises(node):
            if not _caught(node, view):
                sure = not _beyond_the_end(node, view)
                yield Hit(
                    node,
                    f"`{function.name}` raises StopIteration: {_ENDS}",
                    LIKELY if sure else POSSIBLE,
                )
        elif isinstance(node, ast.Call) and len(node.args) == 1:
            if view.resolve(node.func) != "next" or _caught(node, view):
                continue
            runs_out = _runs_out(node.args[0], view)
            if runs_out is not None:
                yield Hit(
                    node,
                    f"`next(...)` in `{function.name}` raises StopIteration when nothing is left:"
                    f" {_ENDS}",
                    LIKELY if runs_out else POSSIBLE,
                )


def _raises(node: ast.Raise) -> bool:
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(raised, ast.Name) and raised.id == "StopIteration"


def _runs_out(node: ast.expr, view: View) -> bool | None:
    """Whether an iterator lives longer than the sample, and so ends some day; None: it is made
    on the spot, and has something in it as far as we can tell."""
    if isinstance(node, ast.GeneratorExp):
        return False if any(each.ifs for each in node.generators) else None
    if isinstance(node, ast.Attribute) and view.module.class_of_self(node.value) is not None:
        makers = {view.resolve(v.func) for v in view.origins(node) if isinstance(v, ast.Call)}
        return not any(each is not None and each.startswith("itertools.c") for each in makers)
    return None


def _caught(node: ast.AST, view: View) -> bool:
    """Whether somebody in this function expects it: around it, or before it, where an iterator
    that ran out is made anew."""
    inner: ast.AST = node
    for each in view.module.ancestors(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
        catching = (
            each.handlers if isinstance(each, (ast.Try, ast.TryStar)) and inner in each.body else []
        )
        if any(is_broad(h) or catches_any_of(h, "StopIteration") for h in catching):
            return True
        anew = isinstance(each, ast.ExceptHandler) and catches_any_of(each, "StopIteration")
        if anew and not isinstance(node, ast.Raise):
            return True
        inner = each
    return False


def _beyond_the_end(node: ast.AST, view: View) -> bool:
    """Whether it is raised only for indices beyond the length, which no sampler gives."""
    for each in view.module.ancestors(node):
        if isinstance(each, ast.If):
            text = text_of(each.test)
            return "len(" in text or ">=" in text or "self.n" in text
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
    return False


RULE = Rule(
    code="AF407",
    name="stop-iteration-from-getitem",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
