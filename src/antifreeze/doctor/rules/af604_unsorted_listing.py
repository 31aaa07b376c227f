"""Samples in the order of the file system, which is another one on another machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset, Function
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

_LISTS = frozenset({"os.listdir", "os.scandir", "glob.glob", "glob.iglob"})
_OF_PATHS = ("iterdir", "rglob", "glob")
# What keeps the order of what it is given.
_SAME_ORDER = frozenset(
    {"list", "tuple", "enumerate", "filter", "map", "zip", "dict", "numpy.array", "numpy.asarray"}
    | {"tqdm.tqdm", "reversed"}
)
# What also programs on one machine have, where a folder has one order for all ranks.
_MAYBE_ONE = ("Accelerator", "Trainer", "Fabric", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_DEEPEST = 6
_MOST = 200  # values looked at for one attribute: functions that return each other's are a maze


def find(view: View) -> Iterator[Hit]:
    ranked = view.distributed and not view.distributed.startswith(_MAYBE_ONE)
    confidence = LIKELY if ranked else POSSIBLE
    for dataset in view.datasets:
        if dataset.module is not view.module:
            continue
        for attribute, function, node in _kept(dataset, view):
            listing = _listing(node, view)
            if listing is None or not dataset.uses(attribute):
                continue
            if _is_sorted(attribute, dataset) or _sorts_variables(node, function, view):
                continue
            yield Hit(
                view.here(listing, dataset.node),
                f"`{_short(listing)}` gives names in no certain order, and `self.{attribute}` keeps"
                f" it: the same index may be another sample on another machine{_ranks(view)}",
                confidence,
            )


def _ranks(view: View) -> str:
    return f", and this program has ranks ({view.distributed})" if view.distributed else ""


def _short(call: ast.Call) -> str:
    text = text_of(call)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _kept(dataset: Dataset, view: View) -> Iterator[tuple[str, Function, ast.expr]]:
    """Yield what `__init__` keeps in an attribute, at once or one by one in a loop."""
    functions = {each.node: each for each in dataset.preparing}
    for attribute, places in dataset.attributes.items():
        for place in places:
            if place.value is not None and place.method in functions:
                yield attribute, functions[place.method], place.value
    for function in dataset.preparing:
        for loop in function.nodes():
            if not isinstance(loop, ast.For):
                continue
            for node in ast.walk(loop):
                match node:
                    case ast.Call(
                        func=ast.Attribute(
                            attr="append" | "extend", value=ast.Attribute(attr=name) as kept
                        )
                    ) if function.module.class_of_self(kept.value) is not None:
                        yield name, function, loop.iter
                    case _:
                        pass


def _listing(
    node: ast.expr, view: View, depth: int = 0, seen: set[ast.AST] | None = None
) -> ast.Call | None:
    """Return the call that lists a folder, if its order is that of the value. Each value is looked
    at once."""
    seen = set() if seen is None else seen
    if depth > _DEEPEST or len(seen) > _MOST:
        return None
    for value in view.origins(node):
        if value in seen:
            continue
        seen.add(value)
        inside: ast.expr | None = None
        match value:
            case ast.ListComp() | ast.GeneratorExp():
                inside = value.generators[0].iter
            case ast.DictComp():
                inside = value.generators[0].iter
                if not (isinstance(inside, ast.Call) and view.resolve(inside.func) == "enumerate"):
                    inside = None  # found by name, not by number
            case ast.BinOp(left=left):
                inside = left
            case ast.Subscript(value=before, slice=ast.Slice()):
                inside = before
            case ast.Call():
                name = view.resolve(value.func)
                if name in _LISTS or _lists_a_path(value, name):
                    return value
                if name in _SAME_ORDER and value.args:
                    inside = value.args[-1] if name in ("filter", "map") else value.args[0]
                elif (found := _returned(value, view, depth, seen)) is not None:
                    return found
            case _:
                pass
        found = _listing(inside, view, depth + 1, seen) if inside is not None else None
        if found is not None:
            return found
    return None


def _returned(call: ast.Call, view: View, depth: int, seen: set[ast.AST]) -> ast.Call | None:
    """Return the listing that a function of the project returns."""
    function = view.function_of(call.func)
    for value in function.returns if function is not None else ():
        if value is not None and function is not None:
            found = _listing(value, view, depth + 1, seen)
            if found is not None and not _sorts_variables(value, function, view):
                return found
    return None


def _lists_a_path(call: ast.Call, name: str | None) -> bool:
    if name is not None or not isinstance(call.func, ast.Attribute):
        return False
    remote = text_of(call.func.value).lower().endswith(("fs", "filesystem"))  # fsspec's: sorted
    return call.func.attr in _OF_PATHS and not remote


def _is_sorted(attribute: str, dataset: Dataset) -> bool:
    """Whether the class sorts `self.attribute` anywhere."""
    mention = f"self.{attribute}"
    return any(
        "sort" in text_of(node.func) and mention in text_of(node)
        for each in dataset.lineage
        for node in ast.walk(each.node)
        if isinstance(node, ast.Call)
    )


def _sorts_variables(node: ast.expr, function: Function, view: View) -> bool:
    """Whether the function sorts a variable that the value comes from: `files.sort()`."""
    names = {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and _listing(each, view, _DEEPEST - 2) is not None
    }
    return any(
        "sort" in text_of(call.func)
        and any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(call))
        for call in function.calls()
    )


RULE = Rule(
    code="AF604",
    name="unsorted-listing",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
