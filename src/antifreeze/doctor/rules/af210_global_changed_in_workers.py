"""A global list, dict or counter that workers change, each its own, and the main process reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Function
from ..source.view import View
from ._helpers.in_place_changes import changed_in_place, is_plain_value
from .rule import LIKELY, WRONG_DATA, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    codes = [code for code in view.worker_code if code.workers is not None]
    if not codes:
        return
    in_workers: set[ast.AST] = {code.function.node for code in view.worker_code}
    reported: set[str] = set()
    for code in codes:
        for node, name in _changes(code.function, view):
            reader = _reader(name, in_workers, view) if name not in reported else None
            if reader is not None:
                reported.add(name)
                yield Hit(
                    node,
                    f"each worker changes a copy of `{name}` of its own: what the main process"
                    f" reads in line {getattr(reader, 'lineno', 0)} stays as it was",
                )


def _changes(function: Function, view: View) -> Iterator[tuple[ast.AST, str]]:
    """Yield the places where a function changes a plain value of the module."""
    for node in function.nodes():
        owner = changed_in_place(node)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            owner = node.targets[0]
        if isinstance(owner, ast.Name) and _is_plain_global(owner, function, view):
            yield node, owner.id


def _is_plain_global(name: ast.Name, function: Function, view: View) -> bool:
    own = function.module.scopes.of_node.get(function.node)
    if isinstance(name.ctx, ast.Store) and (
        own is None or name.id not in own.of_module | own.of_outer
    ):
        return False  # a variable of the function
    found = function.module.scopes.lookup(name.id, name)
    if found is None or found[0] is not view.module.scopes.top:
        return False
    at_top = [each for each in found[1] if view.function_around(each.node) is None]
    return bool(at_top) and all(is_plain_value(each.value, view) for each in at_top)


def _reader(name: str, in_workers: set[ast.AST], view: View) -> ast.AST | None:
    """Return a place in the main process that reads it: at module level, or beside a loader."""
    beside = {view.function_around(each.node) for each in view.loaders}
    beside |= {view.function_around(each.place) for each in view.loops}
    for node in view.module.nodes(ast.Name):
        if node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        found = view.module.scopes.lookup(name, node)
        if found is None or found[0] is not view.module.scopes.top:
            continue
        function = view.function_around(node)
        if function in in_workers or function not in {*beside, None}:
            continue
        if not _only_changes(node, view) and not _before_all_loaders(node, function, view):
            return node
    return None


def _only_changes(node: ast.Name, view: View) -> bool:
    """Whether a place only fills or empties it, or is the body of a class."""
    match view.module.scopes.parents.get(node):
        case ast.Attribute(attr="clear" | "append" | "update" | "add"):
            return True
        case ast.Subscript(ctx=ast.Store()):
            return True
        case _:
            return view.function_around(node) is None and view.module.class_around(node) is not None


def _before_all_loaders(node: ast.Name, function: ast.AST | None, view: View) -> bool:
    places = [each.node for each in view.loaders] + [each.place for each in view.loops]
    lines = [getattr(e, "lineno", 0) for e in places if view.function_around(e) is function]
    return bool(lines) and node.lineno <= max(lines) and view.loop_around(node) is None


RULE = Rule(
    code="AF210",
    name="global-changed-in-workers",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
