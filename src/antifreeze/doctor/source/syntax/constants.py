"""Evaluate constant expressions in source, where their value can be seen."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from enum import Enum
from typing import Any, Final


class Unknown(Enum):
    """The value of what only the running program knows. False in conditions."""

    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown.UNKNOWN

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
_DEEPEST = 100  # terms of a sum: more were written by no person, and recursion has its end
LARGEST_FACTOR = 1 << 62  # of a product: source may ask for more than memory holds


def constant(node: ast.expr, depth: int = 0) -> Any:
    """Return the value of a literal, or UNKNOWN. Names are not followed."""
    if depth > _DEEPEST:
        return UNKNOWN
    match node:
        case ast.Constant():
            return node.value
        case ast.UnaryOp(op=ast.USub()):
            value = constant(node.operand, depth + 1)
            return -value if isinstance(value, (int, float)) else UNKNOWN
        case ast.UnaryOp(op=ast.Not()):
            value = constant(node.operand, depth + 1)
            return UNKNOWN if value is UNKNOWN else not value
        case ast.BinOp():
            return _computed(node, depth + 1)
        case ast.Tuple() | ast.List() | ast.Set():
            values = [constant(each, depth + 1) for each in node.elts]
            return UNKNOWN if any(each is UNKNOWN for each in values) else values
        case _:
            return UNKNOWN


def _computed(node: ast.BinOp, depth: int) -> Any:
    left, right = constant(node.left, depth), constant(node.right, depth)
    if not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
        return UNKNOWN
    if isinstance(node.op, ast.Pow):
        small = isinstance(left, int) and isinstance(right, int) and 0 <= right <= 62
        return left**right if small and abs(left) <= 10 else UNKNOWN
    run = _OPERATORS.get(type(node.op))
    if run is None or max(abs(left), abs(right)) > LARGEST_FACTOR:
        return UNKNOWN
    try:
        return run(left, right)
    except ZeroDivisionError:
        return UNKNOWN
