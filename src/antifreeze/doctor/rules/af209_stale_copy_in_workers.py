"""The main process changes the dataset, and the workers that run do not see it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset, Function
from ..source.loaders import Loader
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.dataset_changes import DatasetChange, dataset_changes, is_dataset_of
from ._helpers.in_place_changes import changed_in_place, has_plain_values
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

# Attributes of datasets of other libraries that loading surely reads.
_READ_BY_LOADING = frozenset({"transform", "transforms", "target_transform", "epoch", "augment"})
_STARTS_ANEW = frozenset({"reset", "_reset", "shutdown_workers", "_shutdown_workers", "close"})


def find(view: View) -> Iterator[Hit]:
    with_workers = [each for each in view.loaders if each.workers.any]
    if not with_workers:
        return
    in_workers = {code.function.node for code in view.worker_code}
    for change in dataset_changes(view):
        if view.function_around(change.node) in in_workers:
            continue
        if view.module.class_of_self(change.owner) is not None:
            continue  # `self.x`: no loader has it
        for loader in with_workers:
            view.budget.spend()  # each change is asked of each loader
            if is_dataset_of(change.owner, loader, view) and _is_read(change, loader, view):
                hit = _hit(change, loader, view)
                if hit is not None:
                    yield hit
                    break


def _is_read(change: DatasetChange, loader: Loader, view: View) -> bool:
    """Whether loading reads what is changed."""
    dataset = loader.dataset
    if dataset is None:
        return not change.method and not change.in_place and change.attribute in _READ_BY_LOADING
    if change.in_place:
        return has_plain_values(change.attribute, dataset, view) and bool(
            dataset.uses(change.attribute)
        )
    if not change.method:
        return bool(dataset.uses(change.attribute))
    method = dataset.method(change.attribute)
    if method is None or method.node in {each.node for each in dataset.loading}:
        return False
    return any(dataset.uses(name) for name in _changed_by(method, dataset, view))


def _changed_by(method: Function, dataset: Dataset, view: View) -> set[str]:
    """Return the attributes that a method gives another value, or fills."""
    given = {
        name
        for name, places in dataset.attributes.items()
        if any(place.method is method.node for place in places)
    }
    for node in method.nodes():
        owner = changed_in_place(node)
        if (
            isinstance(owner, ast.Attribute)
            and method.module.class_of_self(owner.value) is not None
            and has_plain_values(owner.attr, dataset, view)
        ):
            given.add(owner.attr)
    return given


def _hit(change: DatasetChange, loader: Loader, view: View) -> Hit | None:
    what = text_of(change.node).partition("\n")[0]
    what = what if len(what) <= 60 else f"{what[:57]}..."
    persistent = loader["persistent_workers"]
    once = persistent.absent or persistent.is_(False)
    for loop in view.loops:
        if loop.loader is loader and any(_inside(change.node, s, view) for s in loop.body):
            if once and _is_for_later(change, loader):
                return None
            if any(isinstance(each, ast.Break) for s in loop.body for each in ast.walk(s)):
                return None
            return Hit(
                change.node,
                f"the workers have copies of the dataset from before this loop: `{what}` does not"
                " reach them while it runs",
            )
    if once or loader.in_loop is not None:
        return None
    if not _between_epochs(change.node, loader, view) or _started_anew(view):
        return None
    return Hit(
        change.node,
        "the workers are persistent and keep the dataset as it was when they started:"
        f" `{what}` never reaches them",
        LIKELY if persistent.is_(True) else POSSIBLE,
    )


def _is_for_later(change: DatasetChange, loader: Loader) -> bool:
    """Whether a change in the loop may be meant for the next epoch: weights by sample, ..."""
    if not change.method:
        return change.in_place
    method = loader.dataset.method(change.attribute) if loader.dataset is not None else None
    return method is not None and any(
        changed_in_place(node) is not None and not isinstance(node, ast.AugAssign)
        for node in method.nodes()
    )


def _inside(node: ast.AST, statement: ast.stmt, view: View) -> bool:
    return node is statement or any(each is statement for each in view.module.ancestors(node))


def _between_epochs(node: ast.AST, loader: Loader, view: View) -> bool:
    """Whether it runs once an epoch: in a loop over epochs, or in a function that gets one."""
    inner = node
    while (loop := view.loop_around(inner)) is not None:
        head = loop.target if not isinstance(loop, ast.While) else loop.test
        if "epoch" in text_of(head).lower():
            return True
        if any(each.epochs is loop for each in view.loops):
            return True
        inner = loop
    function = view.function_around(node)
    if function is None or function.name == "__init__" or function is loader.function:
        return False
    names = [function.name, *(each.arg for each in function.args.args)]
    return any(name == "epoch" or (name[:3] == "on_" and "epoch" in name) for name in names)


def _started_anew(view: View) -> bool:
    """Whether the program ends the workers by itself, so that new ones see the change."""
    if view.method_calls(*_STARTS_ANEW):
        return True
    return any(
        isinstance(target, ast.Attribute) and target.attr == "_iterator"
        for node in view.module.nodes(ast.Assign)
        for target in node.targets
    )


RULE = Rule(
    code="AF209",
    name="stale-copy-in-workers",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
