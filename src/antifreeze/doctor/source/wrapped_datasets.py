"""Find the datasets behind an expression: through `Subset`, lists, and variables."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import library_names
from .step_budget import cached_walk

if TYPE_CHECKING:
    from .view import View

_DEEPEST = 5  # a list in a ConcatDataset in a Subset
_MOST_ITEMS = 50  # of a list: the others are as these


@cached_walk
def datasets_behind(node: ast.expr, view: View, depth: int = 0) -> Iterable[ast.expr]:
    """Yield the expressions that make the datasets which an expression stands for, or wraps."""
    for value in view.origins(node) if depth <= _DEEPEST else ():
        inside: list[ast.expr]
        match value:
            case ast.Subscript():
                inside = _item(value, view)
            case ast.DictComp():
                inside = [value.value]
            case ast.ListComp():
                inside = [value.elt]
            case ast.List() | ast.Tuple():
                inside = value.elts[:_MOST_ITEMS]
            case ast.Dict():
                inside = value.values[:_MOST_ITEMS]
            case ast.Call() if view.resolve(value.func) in library_names.WRAPPERS:
                inside = value.args[:1]
                inside += [e.value for e in value.keywords if e.arg in ("dataset", "datasets")]
            case _:
                yield value
                continue
        for each in inside:
            yield from datasets_behind(each, view, depth + 1)


def _item(node: ast.Subscript, view: View) -> list[ast.expr]:
    """Return what `datasets["train"]` is: that entry alone, where it is seen."""
    found: list[ast.expr] = []
    for whole in view.origins(node.value):
        if isinstance(whole, ast.Dict) and isinstance(node.slice, ast.Constant):
            found += [
                value
                for key, value in zip(whole.keys, whole.values, strict=True)
                if isinstance(key, ast.Constant) and key.value == node.slice.value
            ]
        else:
            found.append(whole)
    return found
