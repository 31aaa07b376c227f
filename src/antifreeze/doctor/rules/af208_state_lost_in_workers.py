"""A dataset counts or collects while loading, and the main process looks at its own copy."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.in_place_changes import changed_in_place, has_plain_values
from .rule import LIKELY, WRONG_DATA, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    changing: dict[str, tuple[Dataset, set[str]]] = {}
    for dataset in _datasets(view):
        if dataset.workers is not None and dataset.workers.any:
            names = _changed_while_loading(dataset, view)
            if names:
                changing[dataset.qualified] = (dataset, names)
    if not changing:
        return
    in_workers = {code.function.node for code in view.worker_code}
    for node in view.module.nodes(ast.Attribute):
        if not isinstance(node.ctx, ast.Load) or view.function_around(node) in in_workers:
            continue
        owner = _dataset_behind(node.value, view)
        if owner is None or owner not in changing:
            continue
        dataset, names = changing[owner]
        attribute = node.attr if node.attr in names else _read_by(node, dataset, names, view)
        if attribute and not _before_the_loop(node, dataset, view):
            yield Hit(
                node,
                f"workers change `self.{attribute}` in copies of `{dataset.name}` of their own:"
                f" `{text_of(node)}` here stays as it was",
            )


def _datasets(view: View) -> Iterator[Dataset]:
    seen = set()
    for each in (*view.datasets, *(loader.dataset for loader in view.loaders)):
        if each is not None and each.qualified not in seen:
            seen.add(each.qualified)
            yield each


def _changed_while_loading(dataset: Dataset, view: View) -> set[str]:
    found: set[str] = set()
    for function in dataset.loading:
        for node in function.nodes():
            owner = changed_in_place(node)
            if (
                isinstance(owner, ast.Attribute)
                and function.module.class_of_self(owner.value) is not None
            ):
                found.add(owner.attr)
    return {name for name in found if has_plain_values(name, dataset, view)}


def _dataset_behind(node: ast.expr, view: View) -> str | None:
    """Return the class of the dataset that an expression is: `dataset`, or `loader.dataset`."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    if view.module.class_of_self(node) is not None:
        return None
    if isinstance(node, ast.Attribute) and node.attr == "dataset":
        loader = view.loader_of(node.value)
        if loader is not None:
            return loader.dataset.qualified if loader.dataset is not None else None
    for value in view.origins(node):
        if isinstance(value, ast.Call):
            found = view.class_of(value.func)
            if found is not None:
                return found.qualified
    return None


def _read_by(node: ast.Attribute, dataset: Dataset, names: set[str], view: View) -> str:
    """Return the attribute that a method reads which is called here: `dataset.report()`."""
    parent = view.module.scopes.parents.get(node)
    if not isinstance(parent, ast.Call) or parent.func is not node:
        return ""
    method = dataset.method(node.attr)
    if method is None or method in dataset.loading or node.attr.startswith("__"):
        return ""
    reads = {
        each.attr
        for each in method.nodes()
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load)
    }
    return min(names & reads, default="")


def _before_the_loop(node: ast.AST, dataset: Dataset, view: View) -> bool:
    """Whether it is read before anything was loaded: all loops of its function come later."""
    function, around = view.function_around(node), view.loop_around(node)
    if around is not None:
        return False
    loops = [
        loop
        for loop in view.loops
        if view.function_around(loop.place) is function
        and loop.loader is not None
        and loop.loader.dataset is not None
        and loop.loader.dataset.qualified == dataset.qualified
    ]
    line = getattr(node, "lineno", 0)
    return bool(loops) and all(getattr(loop.place, "lineno", 0) > line for loop in loops)


RULE = Rule(
    code="AF208",
    name="state-lost-in-workers",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
