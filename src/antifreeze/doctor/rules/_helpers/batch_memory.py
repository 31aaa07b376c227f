"""Values that are a batch or a part of it, in the same memory."""

from __future__ import annotations

import ast
import re

# Methods that give the same memory again.
_SAME_MEMORY = frozenset(
    {"detach", "cpu", "numpy", "view", "squeeze", "unsqueeze", "reshape", "flatten", "contiguous"}
    | {"values", "items", "get", "permute", "transpose", "data"}
)

# Parts of batches that are text or numbers, which no shared memory belongs to.
TEXT_NAME = re.compile(
    r"path|file|name|text|title|caption|word|key|url|str|(^|_)ids?$", re.IGNORECASE
)


def batch_names(loop: ast.For | ast.AsyncFor) -> set[str]:
    """Return the names of the batch and its parts, without those that the body gives something
    else: `x = x.to(device)`."""
    names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    anew: set[str] = set()
    for statement in loop.body:
        for node in ast.walk(statement):
            if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.For)):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = node.iter if isinstance(node, ast.For) else node.value
            given = {e.id for t in targets for e in ast.walk(t) if isinstance(e, ast.Name)}
            if value is not None and is_of_batch(value, names) and not isinstance(node, ast.For):
                names |= {e for e in given if e not in names}
            else:
                anew |= given
    match loop.iter:  # for number, batch in enumerate(loader)
        case ast.Call(func=ast.Name(id="enumerate")):
            if isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name):
                anew.add(loop.target.elts[0].id)
        case _:
            pass
    return names - anew


def is_of_batch(value: ast.expr, names: set[str]) -> bool:
    """Whether a value is a batch or a part of it, in the same memory."""
    match value:
        case ast.Name():
            return value.id in names and not TEXT_NAME.search(value.id)
        case ast.Subscript(slice=ast.Constant(value=str() as key)) if TEXT_NAME.search(key):
            return False
        case ast.Subscript() | ast.Attribute():
            return is_of_batch(value.value, names)
        case ast.Tuple() | ast.List():
            return any(is_of_batch(each, names) for each in value.elts)
        case ast.Dict():
            return any(is_of_batch(each, names) for each in value.values)
        case ast.Call(func=ast.Attribute(attr=method, value=inner)) if method in _SAME_MEMORY:
            return is_of_batch(inner, names)
        case _:
            return False
