"""A loop that one rank runs, with steps in which all ranks must take part."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..source.loader_loops import LoaderLoop
from ..source.syntax.node_text import last_name, text_of
from ..source.view import View
from .rule import FREEZE, LIKELY, Hit, Rule

_TOGETHER = frozenset(
    f"torch.distributed.{name}"
    for name in (
        *("all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "barrier"),
        *("broadcast", "broadcast_object_list", "reduce", "gather", "gather_object", "scatter"),
        *("reduce_scatter", "all_to_all", "monitored_barrier"),
    )
)
_OF_ACCELERATE = ("gather", "gather_for_metrics", "reduce", "wait_for_everyone", "backward")
_DDP = "torch.nn.parallel.DistributedDataParallel"
_FIRST = frozenset(
    {"is_main_process", "is_local_main_process", "is_rank_zero", "is_rank_0", "is_master"}
    | {"is_global_zero", "main_process", "is_main"}
)

_RANKS = re.compile(r"rank|main|master|zero|primary|world", re.IGNORECASE)


def find(view: View) -> Iterator[Hit]:
    for branch in view.module.nodes(ast.If):
        if not _is_first_rank(branch.test) or _has_together(branch.orelse, view):
            continue
        inside = {id(node) for statement in branch.body for node in ast.walk(statement)}
        inside |= _called(branch, view)
        steps = [_together(loop, view) for loop in view.loops if id(loop.node) in inside]
        if not any(steps) and not _others_come(branch, view):
            steps = [
                call
                for call in view.module.nodes(ast.Call)
                if id(call) in inside and view.resolve(call.func) in _TOGETHER
                if _is_together(call, view)
            ]
        for step in steps:
            if step is not None:
                yield Hit(
                    step,
                    f"`{text_of(step.func)}` waits for all ranks, and only the one of line"
                    f" {branch.lineno} (`{text_of(branch.test)}`) comes here",
                )


def _others_come(branch: ast.If, view: View) -> bool:
    """Whether the other ranks may wait elsewhere: before, under `if rank != 0:`, or after this
    one has left the function."""
    function = view.function_around(branch)
    if any(isinstance(node, ast.Return) for s in branch.body for node in ast.walk(s)):
        return True
    return any(
        other is not branch
        and view.function_around(other) is function
        and not _is_first_rank(other.test)
        and _RANKS.search(text_of(other.test))
        and _has_together([*other.body, *other.orelse], view)
        for other in view.module.nodes(ast.If)
    )


def _is_first_rank(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]):
            name = text_of(left).lower()
            return name.removesuffix("()").endswith("rank")
        case ast.Call(func=func):
            return last_name(func) in _FIRST
        case ast.Name() | ast.Attribute():
            return last_name(test) in _FIRST
        case ast.BoolOp(op=ast.And()):
            return any(_is_first_rank(each) for each in test.values)
        case _:
            return False


def _called(branch: ast.If, view: View) -> set[int]:
    """Return the nodes of the functions of this file that are called in a branch, and only
    there."""
    nodes: set[int] = set()
    calls = [each for s in branch.body for each in ast.walk(s) if isinstance(each, ast.Call)]
    for call in calls:
        function = view.function_of(call.func) if isinstance(call.func, ast.Name) else None
        if function is None or function.module is not view.module:
            continue
        if isinstance(function.node, ast.Lambda):
            continue
        if all(other in calls for other in view.calls_of(function.node)):
            nodes |= {id(node) for node in function.nodes()}
    return nodes


def _has_together(statements: list[ast.stmt], view: View) -> bool:
    return any(
        _is_together(node, view)
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
    )


def _together(loop: LoaderLoop, view: View) -> ast.Call | None:
    for statement in loop.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _is_together(node, view):
                return node
    return None


def _is_together(call: ast.Call, view: View) -> bool:
    """Whether a call needs all ranks. One with a group of its own may not."""
    if view.resolve(call.func) in _TOGETHER:
        return not any(keyword.arg == "group" for keyword in call.keywords)
    match call.func:
        case ast.Attribute(attr=name, value=owner) if name in _OF_ACCELERATE and (
            text_of(owner).lower().endswith("accelerator")
        ):
            return True
        case ast.Attribute(attr="backward"):
            return bool(view.calls(_DDP)) and not call.keywords
        case _:
            return False


RULE = Rule(
    code="AF609",
    name="loop-of-one-rank",
    severity=FREEZE,
    confidence=LIKELY,
    find=find,
)
