"""A dataset that cannot say how long it is, where somebody asks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source import library_names
from ..source.loaders import Loader
from ..source.view import View
from ._helpers.constructed_classes import (
    ConstructedObject,
    constructed_objects,
    construction_confidence,
    has_attribute,
    is_fully_known,
)
from .rule import CERTAIN, CRASH, LIKELY, Hit, Rule

# Samplers that ask the dataset they are given.
_ASK = (
    "torch.utils.data.RandomSampler",
    "torch.utils.data.SequentialSampler",
    library_names.DISTRIBUTED_SAMPLER,
)


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        yield from _given_to_loader(loader, view)
    for call in view.calls(*_ASK):
        for each in constructed_objects(call.args[0], view) if call.args else ():
            if not each.inside and _lacks_length(each):
                yield Hit(call, f"this sampler asks for `len()` of {_named(each)}", CERTAIN)
    streams = dict(_streams(view))
    for call in view.calls("len") if streams else ():
        for value in view.origins(call.args[0]) if call.args else ():
            if value in streams and not _guarded(call, view):
                words = f"the length of this loader is that of {_named(streams[value])}"
                yield Hit(call, words, LIKELY)


def _streams(view: View) -> Iterator[tuple[ast.expr, ConstructedObject]]:
    """Yield the loaders of iterable datasets without a length."""
    for loader in view.loaders:
        node = loader["dataset"].node
        for each in constructed_objects(node, view) if node is not None else ():
            if each.is_iterable and not each.inside and _lacks_length(each):
                yield loader.node, each


def _given_to_loader(loader: Loader, view: View) -> Iterator[Hit]:
    node = loader["dataset"].node
    if node is None:
        return
    alone = all(
        loader[each].absent or loader[each].is_(None) for each in ("sampler", "batch_sampler")
    )
    confidence = construction_confidence(node, view)
    for each in constructed_objects(node, view):
        if (
            each.is_iterable
            or not _lacks_length(each)
            or not has_attribute(each.owner, "__getitem__")
        ):
            continue  # without either, AF702 has more to say
        who = _named(each)
        if each.asked_for_length:
            short = each.inside.rpartition(".")[2]
            words = f"{short} asks for `len()` of {who}"
            yield Hit(view.here(each.call, loader.node), words, confidence)
        elif alone and not each.inside:
            yield Hit(
                loader.node,
                f"this loader has no sampler, so it asks for `len()` of {who}: TypeError at the"
                " first batch",
                confidence,
            )


def _guarded(node: ast.AST, view: View) -> bool:
    return any(
        isinstance(each, (ast.Try, ast.If, ast.IfExp)) for each in view.module.ancestors(node)
    )


def _lacks_length(each: ConstructedObject) -> bool:
    return is_fully_known(each.owner) and not has_attribute(each.owner, "__len__")


def _named(each: ConstructedObject) -> str:
    return f"`{each.owner.name}`, which has no `__len__`"


RULE = Rule(
    code="AF701",
    name="dataset-without-len",
    severity=CRASH,
    confidence=CERTAIN,
    find=find,
)
