"""Statements that keep a value in a container, and containers that do not grow."""

from __future__ import annotations

import ast

from ...source.loader_loops import LoaderLoop
from ...source.syntax.node_text import text_of
from ...source.view import View

_TABLES = frozenset({"dict", "collections.defaultdict", "collections.OrderedDict"})


def container_and_value(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """Return where a statement keeps something, and what."""
    match node:
        case ast.Call(func=ast.Attribute(attr="append" | "add", value=place), args=[value]):
            return place, value
        case ast.Call(func=ast.Attribute(attr="extend", value=place), args=[value]):
            # The rows of a tensor are views of it; those of an array of numbers are copies.
            return place, None if "numpy" in text_of(value) else value
        case ast.AugAssign(op=ast.Add(), target=place, value=ast.List(elts=[value])):
            return place, value
        case ast.Assign(targets=[ast.Subscript(value=place)], value=value):
            return place, value
        case _:
            return None, None


def is_table(place: ast.expr, view: View) -> bool:
    """Whether `place[x] = y` keeps y: a dict does; a tensor copies it, a database writes it."""
    return any(
        isinstance(each, (ast.Dict, ast.DictComp))
        or (isinstance(each, ast.Call) and view.resolve(each.func) in _TABLES)
        for each in view.origins(place)
    )


def has_maximum_length(place: ast.expr, view: View) -> bool:
    """Whether it is a `deque(maxlen=8)`."""
    return any(
        isinstance(each, ast.Call) and any(keyword.arg == "maxlen" for keyword in each.keywords)
        for each in view.origins(place)
    )


def is_emptied_in(place: str, loop: LoaderLoop) -> bool:
    """Whether the list does not grow with the epoch: it is emptied, or the loop ends early."""
    for statement in loop.body:
        for node in ast.walk(statement):
            match node:
                case ast.Break() | ast.Return():
                    return True
                case ast.Call(func=ast.Name(id="len"), args=[owner]) if _is_compared(node, loop):
                    if text_of(owner) == place:
                        return True  # `if len(shown) < 16: shown.append(x)`
                case ast.Call(func=ast.Attribute(attr="clear" | "pop" | "popleft", value=owner)):
                    if text_of(owner) == place:
                        return True
                case _:
                    pass
    return False


def _is_compared(node: ast.AST, loop: LoaderLoop) -> bool:
    """Whether a value decides what is done: it is compared in the test of an `if`."""
    parents = loop.view.module.scopes.parents
    return isinstance(parents.get(node), ast.Compare)
