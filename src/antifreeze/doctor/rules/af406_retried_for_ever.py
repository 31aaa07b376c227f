"""A sample that fails is tried again, and again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Function
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.exception_handlers import (
    TryNode,
    catches_any_of,
    exception_handlers,
    leaves_block,
    own_nodes,
)
from .rule import FREEZE, LIKELY, POSSIBLE, Hit, Rule

# What these say is "not yet" or "the end", and a loop around them is how one waits.
_NOT_FAILURES = ("Empty", "Full", "StopIteration", "StopAsyncIteration", "TimeoutError", "timeout")


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        confidence = LIKELY if code.workers is not None else POSSIBLE
        for attempt, handler in exception_handlers(code.function):
            again = _same_sample(handler, code.function)
            if again is not None:
                yield Hit(
                    again,
                    f"`{text_of(again)}` tries a sample that failed again, for as long as it"
                    " fails: about a thousand times, then a RecursionError hides the cause",
                    confidence,
                )
            elif (loop := _endless(attempt, handler, view)) is not None:
                so = "" if code.only_ours else ", and the loop over the loader, for ever"
                yield Hit(
                    loop,
                    f"this loop in `{code.function.name}` tries again whatever fails, without a"
                    f" limit: one sample that always fails stops its worker{so}",
                    confidence,
                )


def _same_sample(handler: ast.ExceptHandler, function: Function) -> ast.expr | None:
    """Return what loads the same sample once more: `return self[index]`."""
    indices = function.parameters[1:2] if function.name == "__getitem__" else []
    if any(isinstance(e, (ast.Raise, ast.If)) for e in own_nodes(handler)) or _stored(
        [handler], set(indices)
    ):
        return None
    for node in own_nodes(handler):
        match node:
            case ast.Call(func=ast.Attribute(attr="__getitem__"), args=[ast.Name(id=name)]):
                pass
            case ast.Subscript(value=ast.Name(id="self"), slice=ast.Name(id=name), ctx=ast.Load()):
                pass
            case _:
                continue
        if name in indices:
            assert isinstance(node, ast.expr)
            return node
    return None


def _endless(attempt: TryNode, handler: ast.ExceptHandler, view: View) -> ast.While | None:
    """Return the `while True` that goes on with the same thing after an exception."""
    loop = view.loop_around(attempt)
    if not isinstance(loop, ast.While) or attempt not in loop.body or attempt.finalbody:
        return None
    constant = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    if not constant and not _waits_for_success(loop, attempt, handler):
        return None
    if leaves_block(handler) or catches_any_of(handler, *_NOT_FAILURES):
        return None
    others = [each for each in loop.body if each is not attempt]
    if any(
        isinstance(node, (ast.Raise, ast.Break, ast.Return)) and not _after(each, attempt, loop)
        for each in others
        for node in own_nodes(each)
    ):
        return None
    used = {
        node.id
        for each in attempt.body
        for node in own_nodes(each)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for e in attempt.body for n in own_nodes(e)):
        return None  # a stream that goes on with what comes next
    return None if _changes([handler, *others], used) else loop


def _waits_for_success(loop: ast.While, attempt: TryNode, handler: ast.ExceptHandler) -> bool:
    """Whether only a success ends a loop: `while not done:`, `while sample is None:`."""
    match loop.test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name)):
            pass
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.Is()], comparators=[ast.Constant(value=None)]
        ):
            pass
        case _:
            return False
    others = [each for each in loop.body if each is not attempt]
    return _stored(list(attempt.body), {name}) and not _stored([handler, *others], {name})


def _after(statement: ast.stmt, attempt: TryNode, loop: ast.While) -> bool:
    """Whether a statement is reached only when the attempt succeeded."""
    skips = all(
        handler.body and isinstance(handler.body[-1], ast.Continue) for handler in attempt.handlers
    )
    return skips and loop.body.index(statement) > loop.body.index(attempt)


def _changes(nodes: list[ast.AST], used: set[str]) -> bool:
    """Whether the next round tries something else: another index, another file."""
    random_calls = any(
        isinstance(node, ast.Call) and "rand" in text_of(node.func)
        for each in nodes
        for node in own_nodes(each)
    )
    return random_calls or _stored(nodes, used)


def _stored(nodes: list[ast.AST], names: set[str]) -> bool:
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names
        for each in nodes
        for node in own_nodes(each)
    )


RULE = Rule(
    code="AF406",
    name="retried-for-ever",
    severity=FREEZE,
    confidence=LIKELY,
    find=find,
    follows=True,
)
