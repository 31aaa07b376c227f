"""Statements in a loop over batches that run only for the first few of them."""

from __future__ import annotations

import ast

from ...source.loader_loops import LoaderLoop
from ...source.syntax.node_text import text_of
from ...source.view import View


def runs_for_first_batches(node: ast.AST, loop: LoaderLoop, view: View) -> bool:
    """Whether only the first batches are kept: under `if step < 16`, `if step == 0`."""
    counters = _batch_counters(loop)
    inner = node
    for outer in view.module.ancestors(node):
        if outer is loop.node:
            return False
        if isinstance(outer, ast.If):
            for test in ast.walk(outer.test):
                match test:
                    case ast.Compare(left=ast.Name(id=name), ops=[op]) if name in counters:
                        less = isinstance(op, (ast.Lt, ast.LtE, ast.Eq))
                        if less if inner in outer.body else isinstance(op, (ast.Gt, ast.GtE)):
                            return True
                    case _:
                        pass
        inner = outer
    return False


def _batch_counters(loop: LoaderLoop) -> set[str]:
    """Return the names that count batches: of `enumerate`, and those that the body adds to."""
    found = {
        node.target.id
        for statement in loop.body
        for node in ast.walk(statement)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    match loop.node.target:
        case ast.Tuple(elts=[ast.Name(id=first), *_]) if "enumerate" in text_of(loop.node.iter):
            found.add(first)
        case _:
            pass
    return found
