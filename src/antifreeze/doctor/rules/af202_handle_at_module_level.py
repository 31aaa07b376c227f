"""A file, database or socket opened when the module is imported, and used by all workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset
from ..source.view import View
from ..source.worker_code import WorkerCode
from ._helpers.open_handles import HANDLES
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

_WRITES = frozenset("wax")


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if not code.only_ours:  # antifreeze opens files anew in each worker, and names the rest
            yield from _of_the_module(view, code)
    for dataset in view.datasets:
        if not dataset.only_ours and (dataset.workers is None or dataset.workers.any):
            yield from _of_the_class(view, dataset)


def _of_the_module(view: View, code: WorkerCode) -> Iterator[Hit]:
    top = view.module.scopes.top
    for node in code.function.nodes():
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        found = view.module.scopes.lookup(node.id, node)
        if found is None or found[0] is not top or len(found[1]) != 1:
            continue  # of a function; or opened anew somewhere
        value = found[1][0].value
        maker = _maker(value, view) if value is not None else None
        if maker is not None:
            yield Hit(
                found[1][0].node,
                f"`{node.id}` ({maker}) is opened once and used by `{code.function.name}` in every"
                f" worker: {HANDLES[maker]}",
                LIKELY if code.workers is not None else POSSIBLE,
            )


def _of_the_class(view: View, dataset: Dataset) -> Iterator[Hit]:
    for attribute, places in dataset.attributes.items():
        value = places[0].value
        if len(places) != 1 or places[0].method is not None or value is None:
            continue
        maker = _maker(value, view)
        if maker is not None and dataset.uses(attribute):
            yield Hit(
                view.here(places[0].node, dataset.node),
                f"`{attribute}` ({maker}) is opened in the body of `{dataset.name}` and used in"
                f" every worker: {HANDLES[maker]}",
                LIKELY if dataset.workers is not None else POSSIBLE,
            )


def _maker(value: ast.expr, view: View) -> str | None:
    """Return who opened a handle for reading."""
    if not isinstance(value, ast.Call):
        return None
    name = view.resolve(value.func)
    if name not in HANDLES or name == "numpy.load":
        return None
    mode = view.call_arguments(value, ("file", "mode"))["mode"].value
    writes = isinstance(mode, str) and not _WRITES.isdisjoint(mode)
    return None if writes and name.endswith("open") else name


RULE = Rule(
    code="AF202",
    name="handle-at-module-level",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
    follows=True,
)
