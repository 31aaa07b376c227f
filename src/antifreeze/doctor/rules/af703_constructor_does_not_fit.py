"""Datasets, samplers and collate objects that are made with the wrong arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source import library_names
from ..source.definitions import Class
from ..source.view import View
from ._helpers.constructed_classes import is_dataclass, is_defined_twice, is_fully_known
from .rule import CERTAIN, CRASH, LIKELY, Hit, Rule

_GIVE_TENSORS = (
    *("torch.stack", "torch.cat", "torch.tensor", "torch.utils.data.default_collate"),
    *("torch.nn.utils.rnn.", "numpy.", "torch.from_numpy", "torch.as_tensor", "torch.manual_seed"),
)


def find(view: View) -> Iterator[Hit]:
    yield from _called_not_given(view)
    used = frozenset(each.qualified for each in _used_by_loaders(view))
    for owner, calls in view.constructions(library_names.LOADING_BASES, used):
        if not _is_plain(owner):
            continue
        for call in calls:
            words = view.signature_mismatch(call)
            if words:
                who = "`{}`" if words.startswith("takes") else "this call of `{}`"
                place = _place(owner, view)
                yield Hit(call, f"{who.format(owner.name)} {words}{place}: a TypeError")


def _called_not_given(view: View) -> Iterator[Hit]:
    """Find functions that are called where they should be given: `collate_fn=collate(batch)`."""
    for loader in view.loaders:
        for name in ("collate_fn", "worker_init_fn"):
            call = loader[name].node
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            function = view.function_of(call.func)
            if function is None or function.owner is not None or function.is_generator:
                continue
            if isinstance(function.node, ast.Lambda) or function.node.decorator_list:
                continue
            if all(_is_no_function(each, view) for each in function.returns):
                words = (
                    f"`{name}` is what `{function.name}` returns, which is no function: without"
                    " the parentheses it is given to the loader"
                )
                yield Hit(call, words, LIKELY)


def _is_no_function(value: ast.expr | None, view: View) -> bool:
    match value:
        case None | ast.Tuple() | ast.List() | ast.Dict() | ast.ListComp() | ast.DictComp():
            return True
        case ast.Constant():
            return True
        case ast.Call():
            return (view.resolve(value.func) or "").startswith(_GIVE_TENSORS)
        case _:
            return False


def _used_by_loaders(view: View) -> Iterator[Class]:
    """Yield the classes whose objects this file's loaders load, or collate with."""
    for loader in view.loaders:
        if loader.dataset is not None:
            yield loader.dataset
        for function in (loader.collate, loader.worker_init):
            if function is not None and function.owner is not None:
                yield function.owner


def _is_plain(owner: Class) -> bool:
    """Whether its `__init__` is the one we see, as we see it."""
    if owner.node.keywords or owner.node.decorator_list or is_defined_twice(owner):
        return False
    if any("__new__" in each.methods for each in owner.lineage):
        return False
    own = owner.methods.get("__init__")
    if own is None:
        if not is_fully_known(owner) or is_dataclass(owner):
            return False
        own = owner.method("__init__")
    return own is None or not (isinstance(own.node, ast.Lambda) or own.node.decorator_list)


def _place(owner: Class, view: View) -> str:
    function = owner.method("__init__")
    if function is None:
        return ", since it has no `__init__`"
    elsewhere = "" if function.module is view.module else f" of {function.module.path.name}"
    return f" (`__init__` is at line {function.node.lineno}{elsewhere})"


RULE = Rule(
    code="AF703",
    name="constructor-does-not-fit",
    severity=CRASH,
    confidence=CERTAIN,
    find=find,
)
