"""The second of the clock as a seed: the same for all workers that start in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.step_budget import cached_walk
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.generator_seeding import GLOBAL_SEEDS, SEEDED_GENERATORS, SeedingCall, seeding_calls
from .rule import LIKELY, WRONG_DATA, Hit, Rule

_CLOCKS = frozenset({"time.time", "datetime.datetime.now", "datetime.datetime.utcnow"})
_ROUNDING = frozenset({"int", "round", "math.floor"})
_SECONDS = frozenset({"second", "minute", "hour"})
_DEEPEST = 4  # seed = seed % 1000 leads back to itself


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if code.only_ours:
            continue
        for each in seeding_calls(code.function, view, GLOBAL_SEEDS | SEEDED_GENERATORS):
            if _only_the_second(each, view):
                when = "start" if code.role == "init" else "load a sample"
                yield Hit(
                    view.here(each.call, code.function.node),
                    f"`{text_of(each.call)}`: all workers that {when} in the same second draw"
                    " the same numbers",
                )


def _only_the_second(seeding: SeedingCall, view: View) -> bool:
    parts = view.dependencies(seeding.seed, seeding.function)
    if not parts.complete or parts.parameters or parts.attributes:
        return False
    if parts.calls - _CLOCKS - _ROUNDING - {"?"} or parts.calls.isdisjoint(_CLOCKS):
        return False
    return _whole_seconds(seeding.seed, view)


@cached_walk
def _whole_seconds(node: ast.expr, view: View, depth: int = 0) -> bool:
    """Whether a value changes once a second: `int(time.time())`, `now().second`."""
    value = view.value(node) or node
    if depth > _DEEPEST:
        return False
    match value:
        case ast.Call(args=[inner, *_]) if view.resolve(value.func) in _ROUNDING:
            return _is_clock(inner, view)
        case ast.Attribute(attr=name, value=inner) if name in _SECONDS:
            return _is_clock(inner, view)
        case ast.BinOp(op=ast.Mod() | ast.Add() | ast.Sub() | ast.BitAnd()):
            left = _whole_seconds(value.left, view, depth + 1)
            return left or _whole_seconds(value.right, view, depth + 1)
        case ast.BinOp(op=ast.FloorDiv()):
            return _is_clock(value.left, view)
        case _:
            return False


@cached_walk
def _is_clock(node: ast.expr, view: View, depth: int = 0) -> bool:
    if depth > _DEEPEST:
        return False
    match view.value(node) or node:
        case ast.Call(func=ast.Attribute(attr="timestamp", value=inner)):
            return _is_clock(inner, view, depth + 1)
        case ast.Call() as call:
            return view.resolve(call.func) in _CLOCKS
        case ast.BinOp(op=ast.Mod() | ast.Add() | ast.Sub()) as sum_:
            return _is_clock(sum_.left, view, depth + 1)
        case _:
            return False


RULE = Rule(
    code="AF304",
    name="clock-as-seed",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
    follows=True,
)
