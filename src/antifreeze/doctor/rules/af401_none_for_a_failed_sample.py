"""A sample that fails becomes None, and breaks the collate function, or the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..findings import Confidence
from ..source.definitions import Dataset, DatasetKind, Function
from ..source.view import View
from ._helpers.exception_handlers import is_broad
from .rule import CRASH, LIKELY, POSSIBLE, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.kind is not DatasetKind.MAP or dataset.only_ours:
            continue
        loader_takes_it = any(each.has_collate for each in dataset.loaders)
        getitem = dataset.methods.get("__getitem__")
        if getitem is None or loader_takes_it or _may_be_meant(dataset):
            continue
        for handler, nothing in _handlers(getitem):
            yield Hit(
                nothing,
                "a sample that cannot be loaded becomes None: the default collate function raises a"
                " TypeError about NoneType, without its index or its cause",
                _confidence(handler, dataset, view),
            )


def _confidence(handler: ast.ExceptHandler, dataset: Dataset, view: View) -> Confidence:
    """Return how sure it is that the default function collates. Where no loader of the dataset is
    seen, one with a function of its own may be the one."""
    if dataset.loaders:
        return LIKELY
    return LIKELY if is_broad(handler) and not view.project.any_file_collates else POSSIBLE


def _may_be_meant(dataset: Dataset) -> bool:
    """Whether the class itself knows what to do with None: it has a collate method."""
    return any("collate" in name for each in dataset.lineage for name in each.methods)


def _handlers(function: Function) -> Iterator[tuple[ast.ExceptHandler, ast.stmt]]:
    """Yield the handlers that return None, each with the statement that does."""
    for handler in function.nodes():
        if not isinstance(handler, ast.ExceptHandler):
            continue
        for node in ast.walk(handler):
            if isinstance(node, ast.Return) and _is_none(node.value):
                yield handler, node


def _is_none(value: ast.expr | None) -> bool:
    match value:
        case None:
            return True
        case ast.Constant():
            return value.value is None
        case ast.Tuple():
            return bool(value.elts) and all(_is_none(each) for each in value.elts)
        case _:
            return False


RULE = Rule(
    code="AF401",
    name="none-for-a-failed-sample",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
)
