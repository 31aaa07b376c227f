"""A seed that is set anew for every sample: all samples get the same random numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset, DatasetKind, Function
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.generator_seeding import GLOBAL_SEEDS, SEEDED_GENERATORS, SeedingCall, seeding_calls
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.kind is not DatasetKind.MAP:
            continue  # a stream is seeded once, so that all workers shuffle alike
        for function in dataset.loading:
            for each in seeding_calls(function, view, GLOBAL_SEEDS | SEEDED_GENERATORS):
                if not _same_for_all(each, function, dataset, view):
                    continue
                yield Hit(
                    view.here(each.call, dataset.node),
                    f"`{text_of(each.call)}` runs for every sample: all samples get the same"
                    " random numbers, in every epoch",
                    POSSIBLE if _on_condition(each, function, view) else LIKELY,
                )


def _same_for_all(seeding: SeedingCall, function: Function, dataset: Dataset, view: View) -> bool:
    parts = view.dependencies(seeding.seed, seeding.function)
    if not parts.fixed:
        return False
    if seeding.function.node is not function.node and parts.attributes:
        return False
    return all(_never_changes(name, dataset) for name in parts.attributes)


def _never_changes(attribute: str, dataset: Dataset) -> bool:
    """Whether an attribute is given in `__init__` and nowhere else, as far as is seen."""
    prepared = {function.node for function in dataset.preparing}
    places = dataset.assignments(attribute)
    return bool(places) and all(each.method in prepared and each.value for each in places)


def _on_condition(seeding: SeedingCall, function: Function, view: View) -> bool:
    """Whether it is only seeded sometimes: for validation, or if that is asked for."""
    return any(
        isinstance(each, (ast.If, ast.IfExp))
        for each in function.module.ancestors(seeding.call)
        if each is not function.node
    )


RULE = Rule(
    code="AF303",
    name="seed-in-every-sample",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
