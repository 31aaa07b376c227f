"""Statements that change a list, dict or counter in place."""

from __future__ import annotations

import ast

from ...source.definitions import Dataset
from ...source.view import View

_CHANGES = frozenset(
    {"append", "appendleft", "add", "extend", "update", "insert", "setdefault", "pop", "remove"}
)
_PLAIN = frozenset(
    {"list", "dict", "set", "collections.Counter", "collections.defaultdict", "collections.deque"}
    | {"collections.OrderedDict"}
)


def changed_in_place(node: ast.AST) -> ast.expr | None:
    """Return what a statement or call changes in place: `x` of `x += 1`, `x[k] = v`, `x.append(v)`;
    None if it is none of these."""
    match node:
        case ast.AugAssign(target=ast.Subscript(value=owner)):
            return owner
        case ast.AugAssign(target=owner):
            return owner
        case ast.Assign(targets=[ast.Subscript(value=owner)]):
            return owner
        case ast.Call(func=ast.Attribute(attr=method, value=owner)) if method in _CHANGES:
            return owner.value if isinstance(owner, ast.Subscript) else owner
        case _:
            return None


def is_plain_value(value: ast.expr | None, view: View) -> bool:
    """Whether a value is a number, list, dict or the like: nothing that processes share."""
    match value:
        case ast.Constant() | ast.List() | ast.Dict() | ast.Set() | ast.ListComp():
            return True
        case ast.BinOp(op=ast.Mult(), left=ast.List()):
            return True
        case ast.Call():
            return view.resolve(value.func) in _PLAIN
        case _:
            return False


def has_plain_values(attribute: str, dataset: Dataset, view: View) -> bool:
    """Whether an attribute of a dataset has plain values only."""
    values = [
        e.value for e in dataset.assignments(attribute) if not isinstance(e.node, ast.AugAssign)
    ]
    return bool(values) and all(is_plain_value(each, view) for each in values)
