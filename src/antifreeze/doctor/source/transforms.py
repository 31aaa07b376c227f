"""Functions and objects that a dataset applies to its samples."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from . import library_names
from .definitions import Dataset, Function
from .step_budget import cached_walk
from .syntax.node_text import text_of
from .wrapped_datasets import datasets_behind

if TYPE_CHECKING:
    from .loaders import Loader
    from .view import View

_DEEPEST = 5  # a Compose in a list in a Compose
# Arguments that datasets of other packages call for each sample.
_APPLIED = frozenset({"transform", "target_transform", "transforms", "loader"})
# What calls all that it is given, beside transforms.
_KEEP = frozenset({"torch.nn.Sequential", "functools.partial"})


def transforms_of(loader: Loader, view: View) -> Iterator[Function]:
    """Yield the project's functions that a loader's dataset calls for each sample."""
    node = loader["dataset"].node
    if node is None:
        return
    dataset = loader.dataset
    if dataset is not None:
        yield from _called(dataset, view)
        return
    for made in datasets_behind(node, view):
        for keyword in made.keywords if isinstance(made, ast.Call) else ():
            if keyword.arg in _APPLIED:
                yield from _applied(keyword.value, view)


def _called(dataset: Dataset, view: View) -> Iterator[Function]:
    """Yield what `self.transform(...)` calls, and `for each in self.transforms: each(...)`, for all
    attributes that loading calls."""
    names = {
        called.attr
        for function in dataset.loading
        for call in function.calls()
        if isinstance(called := _one_of(call.func, function), ast.Attribute)
        and dataset.owns(called.value, function.module)
    }
    for name in sorted(names):
        for given in dataset.assignments(name):
            if given.value is not None:
                yield from _applied(given.value, view)


def _one_of(called: ast.expr, function: Function) -> ast.expr:
    """Return what a loop goes over whose variable is called; else what is called."""
    if not isinstance(called, ast.Name):
        return called
    for each in function.module.ancestors(called):
        if each is function.node:
            break
        if isinstance(each, ast.For) and text_of(each.target) == called.id:
            return each.iter
    return called


@cached_walk
def _applied(node: ast.expr, view: View, depth: int = 0) -> Iterable[Function]:
    if depth > _DEEPEST:
        return
    if isinstance(node, (ast.Name, ast.Attribute)):
        function = view.function_of(node)
        if function is not None and function.owner is None:
            yield function
            return
    for value in view.origins(node):
        match value:
            case ast.Lambda():
                yield Function(value, view.module)
            case ast.List() | ast.Tuple():
                for each in value.elts:
                    yield from _applied(each, view, depth + 1)
            case ast.Call():
                yield from _by_call(value, view, depth)
            case _:
                pass


def _by_call(call: ast.Call, view: View, depth: int) -> Iterator[Function]:
    name = view.resolve(call.func) or ""
    if name in _KEEP or name.startswith(library_names.TRANSFORMS):
        for each in (*call.args, *(keyword.value for keyword in call.keywords)):
            yield from _applied(each, view, depth + 1)
        return
    if not isinstance(call.func, (ast.Name, ast.Attribute)):
        return
    owner = view.class_of(call.func)
    if owner is not None:
        for method in ("__call__", "forward", "transform", "apply"):
            if (found := owner.method(method)) is not None:
                yield found
        return
    for value in view.returned(call):
        yield from _applied(value, view, depth + 1)
