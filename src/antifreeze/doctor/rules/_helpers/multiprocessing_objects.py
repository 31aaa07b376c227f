"""Locks and queues of multiprocessing, whether made directly, by a context or by a manager."""

from __future__ import annotations

import ast

from ...source.view import View

_FROM = ("multiprocessing.Manager", "multiprocessing.get_context", "multiprocessing.managers")


def multiprocessing_primitive(node: ast.expr, view: View) -> str:
    """Return the name of the primitive that an expression stands for, if multiprocessing made it,
    by itself, a context or a manager: Lock, Queue; '' if it is something else."""
    for value in view.origins(node):
        if not isinstance(value, ast.Call) or not isinstance(value.func, (ast.Name, ast.Attribute)):
            continue
        name = view.resolve(value.func)
        if name is None and isinstance(value.func, ast.Attribute):
            maker = view.type_of(value.func.value) or ""
            name = f"multiprocessing.{value.func.attr}" if maker.startswith(_FROM) else None
        if name is not None and name.startswith("multiprocessing."):
            return name.rpartition(".")[2]
    return ""
