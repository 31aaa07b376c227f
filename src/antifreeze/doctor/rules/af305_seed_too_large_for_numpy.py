"""A worker's seed of 64 bits given to numpy, which takes 32."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.step_budget import cached_walk
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.generator_seeding import SeedingCall, seeding_calls
from .rule import CERTAIN, CRASH, LIKELY, Fix, Hit, Rule, Wrap

_TAKES_32_BITS = frozenset(
    {
        "numpy.random.seed",
        "numpy.random.RandomState",
        "transformers.set_seed",
        "accelerate.utils.set_seed",
    }
)
_LARGE = frozenset({"torch.initial_seed", "torch.random.initial_seed", "torch.seed"})
_WORKER_INFO = "torch.utils.data.get_worker_info"


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        for each in seeding_calls(code.function, view, _TAKES_32_BITS):
            large = _large(each.seed, view)
            if large:
                yield Hit(
                    view.here(each.call, code.function.node),
                    f"`{large}` has 63 bits in a worker, and `{each.what}` takes 32: ValueError,"
                    " before the first sample",
                    CERTAIN if code.workers is not None and code.role == "init" else LIKELY,
                    _fix(each, view),
                )


@cached_walk
def _large(node: ast.expr, view: View, depth: int = 0) -> str:
    """Return the part of a seed that makes it too large; '' if nothing does."""
    value = view.value(node) or node
    match value:
        case ast.Call() if view.resolve(value.func) in _LARGE:
            return text_of(value)
        case ast.Call(args=[inner]) if view.resolve(value.func) == "int" and depth < 4:
            return _large(inner, view, depth + 1)
        case ast.BinOp(op=ast.Add() | ast.Sub()) if depth < 4:
            return _large(value.left, view, depth + 1) or _large(value.right, view, depth + 1)
        case ast.Attribute(attr="seed"):
            made = view.value(value.value) or value.value
            if isinstance(made, ast.Call) and view.resolve(made.func) == _WORKER_INFO:
                return text_of(value)
            return ""
        case _:
            return ""


def _fix(seeding: SeedingCall, view: View) -> Fix | None:
    if not view.module.holds(seeding.seed):
        return None
    plain = isinstance(seeding.seed, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    before, after = ("", " % 2**32") if plain else ("(", ") % 2**32")
    return Fix("take it modulo 2**32", (Wrap(seeding.seed, before, after),))


RULE = Rule(
    code="AF305",
    name="seed-too-large-for-numpy",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
    follows=True,
)
