"""An iterable dataset that gives all its samples in each of the workers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..source.definitions import Dataset, DatasetKind
from ..source.view import View
from ._helpers.finite_iterables import is_finite
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

# Names that show that a class, or what it reads from, gives each worker a part.
_PARTS = re.compile(
    r"worker|n(um)?_?shard|(my|own|cur|current|this|local)_?shard|shard_(i|n|c|s|rank)|shard(id|ind)|sharded"
    r"|sharding|split_dataset_by_node|split_by",
    re.IGNORECASE,
)


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        several = [each for each in dataset.loaders if each.workers.any and not each.single]
        if dataset.kind is not DatasetKind.ITERABLE or not several or not dataset.is_known_whole:
            continue
        if any(each.has_worker_init for each in several):
            continue  # it may give each worker's copy its part
        iterate = dataset.method("__iter__")
        if iterate is None or _knows_parts(dataset):
            continue
        yield Hit(
            view.here(iterate.node, dataset.node),
            f"`__iter__` of `{dataset.name}` does not ask which worker it runs in: each of them"
            " gives all samples, so that every one comes as often as there are workers",
            LIKELY if is_finite(dataset, view) else POSSIBLE,
        )


def _knows_parts(dataset: Dataset) -> bool:
    bodies: list[ast.AST] = [each.node for each in dataset.lineage]
    bodies += [each.node for each in dataset.loading]
    return any(_PARTS.search(name) for body in bodies for name in _names(body))


def _names(body: ast.AST) -> Iterator[str]:
    for node in ast.walk(body):
        match node:
            case ast.Call(func=ast.Attribute(attr="shard")):
                yield "sharded"
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case _:
                pass


RULE = Rule(
    code="AF605",
    name="iterable-in-every-worker",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
