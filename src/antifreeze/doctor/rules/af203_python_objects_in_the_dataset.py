"""A large list or dict of Python objects, of which every worker makes a copy by reading it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..source.definitions import Dataset
from ..source.file_summary import Workers
from ..source.syntax.module import AttributeAssignment
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.python_object_counts import ObjectCount, object_count, object_count_of_rows
from ._helpers.sample_index import sample_index_parameters
from .rule import LIKELY, POSSIBLE, SLOW, Hit, Rule

# Entries that are plain text, or may be.
_TEXTS = frozenset({"a file's lines", ".readlines()", ".splitlines()", "json.load", "json.loads"})
_OPENS = re.compile(r"(open|load\w*|read\w*|imread|decode\w*|Reader|Video\w*)$", re.IGNORECASE)


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.workers is Workers.NONE:
            continue
        for attribute, places in dataset.attributes.items():
            if not _read_while_loading(dataset, attribute):
                continue
            for place, (what, confidence) in _large(dataset, attribute, places, view):
                unsure = dataset.workers is None or not _has_a_sample_each(dataset, attribute)
                if unsure or (what in _TEXTS and _are_paths(dataset, attribute)):
                    confidence = POSSIBLE
                yield Hit(
                    view.here(place, dataset.node),
                    f"`self.{attribute}` holds a Python object for each entry ({what}): to read one"
                    " changes its reference count, so each worker comes to have its own copy of all"
                    " of them",
                    confidence,
                )


def _are_paths(dataset: Dataset, attribute: str) -> bool:
    """Whether the entries are names of files that loading opens: there are as many files as
    entries, so that they are seldom millions, and a path is small beside what is read."""
    entries: set[str] = set()
    for function in dataset.loading:
        for node in function.nodes():
            match node:
                case ast.Assign(targets=[target], value=value) if _is_entry(value, attribute):
                    names = target.elts if isinstance(target, ast.Tuple) else [target]
                    entries |= {each.id for each in names if isinstance(each, ast.Name)}
                case ast.Call(func=ast.Attribute() as called, args=arguments) if dataset.owns(
                    called.value, function.module
                ):
                    method = dataset.method(called.attr)
                    names_of = method.parameters[1:] if method is not None else []
                    for name, value in zip(names_of, arguments, strict=False):
                        named = isinstance(value, ast.Name) and value.id in entries
                        if named or _is_entry(value, attribute):
                            entries.add(name)
                case _:
                    pass
    return any(
        _OPENS.search(text_of(call.func))
        and any(
            _is_entry(node, attribute) or (isinstance(node, ast.Name) and node.id in entries)
            for argument in call.args
            for node in _whole(argument)
        )
        for function in dataset.loading
        for call in function.calls()
    )


def _is_entry(node: ast.AST, attribute: str) -> bool:
    match node:
        case ast.Subscript(value=ast.Attribute(attr=name)):
            return name == attribute
        case _:
            return False


def _whole(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its parts, but not what a subscript takes from a part: `row["path"]`."""
    queue = [node]
    while queue:
        here = queue.pop()
        yield here
        if not isinstance(here, ast.Subscript):
            queue += reversed(list(ast.iter_child_nodes(here)))


def _read_while_loading(dataset: Dataset, attribute: str) -> bool:
    for use in dataset.uses(attribute):
        parents = [m.scopes.parents.get(use) for m in {each.module for each in dataset.lineage}]
        if not any(
            isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "len"
            for each in parents
        ):
            return not dataset.sets_anew(attribute)
    return False


def _has_a_sample_each(dataset: Dataset, attribute: str) -> bool:
    """Whether an attribute is as long as the dataset, not a table of its twenty classes: it is
    in `__len__`, indexed with a parameter, or gone through."""
    length = dataset.method("__len__")
    if length is not None and any(
        isinstance(each, ast.Attribute) and each.attr == attribute for each in length.nodes()
    ):
        return True
    numbers = sample_index_parameters(dataset)
    for function in dataset.loading:
        for node in function.nodes():
            match node:
                case ast.Subscript(value=ast.Attribute(attr=name), slice=ast.Name(id=index)):
                    if name == attribute and index in numbers.get(function.node, ()):
                        return True
                case ast.For(iter=ast.Attribute(attr=name)) if name == attribute:
                    return True
                case _:
                    pass
    return False


def _large(
    dataset: Dataset, attribute: str, places: list[AttributeAssignment], view: View
) -> Iterator[tuple[ast.AST, ObjectCount]]:
    prepared = {function.node for function in dataset.preparing}
    if any(each.value is not None and _is_array(each.value, view) for each in places):
        return  # made into one later
    for place in places:
        if place.value is None or place.method not in prepared:
            continue
        for value in view.origins(place.value):
            amount = object_count(value, view)
            if amount is None and isinstance(value, (ast.List, ast.Dict)):
                amount = _appended(dataset, attribute, view)
            if amount is not None:
                yield place.node, amount
                break


def _is_array(value: ast.expr, view: View) -> bool:
    return isinstance(value, ast.Call) and (view.resolve(value.func) or "").startswith(
        ("numpy.", "torch.", "pyarrow.", "pandas.")
    )


def _appended(dataset: Dataset, attribute: str, view: View) -> ObjectCount | None:
    """Return the same of a list that `__init__` fills in a loop."""
    for function in dataset.preparing:
        for node in function.nodes():
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="append" | "extend" | "add", value=ast.Attribute() as o)
                ) if o.attr == attribute:
                    pass
                case ast.Subscript(value=ast.Attribute() as o, ctx=ast.Store()) if (
                    o.attr == attribute
                ):
                    pass
                case _:
                    continue
            loop = view.loop_around(node)
            while loop is not None and not isinstance(loop, ast.While):
                amount = object_count_of_rows(loop.iter, view)
                if amount is not None:
                    return amount
                loop = view.loop_around(loop)
    return None


RULE = Rule(
    code="AF203",
    name="python-objects-in-the-dataset",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
