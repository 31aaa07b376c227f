"""A cache that loading fills and nothing empties: one in every worker, each up to the dataset."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..findings import Confidence
from ..source.definitions import Dataset, Function
from ..source.file_summary import Workers
from ..source.syntax.node_text import last_name, text_of
from ..source.view import View
from ._helpers.lasting_tables import is_bounded, is_small_value, lasting_table
from .rule import LIKELY, POSSIBLE, SLOW, Hit, Rule

_ENTRIES = frozenset({"__getitem__", "__getitems__"})
_FEW = frozenset({"device", "dtype", "shape", "ndim", "size", "mode", "suffix"})


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.workers is Workers.NONE:
            continue
        seen = LIKELY if dataset.workers is not None else POSSIBLE
        for function in dataset.loading:
            yield from _stored(function, dataset, view, seen)
            if function.owner is not None:
                yield from _remembered(function, dataset, view, seen)


def _stored(
    function: Function, dataset: Dataset, view: View, confidence: Confidence
) -> Iterator[Hit]:
    for node in function.nodes():
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
            continue
        target = node.targets[0]
        kept = lasting_table(target.value, function, dataset, view)
        if not kept or is_small_value(node.value, view):
            continue
        if not _of_the_sample(target.slice, function, dataset, view):
            continue  # the same few keys each time
        if is_bounded(kept, dataset):
            continue
        yield Hit(
            view.here(node, dataset.node),
            f"`{kept}` grows with every new sample, in each worker by itself: up to the whole"
            " dataset in every one of them, and it is lost when they end",
            POSSIBLE if _asked_for(node, kept, function) else confidence,
        )


def _of_the_sample(
    node: ast.expr, function: Function, dataset: Dataset, view: View, depth: int = 0
) -> bool:
    """Whether a key is another one for each sample: made of the index, through the functions
    that it is passed to. A shape, type or device is not."""
    value = view.value(node) or node
    if any(isinstance(each, ast.Attribute) and each.attr in _FEW for each in ast.walk(value)):
        return False
    parameters = view.dependencies(node, function).parameters
    if function.name in _ENTRIES:
        return bool(parameters)
    if depth > 3 or isinstance(function.node, ast.Lambda):
        return False
    for caller in dataset.loading:
        for call in caller.calls():
            name = last_name(call.func)
            if name != function.name:
                continue
            given = view.arguments(call, function.node)
            for parameter in parameters:
                passed = given[parameter].node
                if passed is not None and _of_the_sample(passed, caller, dataset, view, depth + 1):
                    return True
    return False


def _asked_for(node: ast.AST, kept: str, function: Function) -> bool:
    """Whether an option decides on it: `if self.use_cache:`."""
    for each in function.module.ancestors(node):
        if each is function.node:
            return False
        if isinstance(each, ast.If) and kept not in text_of(each.test):
            options = (e.value for e in ast.walk(each.test) if isinstance(e, ast.Attribute))
            if any(function.module.class_of_self(e) is not None for e in options):
                return True
    return False


def _remembered(
    function: Function, dataset: Dataset, view: View, confidence: Confidence
) -> Iterator[Hit]:
    """Find `functools.cache` on a function that is called with something of the sample."""
    for call in function.calls():
        called: Function | None = None
        if isinstance(call.func, ast.Attribute):
            if function.module.class_of_self(call.func.value) is not None:
                called = dataset.method(call.func.attr)
        else:
            called = view.function_of(call.func)
        if called is None or isinstance(called.node, ast.Lambda):
            continue
        memo = next((d for d in called.node.decorator_list if _without_bound(d, view)), None)
        if memo is None or not any(_of_the_sample(a, function, dataset, view) for a in call.args):
            continue
        yield Hit(
            view.here(memo, call),
            f"`{called.name}` remembers all it ever gave, in each worker by itself: up to (workers)"
            " times the dataset; it is lost when the workers end",
            confidence,
        )


def _without_bound(decorator: ast.expr, view: View) -> bool:
    name = view.resolve(decorator.func if isinstance(decorator, ast.Call) else decorator)
    if name == "functools.cache":
        return True
    if name != "functools.lru_cache" or not isinstance(decorator, ast.Call):
        return False
    size = view.call_arguments(decorator, ("maxsize",))["maxsize"]
    return size.given and size.value is None


RULE = Rule(
    code="AF204",
    name="cache-without-bound",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
