"""drop_last with an iterable dataset: each worker drops a rest of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset, DatasetKind
from ..source.loaders import Loader
from ..source.view import View
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

_ENDLESS = ("itertools.cycle", "itertools.count")


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        if not loader["drop_last"].is_(True) or not loader.workers.any:
            continue
        batched = not (loader["batch_size"].given and loader["batch_size"].value is None)
        if loader["num_workers"].is_(1) or not batched or not _is_iterable(loader, view):
            continue
        yield Hit(
            loader.node,
            "each worker drops its own last batch of this iterable dataset: up to `num_workers *"
            " (batch_size - 1)` samples are lost in every epoch, or all of a small part",
            LIKELY if loader.dataset is None or _gives_itself(loader.dataset) else POSSIBLE,
        )


def _is_iterable(loader: Loader, view: View) -> bool:
    """Whether the dataset is iterable, and ends."""
    dataset = loader.dataset
    if dataset is not None:
        return dataset.kind is DatasetKind.ITERABLE and not any(
            _never_ends(node, view) for each in dataset.loading for node in each.nodes()
        )
    made = loader.dataset_expression
    while isinstance(made, ast.Call):  # load_dataset(...).map(...).with_format("torch")
        if view.resolve(made.func) == "datasets.load_dataset":
            return view.call_arguments(made)["streaming"].is_(True)
        if not isinstance(made.func, ast.Attribute) or made.func.attr in ("repeat", "batch"):
            return False
        made = view.value(made.func.value)
    return False


def _gives_itself(dataset: Dataset) -> bool:
    """Whether we see what gives the samples. An object that `__iter__` asks for all of them
    may be without an end."""
    return dataset.method("__next__") is not None or any(
        each.is_generator for each in dataset.loading
    )


def _never_ends(node: ast.AST, view: View) -> bool:
    match node:
        case ast.While(test=ast.Constant(value=True | 1)):
            return True
        case ast.Call():
            return view.resolve(node.func) in _ENDLESS
        case _:
            return False


RULE = Rule(
    code="AF606",
    name="drop-last-of-an-iterable",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
