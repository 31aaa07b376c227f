"""Attributes that a dataset reads and nobody sets."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from ..source.definitions import Class, Dataset
from ..source.view import View
from ._helpers.constructed_classes import is_fully_known
from .rule import CRASH, LIKELY, POSSIBLE, Hit, Rule

_OF_EVERY_OBJECT = frozenset(dir(object)) | {"__dict__", "__module__", "__orig_class__", "__add__"}
_TRICKS = frozenset({"__getattr__", "__getattribute__", "__slots__", "__dict__", "__setstate__"})


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if not is_fully_known(dataset) or _plays_tricks(dataset):
            continue
        inherited = view.project.has_subclasses(dataset.qualified)
        if inherited and not dataset.loaders:
            continue  # those give it what it lacks
        there = set(dataset.attributes) | _OF_EVERY_OBJECT
        for each in dataset.lineage:
            there |= set(each.module.scopes.of_node[each.node].names)
        reported: set[str] = set()
        for node in _read_while_loading(dataset):
            name = node.attr
            if name in there or name in reported or not _is_missing(name, dataset, view):
                continue
            reported.add(name)
            near = difflib.get_close_matches(name, there - _OF_EVERY_OBJECT, 1, 0.8)
            more = f"; there is `self.{near[0]}`" if near else ""
            yield Hit(
                view.here(node, dataset.node),
                f"nothing sets `self.{name}` of `{dataset.name}`: an AttributeError when loading"
                f" gets here{more}",
                LIKELY if dataset.loaders and not inherited else POSSIBLE,
            )


def _read_while_loading(dataset: Dataset) -> Iterator[ast.Attribute]:
    owned = {each.node for each in dataset.lineage}
    for function in (*dataset.loading, *dataset.reached("__len__")):
        for node in function.nodes():
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Load)
                and function.module.class_of_self(node.value) in owned
            ):
                yield node


def _plays_tricks(owner: Class) -> bool:
    """Whether attributes may come to it in ways that are not seen."""
    for each in owner.lineage:
        if _TRICKS & set(each.module.scopes.of_node[each.node].names):
            return True
        for node in ast.walk(each.node):
            match node:
                case ast.Attribute(attr="__dict__" | "__setattr__" | "update"):
                    return True
                case ast.Call(func=ast.Name(id="setattr" | "vars" | "delattr" | "copy_attributes")):
                    return True
                case ast.Call() if _passes_self(node, each):
                    return True
                case _:
                    pass
    return False


def _passes_self(call: ast.Call, owner: Class) -> bool:
    """Whether `self` is given away in `__init__`, to somebody who may add to it."""
    function = owner.module.function_around(call)
    if function is None or function.name != "__init__":
        return False
    return any(owner.module.class_of_self(each) is not None for each in call.args)


def _is_missing(name: str, dataset: Dataset, view: View) -> bool:
    """Whether nobody sets it from outside, or asks first whether it is there."""
    if view.project.any_file_sets(name):
        return False
    return not any(
        node.value == name
        for each in dataset.lineage
        for node in each.module.nodes(ast.Constant)
        if isinstance(node.value, str)
    )


RULE = Rule(
    code="AF707",
    name="attribute-never-set",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
)
