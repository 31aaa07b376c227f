"""Places that change an attribute of a dataset outside of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...source import library_names
from ...source.loaders import Loader
from ...source.syntax.node_text import text_of
from ...source.view import View
from .in_place_changes import changed_in_place


@dataclass(frozen=True, slots=True)
class DatasetChange:
    """A place that changes the attribute of a dataset."""

    node: ast.AST
    owner: ast.expr  # the dataset
    attribute: str
    method: bool = False  # through a method of the dataset
    in_place: bool = False  # `dataset.weights[3] = 0.5`


def dataset_changes(view: View) -> Iterator[DatasetChange]:
    assigned: list[tuple[ast.stmt, ast.expr]] = [
        (node, target) for node in view.module.nodes(ast.Assign) for target in node.targets
    ]
    assigned += [(node, node.target) for node in view.module.nodes(ast.AugAssign)]
    for statement, target in assigned:
        match target:
            case ast.Attribute(value=ast.Name() | ast.Attribute() as owner, attr=name):
                yield DatasetChange(statement, owner, name)
            case _:
                pass
    for node in (*(each for each, _ in assigned), *view.module.nodes(ast.Call)):
        match changed_in_place(node):
            case ast.Attribute(value=ast.Name() | ast.Attribute() as owner, attr=name):
                yield DatasetChange(node, owner, name, in_place=True)
            case _:
                pass
    for call in view.module.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and isinstance(
            call.func.value, (ast.Name, ast.Attribute)
        ):
            yield DatasetChange(call, call.func.value, call.func.attr, method=True)


def is_dataset_of(owner: ast.expr, loader: Loader, view: View) -> bool:
    """Whether an expression is the dataset of a loader, by name or by the call that made it."""
    if isinstance(owner, ast.Attribute) and owner.attr == "dataset":
        found = view.loader_of(owner.value)
        if found is not None:
            return found is loader
    given = loader["dataset"].node
    if given is None:
        return False
    theirs = _calls_that_made(given, view)
    if theirs:
        return not theirs.isdisjoint(_calls_that_made(owner, view))
    same_function = view.function_around(owner) is view.function_around(loader.node)
    return same_function and text_of(owner) == text_of(given)


def _calls_that_made(node: ast.expr, view: View) -> set[ast.Call]:
    """Return the calls that made an object, or the one it wraps (`data = Subset(data, ...)`
    too)."""
    found: set[ast.Call] = set()
    seen: set[ast.Call] = set()
    queue = [node]
    while queue:
        for value in view.origins(queue.pop()):
            if not isinstance(value, ast.Call) or value in seen:
                continue
            seen.add(value)
            if view.resolve(value.func) in library_names.WRAPPERS and value.args:
                for each in view.origins(value.args[0]):
                    queue += each.elts if isinstance(each, (ast.List, ast.Tuple)) else [each]
            else:
                found.add(value)
    return found
