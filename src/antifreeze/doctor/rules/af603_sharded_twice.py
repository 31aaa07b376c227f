"""A DistributedSampler in a loader that accelerate shards again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..source import library_names
from ..source.loaders import Loader
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import LIKELY, WRONG_DATA, Hit, Rule

_RANK = re.compile(r"\b(global_|local_)?rank\b|\.rank\b|get_rank\(")


def find(view: View) -> Iterator[Hit]:
    yield from _of_a_part(view)
    sharded = {each.node for each in view.loaders if _has_sampler(each, view)}
    if not sharded:
        return
    for call in view.method_calls("prepare", "prepare_data_loader"):
        if not _is_accelerator(call, view):
            continue
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            for loader in _loaders(argument, view):
                if loader.node in sharded:
                    yield Hit(
                        loader.node,
                        f"this loader has a DistributedSampler, and line {call.lineno} gives it to"
                        " accelerate, which parts it again: each rank sees a part of its part, and"
                        " an epoch leaves out the rest",
                    )


def _of_a_part(view: View) -> Iterator[Hit]:
    """Find samplers of what is the part of one rank already: `Subset(data, range(rank, ...))`."""
    for call in view.calls(library_names.DISTRIBUTED_SAMPLER):
        whole = view.call_arguments(call, ("dataset",))["dataset"].node
        for value in view.origins(whole) if whole is not None else ():
            if not isinstance(value, ast.Call) or len(value.args) < 2:
                continue
            if view.resolve(value.func) != "torch.utils.data.Subset":
                continue
            indices = (value.args[1], *view.origins(value.args[1]))
            if any(_RANK.search(text_of(each)) for each in indices):
                yield Hit(
                    call,
                    f"the dataset is the part of one rank already (line {value.lineno}), and the"
                    " DistributedSampler parts it again: an epoch leaves out the rest",
                )


def _has_sampler(loader: Loader, view: View) -> bool:
    node = loader["sampler"].node
    return node is not None and any(
        isinstance(each, ast.Call) and view.resolve(each.func) == library_names.DISTRIBUTED_SAMPLER
        for each in view.origins(node)
    )


def _is_accelerator(call: ast.Call, view: View) -> bool:
    assert isinstance(call.func, ast.Attribute)
    receiver = call.func.value
    named = text_of(receiver).lower().endswith("accelerator")
    return named or view.type_of(receiver) == "accelerate.Accelerator"


def _loaders(node: ast.expr, view: View) -> Iterator[Loader]:
    """Yield the loaders that an argument may be: made here, or by a function of this file."""
    if isinstance(node, ast.Starred):
        node = node.value
    found = view.loader_of(node)
    if found is not None:
        yield found
        return
    for value in view.origins(node):
        function = view.function_of(value.func) if isinstance(value, ast.Call) else None
        if function is None or function.module is not view.module:
            continue
        for given in function.returns:
            parts = given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given]
            for part in parts:
                made = view.loader_of(part) if part is not None else None
                if made is not None:
                    yield made


RULE = Rule(
    code="AF603",
    name="sharded-twice",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
