"""An exception whose class other processes cannot find."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.view import View
from .rule import FREEZE, LIKELY, POSSIBLE, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if code.only_ours:
            continue  # it sends name and traceback of what cannot be sent
        for node in code.function.nodes():
            if not isinstance(node, ast.Raise) or node.exc is None:
                continue
            called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            local = _local_class(called, view)
            if local is not None:
                yield Hit(
                    node,
                    f"`{local.name}` is defined inside a function, so the exception cannot be sent"
                    " to the main process: the worker prints a traceback, and the loop waits for"
                    " ever",
                    LIKELY if code.workers is not None else POSSIBLE,
                )


def _local_class(node: ast.expr, view: View) -> ast.ClassDef | None:
    found = view.class_of(node)
    if found is None or "<locals>" not in found.qualified:
        return None
    return found.node


RULE = Rule(
    code="AF409",
    name="exception-that-cannot-cross",
    severity=FREEZE,
    confidence=LIKELY,
    find=find,
    follows=True,
)
