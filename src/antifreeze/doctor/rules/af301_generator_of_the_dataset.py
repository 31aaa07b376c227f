"""A generator made before the workers: each of them has a copy, and draws the same numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset, Function
from ..source.view import View
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

GENERATORS = frozenset(
    {
        "numpy.random.default_rng",
        "numpy.random.Generator",
        "numpy.random.RandomState",
        "random.Random",
        "torch.Generator",
    }
)
_SEEDS = frozenset({"seed", "manual_seed", "setstate", "set_state"})


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.only_ours or (dataset.workers is not None and not dataset.workers.any):
            continue
        confidence = LIKELY if dataset.workers is not None else POSSIBLE
        for hit in (*_owned(view, dataset), *_of_the_module(view, dataset)):
            yield Hit(hit.node, hit.words, confidence)
    yield from _of_transforms(view)


def _of_transforms(view: View) -> Iterator[Hit]:
    """Find generators of objects that the dataset calls for each sample."""
    reported: set[ast.AST] = set()
    for code in view.worker_code:
        owner = code.function.owner
        if code.role != "transform" or owner is None or code.only_ours:
            continue
        prepared = {each.node for each in owner.reached("__init__")}
        for attribute, places in owner.attributes.items():
            used = any(
                isinstance(node, ast.Attribute)
                and node.attr == attribute
                and owner.owns(node.value, code.function.module)
                for node in code.function.nodes()
            )
            if not used or any(each.method not in prepared for each in places):
                continue
            for place in places:
                maker = _maker(view, place.value) if place.value is not None else None
                if maker is None or place.node in reported or _seeded(code.function, attribute):
                    continue
                reported.add(place.node)
                yield Hit(
                    view.here(place.node, code.function.node),
                    f"every worker gets a copy of the transform `{owner.name}` with its"
                    f" `self.{attribute}` ({maker}): all of them draw the same numbers, and the"
                    " same again in the next epoch",
                )


def _owned(view: View, dataset: Dataset) -> Iterator[Hit]:
    prepared = {function.node for function in dataset.preparing}
    for attribute, places in dataset.attributes.items():
        for place in places:
            if place.value is None or (place.method is not None and place.method not in prepared):
                continue
            maker = _maker(view, place.value)
            if maker is None or not dataset.uses(attribute) or dataset.sets_anew(attribute):
                continue
            started = [code.function for code in view.worker_code if code.role == "init"]
            if any(_seeded(function, attribute) for function in (*dataset.loading, *started)):
                continue
            yield Hit(
                view.here(place.node, dataset.node),
                f"every worker gets a copy of `self.{attribute}` ({maker}) as it was when the"
                " workers started: all of them draw the same numbers, and draw them again in the"
                " next epoch, unless the workers are persistent",
            )


def _of_the_module(view: View, dataset: Dataset) -> Iterator[Hit]:
    for function in dataset.loading:
        for node in function.nodes():
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            if view.module.scopes.top.names.get(node.id) != view.module.bindings(node):
                continue  # of a function, or of another file
            value = view.value(node)
            maker = _maker(view, value) if value is not None else None
            if maker is not None and not _seeded(function, node.id):
                yield Hit(
                    node,
                    f"every worker gets a copy of the module's `{node.id}` ({maker}): all of them"
                    " draw the same numbers",
                )


def _maker(view: View, value: ast.expr) -> str | None:
    for each in view.origins(value):
        if isinstance(each, ast.Call):
            name = view.resolve(each.func)
            if name in GENERATORS:
                return name
    return None


def _seeded(function: Function, name: str) -> bool:
    """Whether a function gives the generator a seed of its own before it draws."""
    for call in function.calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr in _SEEDS:
            owner = call.func.value
            if isinstance(owner, ast.Attribute) and owner.attr == name:
                return True
            if isinstance(owner, ast.Name) and owner.id == name:
                return True
    return False


RULE = Rule(
    code="AF301",
    name="generator-of-the-dataset",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
    follows=True,
)
