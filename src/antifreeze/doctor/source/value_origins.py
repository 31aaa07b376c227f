"""Follow a variable to the expressions that it may stand for, across functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .definitions import Class
from .syntax.module import Module
from .syntax.node_text import last_name
from .syntax.reaching_definitions import attribute_can_reach, can_reach
from .syntax.scopes import FunctionNode, Kind

if TYPE_CHECKING:
    from .view import View

# Expressions on the way: who needs more is no variable that anybody can follow.
MOST_ORIGIN_NODES = 50


def origins(node: ast.expr, view: View) -> tuple[ast.expr, ...]:
    """Return what a variable may stand for, as far as it is seen: unlike `values` also through
    parameters to their defaults and the calls in this file, without promising that there is no
    more."""
    found: list[ast.expr] = []
    queue, seen = [node], set[ast.AST]()
    while queue and len(seen) < MOST_ORIGIN_NODES:
        here = queue.pop(0)
        if here in seen:
            continue
        seen.add(here)
        match here:
            case ast.Name():
                queue += _behind_name(here, view)
            case ast.Attribute() if view.module_of(here).class_of_self(here.value) is not None:
                queue += _behind_attribute(here, view)
            case ast.IfExp():
                queue += [here.body, here.orelse]
            case ast.BoolOp():
                queue += here.values
            case ast.NamedExpr():
                queue.append(here.value)
            case _:
                found.append(here)
    return tuple(found)


def _behind_name(node: ast.Name, view: View) -> Iterator[ast.expr]:
    home = view.module_of(node)
    bindings = home.bindings(node)
    for binding in bindings:
        if len(bindings) > 1 and not can_reach(binding, node, bindings, home):
            continue
        if binding.kind in (Kind.ASSIGNED, Kind.WITH) and binding.value is not None:
            yield binding.value
        elif binding.kind is Kind.PARAMETER and isinstance(binding.node, ast.arg):
            passed = list(_passed(binding.node, home, view))
            yield from passed
            arguments = home.scopes.parents.get(binding.node)
            function = home.scopes.parents.get(arguments) if arguments is not None else None
            all_known = bool(passed) and function in view.only_calls
            if binding.value is not None and not all_known:  # its default
                yield binding.value
        elif isinstance(binding.node, ast.Assign):
            yield from _unpacked(node.id, binding.node, view)


def _unpacked(name: str, statement: ast.Assign, view: View) -> Iterator[ast.expr]:
    """Yield what a name gets of `a, b = loaders()`: its part of what a function of this file
    returns; else the whole, as for `random_split(...)`."""
    places = [
        place
        for target in statement.targets
        if isinstance(target, (ast.Tuple, ast.List))
        for place, each in enumerate(target.elts)
        if isinstance(each, ast.Name) and each.id == name
    ]
    tuples = [e for e in view.returned(statement.value) if isinstance(e, ast.Tuple)]
    parts = [e.elts[place] for e in tuples for place in places if place < len(e.elts)]
    yield from parts or [statement.value]


def _behind_attribute(node: ast.Attribute, view: View) -> Iterator[ast.expr]:
    home = view.module_of(node)
    owner = home.class_of_self(node.value)
    if owner is not None:
        every = Class(owner, home, view.project).assignments(node.attr)
        for given in every:
            own = len(every) > 1 and home.holds(given.node)
            if own and not attribute_can_reach(given, node, home):
                continue
            if given.value is not None:
                yield given.value
            elif isinstance(given.node, ast.Assign):
                yield given.node.value


def _passed(parameter: ast.arg, home: Module, view: View) -> Iterator[ast.expr]:
    """Yield what is passed for a parameter at the calls in this file."""
    arguments = home.scopes.parents.get(parameter)
    function = home.scopes.parents.get(arguments) if arguments is not None else None
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    calls = view.calls_of(function)
    given = [view.arguments(call, function)[parameter.arg] for call in calls]
    yield from (each.node for each in given if each.node is not None)
    for call in _partials_of(function, view):
        bound = view.arguments(call, function)[parameter.arg]
        if bound.node is not None:
            yield bound.node


def _partials_of(function: FunctionNode, view: View) -> Iterator[ast.Call]:
    """Yield the `partial(function, ...)` of this file, as calls with what they pass."""
    for call in view.calls("functools.partial"):
        first = call.args[0] if call.args else None
        if not isinstance(first, (ast.Name, ast.Attribute)):
            continue
        if last_name(first) != function.name:
            continue
        named = view.function_of(first)
        if named is not None and named.node is function:
            made = ast.copy_location(ast.Call(first, call.args[1:], call.keywords), call)
            yield view.module.adopt(made, call)
