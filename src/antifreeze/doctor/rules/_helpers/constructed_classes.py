"""Objects of the project's classes that are certainly constructed, and what they certainly lack."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from dataclasses import dataclass

from ...findings import Confidence
from ...source import library_names
from ...source.definitions import Class
from ...source.step_budget import cached_walk
from ...source.syntax.module import Module
from ...source.view import View

_DATACLASS = "dataclasses.dataclass"
_SUBSET = "torch.utils.data.Subset"
_ASK_LENGTH = ("torch.utils.data.random_split", "torch.utils.data.ConcatDataset")


@dataclass(frozen=True, slots=True, eq=False)
class ConstructedObject:
    """An object that is made with `Class(...)`, exactly that class."""

    owner: Class
    call: ast.Call
    inside: str = ""  # what is around it: random_split, ConcatDataset, Subset

    @property
    def asked_for_length(self) -> bool:
        return self.inside in _ASK_LENGTH

    @property
    def is_iterable(self) -> bool:
        """Whether torch takes it for an iterable dataset: by its base alone."""
        return self.owner.descends_from(*library_names.ITERABLE_DATASETS)


@cached_walk
def constructed_objects(
    node: ast.expr, view: View, inside: str = "", depth: int = 0
) -> Iterable[ConstructedObject]:
    """Yield the objects of the project's classes that an expression may stand for."""
    if depth > 3:
        return
    for value in view.origins(node):
        if isinstance(value, ast.Subscript):  # random_split(...)[0]
            yield from constructed_objects(value.value, view, inside, depth + 1)
        elif isinstance(value, (ast.List, ast.Tuple)) and inside:
            for each in value.elts:
                yield from constructed_objects(each, view, inside, depth + 1)
        elif isinstance(value, ast.Call):
            name = view.resolve(value.func)
            if name == _SUBSET or name in _ASK_LENGTH:
                for each in value.args[:1]:
                    yield from constructed_objects(each, view, inside or name or "", depth + 1)
            elif (owner := view.class_of(value.func)) is not None:
                yield ConstructedObject(owner, value, inside)


def construction_confidence(node: ast.expr, view: View) -> Confidence:
    """Return how sure it is that an object is what a variable stands for: not if there are others,
    and hardly if it may be inside of what a function made of it, `rows = windows(rows)`."""
    values = view.origins(node)
    wrapped = any(
        isinstance(each, ast.Call)
        and view.class_of(each.func) is None
        and any(isinstance(e, ast.Name) and e.id == name for e in ast.walk(each))
        for name in ([node.id] if isinstance(node, ast.Name) else [])
        for each in values
    )
    if wrapped:
        return Confidence.POSSIBLE
    return Confidence.CERTAIN if len(values) == 1 else Confidence.LIKELY


def is_fully_known(owner: Class) -> bool:
    """Whether all that a class has is seen: its bases are known, and nothing adds to it."""
    return (
        owner.is_known_whole
        and not is_defined_twice(owner)
        and not any(_changes_classes(each.module) for each in owner.lineage)
        and not any(each.node.keywords for each in owner.lineage)
        and not any(
            name != _DATACLASS
            for each in owner.lineage
            for decorator in each.node.decorator_list
            for name in [_decorator(decorator, each)]
        )
    )


@functools.lru_cache(maxsize=8)  # asked for each class of a file
def _changes_classes(module: Module) -> bool:
    """Whether a file gives classes other bases, or objects another class, as it runs."""
    return any(
        node.attr in ("__bases__", "__class__") and not isinstance(node.ctx, ast.Load)
        for node in module.nodes(ast.Attribute)
    )


def is_dataclass(owner: Class) -> bool:
    return any(
        _decorator(decorator, each) == _DATACLASS
        for each in owner.lineage
        for decorator in each.node.decorator_list
    )


def is_defined_twice(owner: Class) -> bool:
    """Whether its name is given again: in a later cell, or under `try` and `except`."""
    scope = owner.module.scopes.around(owner.node)
    return len(scope.names.get(owner.name, ())) > 1


def has_attribute(owner: Class, name: str) -> bool:
    """Whether a class or one it descends from has a name in its body, or is given it later."""
    if any(name in each.module.scopes.of_node[each.node].names for each in owner.lineage):
        return True
    modules = {each.module.path: each.module for each in owner.lineage}.values()
    return any(name in each.attributes_set for each in modules)


def _decorator(node: ast.expr, owner: Class) -> str | None:
    return owner.module.resolve(node.func if isinstance(node, ast.Call) else node)
