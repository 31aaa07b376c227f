"""A dataset that gives no samples."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.view import View
from .base import CERTAIN, CRASH, Hit, Rule
from .made import Made, has, how_sure, is_closed, made


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        node = loader["dataset"].node
        for each in made(node, view) if node is not None else ():
            words = _lack(each)
            if words:
                assert node is not None
                yield Hit(view.here(each.call, loader.node), words, how_sure(node, view))


def _lack(each: Made) -> str:
    owner = each.owner
    if not is_closed(owner):
        return ""
    if each.is_iterable:
        if has(owner, "__iter__"):
            return ""
        return f"`{owner.name}` is an IterableDataset without `__iter__`: it cannot even be made"
    if has(owner, "__getitem__") or has(owner, "__getitems__"):
        return ""
    if has(owner, "__iter__"):
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
