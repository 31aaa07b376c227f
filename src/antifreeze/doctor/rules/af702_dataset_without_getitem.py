"""A dataset that gives no samples."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.view import View
from ._helpers.constructed_classes import (
    ConstructedObject,
    constructed_objects,
    construction_confidence,
    has_attribute,
    is_fully_known,
)
from .rule import CERTAIN, CRASH, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        node = loader["dataset"].node
        for each in constructed_objects(node, view) if node is not None else ():
            words = _lack(each)
            if words:
                assert node is not None
                yield Hit(
                    view.here(each.call, loader.node), words, construction_confidence(node, view)
                )


def _lack(each: ConstructedObject) -> str:
    owner = each.owner
    if not is_fully_known(owner):
        return ""
    if each.is_iterable:
        if has_attribute(owner, "__iter__"):
            return ""
        return f"`{owner.name}` is an IterableDataset without `__iter__`: it cannot even be made"
    if has_attribute(owner, "__getitem__") or has_attribute(owner, "__getitems__"):
        return ""
    if has_attribute(owner, "__iter__"):
        return (
            f"`{owner.name}` has `__iter__` but is no IterableDataset: the loader asks it for"
            " samples by index, and it has no `__getitem__`"
        )
    return f"`{owner.name}` has no `__getitem__`: there is nothing to load samples with"


RULE = Rule(
    code="AF702",
    name="dataset-without-getitem",
    severity=CRASH,
    confidence=CERTAIN,
    find=find,
)
