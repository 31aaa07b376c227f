"""Batches kept in a list: each tensor of them holds a descriptor and shared memory."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..findings import Confidence
from ..source.loader_loops import LoaderLoop
from ..source.loaders import Loader
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.batch_memory import TEXT_NAME, batch_names, is_of_batch
from ._helpers.first_batches import runs_for_first_batches
from ._helpers.kept_values import container_and_value, has_maximum_length, is_emptied_in, is_table
from .rule import CRASH, LIKELY, POSSIBLE, Hit, Rule

_ALL = frozenset({"list", "tuple"})
_TEST = re.compile(r"test_|conftest\.|.*_test\.")  # few batches, and soon forgotten


def find(view: View) -> Iterator[Hit]:
    if view.calls("multiprocessing.set_sharing_strategy"):
        return  # file_system: no descriptors
    for loop in view.loops:
        if loop.loader is None or not _shares(loop.loader) or _takes_some(loop.node.iter, view):
            continue
        confidence = POSSIBLE if _moved(loop.iterable, view) else _confidence(loop.loader)
        if isinstance(loop.node, ast.comprehension):
            yield from _comprehension(loop, view, confidence)
        else:
            yield from _kept(loop, view, confidence)
    for call in view.calls(*_ALL):
        loader = view.loader_of(call.args[0]) if len(call.args) == 1 else None
        if loader is None or not _shares(loader) or _takes_some(call, view):
            continue
        if view.variable_of(call):
            moved = _moved(call.args[0], view)
            yield _hit(call, text_of(call), POSSIBLE if moved else _confidence(loader))


def _shares(loader: Loader) -> bool:
    """Whether batches come in shared memory: from workers, and not copied to pinned memory."""
    return loader.workers.any and not loader.ours and not loader["pin_memory"].is_(True)


def _takes_some(node: ast.expr, view: View) -> bool:
    """Whether only so many batches are taken: `islice(loader, 8)`, `zip(range(8), loader)`."""
    return any(
        view.resolve(each.func) in ("itertools.islice", "range")
        for each in ast.walk(node)
        if isinstance(each, ast.Call)
    )


def _moved(node: ast.expr, view: View) -> bool:
    """Whether batches are copied to the GPU on their way: by Accelerate, or Fabric."""
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in ("prepare", "prepare_data_loader", "setup_dataloaders")
        for each in view.origins(node)
    )


def _confidence(loader: Loader) -> Confidence:
    pinned = loader["pin_memory"]
    collated = not (loader["batch_size"].given and loader["batch_size"].value is None)
    own = loader.collate  # a lambda: numpy's arrays, as often as not
    collated = collated and not (own is not None and isinstance(own.node, ast.Lambda))
    sure = (pinned.absent or pinned.is_(False)) and collated and not _none_by_default(loader)
    return LIKELY if sure and not _TEST.match(loader.view.path.name) else POSSIBLE


def _none_by_default(loader: Loader) -> bool:
    """Whether all that is seen of the number of workers is that it is 0, by default."""
    node = loader["num_workers"].node
    seen = loader.view.origins(node) if node is not None else ()
    return bool(seen) and all(
        isinstance(each, ast.Constant) and each.value in (0, None) for each in seen
    )


def _hit(node: ast.AST, what: str, confidence: Confidence) -> Hit:
    return Hit(
        node,
        f"`{what}` keeps the batch's tensors in the workers' shared memory, with an open"
        " descriptor each: after about a thousand of them, `Too many open files`",
        confidence,
    )


def _comprehension(loop: LoaderLoop, view: View, confidence: Confidence) -> Iterator[Hit]:
    assert isinstance(loop.node, ast.comprehension)
    outer = view.module.scopes.parents.get(loop.node)
    names = {each.id for each in ast.walk(loop.node.target) if isinstance(each, ast.Name)}
    if (
        isinstance(outer, ast.ListComp)
        and is_of_batch(outer.elt, names)
        and view.variable_of(outer)
    ):
        yield _hit(outer, text_of(outer), confidence)


def _kept(loop: LoaderLoop, view: View, confidence: Confidence) -> Iterator[Hit]:
    assert isinstance(loop.node, (ast.For, ast.AsyncFor))
    names = batch_names(loop.node)
    made_inside = {
        text_of(target)
        for statement in loop.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    for statement in loop.body:
        for node in ast.walk(statement):
            place, value = container_and_value(node)
            if place is None or value is None or not is_of_batch(value, names):
                continue
            if isinstance(node, ast.Assign) and not is_table(place, view):
                continue
            place_name = text_of(place)
            if place_name in made_inside or is_emptied_in(place_name, loop):
                continue
            if has_maximum_length(place, view) or runs_for_first_batches(node, loop, view):
                continue
            text = TEXT_NAME.search(text_of(value).lower()) is not None
            yield _hit(node, text_of(node), POSSIBLE if text else confidence)


RULE = Rule(
    code="AF206",
    name="batches-kept",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
)
