"""A file, database or socket opened once and used by all workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.open_handles import HANDLES, OpenedHandle, opened_handle
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.only_ours and dataset.workers is not None:
            continue  # antifreeze opens files anew in each worker, and names what it cannot
        if dataset.workers is not None and not dataset.workers.any:
            continue
        if view.sent_by(dataset):
            continue  # such handles cannot be sent at all: AF103
        reported: set[ast.AST] = set()
        for attribute, value, place in _kept(dataset):
            if not _is_used(attribute, dataset):
                continue
            found = opened_handle(value, view) or _archive(attribute, value, dataset, view)
            if found is None or found[1] in reported:
                continue
            reported.add(found[1])
            direct = (
                isinstance(value, ast.Name)
                or any(each is found[1] for each in ast.walk(place))
                or (isinstance(value, ast.Call) and view.function_of(value.func) is not None)
            )
            where = place if direct or not view.module.holds(found[1]) else found[1]
            yield _hit(view, dataset, attribute, found, where)


def _kept(dataset: Dataset) -> Iterator[tuple[str, ast.expr, ast.stmt | ast.Call]]:
    """Yield what `__init__` keeps: assigned to an attribute, or put into one."""
    prepared = {function.node for function in dataset.preparing}
    for attribute, places in dataset.attributes.items():
        for place in places:
            if place.value is not None and place.method in prepared:
                yield attribute, place.value, place.node
    for function in dataset.preparing:
        for node in function.nodes():
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        attr="append" | "add", value=ast.Attribute(attr=name, value=owner)
                    ),
                    args=[value],
                ) if function.module.class_of_self(owner):
                    yield name, value, node
                case ast.Assign(
                    targets=[ast.Subscript(value=ast.Attribute(attr=name, value=owner))],
                    value=value,
                ) if function.module.class_of_self(owner):
                    yield name, value, node
                case _:
                    pass


def _is_used(attribute: str, dataset: Dataset) -> bool:
    """Whether workers use what the main process opened: nothing opens it anew in them."""
    return bool(dataset.uses(attribute)) and not dataset.sets_anew(attribute)


def _archive(attribute: str, value: ast.expr, dataset: Dataset, view: View) -> OpenedHandle | None:
    """Return `numpy.load` if what it gives is asked for its `files`, as only an archive is."""
    match value:
        case ast.Call() if view.resolve(value.func) == "numpy.load":
            asked = any(
                isinstance(node, ast.Attribute)
                and node.attr == "files"
                and text_of(node.value) == f"self.{attribute}"
                for function in (*dataset.preparing, *dataset.loading)
                for node in function.nodes()
            )
            return ("numpy.load", value) if asked else None
        case _:
            return None


def _hit(
    view: View, dataset: Dataset, attribute: str, found: OpenedHandle, place: ast.stmt | ast.Call
) -> Hit:
    maker = found[0]
    around = view.function_around(place)
    return Hit(
        view.here(place, dataset.node),
        f"`self.{attribute}` is opened in `{around.name if around else dataset.name}` ({maker})"
        f" and used by `{'__iter__' if dataset.method('__iter__') else '__getitem__'}` in every"
        f" worker: {HANDLES[maker]}",
        LIKELY if dataset.workers is not None else POSSIBLE,
    )


RULE = Rule(
    code="AF201",
    name="handle-opened-before-workers",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
