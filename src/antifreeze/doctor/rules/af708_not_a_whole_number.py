"""A number of workers that is not a whole number: a fraction, a text, None."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.call_arguments import Argument
from ..source.loaders import Loader
from ..source.syntax.constants import UNKNOWN
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import CERTAIN, CRASH, LIKELY, Fix, Hit, Replace, Rule

_TEXTS = ("os.getenv", "os.environ.get")


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        if not view.takes_torchs_arguments(loader):
            continue
        for name in ("num_workers", "prefetch_factor"):
            argument = loader[name]
            if argument.node is None:
                continue
            if argument.value is not UNKNOWN:
                yield from _constant(argument, loader, view)
            else:
                yield from _computed(argument, argument.node, view)


def _constant(argument: Argument, loader: Loader, view: View) -> Iterator[Hit]:
    value, node = argument.value, argument.node
    assert node is not None
    if isinstance(value, int) or (value is None and argument.name == "prefetch_factor"):
        return
    if isinstance(value, float) and (value < 0 or (value == 0 and not loader.ours)):
        return  # AF704; and torch takes 0.0 for 0
    words = f"`{argument.name}` must be a whole number, not {value!r}"
    yield Hit(view.here(node, loader.node), words, fix=_fix(node, loader.node))


def _fix(node: ast.expr, call: ast.Call) -> Fix | None:
    """Write `4` for `4.0` and `"4"`, where they stand in the call itself."""
    if node not in (*call.args, *(each.value for each in call.keywords)):
        return None
    match node:
        case ast.Constant(value=float() as value) if value.is_integer():
            return Fix(f"pass {int(value)}", (Replace(node, str(int(value))),))
        case ast.Constant(value=str() as text) if text.isascii() and text.isdigit():
            return Fix(f"pass {int(text)}", (Replace(node, str(int(text))),))
        case _:
            return None


def _computed(argument: Argument, node: ast.expr, view: View) -> Iterator[Hit]:
    for value in view.values(node):
        match value:
            case ast.BinOp(op=ast.Div()):
                what = f"`{text_of(value)}` is a fraction, also where nothing is left over"
            case ast.Call() if view.resolve(value.func) in _TEXTS:
                what = f"`{text_of(value)}` is a text where the variable is set"
            case ast.Subscript() if view.resolve(value.value) == "os.environ":
                what = f"`{text_of(value)}` is a text"
            case _:
                continue
        words = f"`{argument.name}` must be a whole number, and {what}"
        yield Hit(view.here(value, node), words, LIKELY)


RULE = Rule(
    code="AF708",
    name="not-a-whole-number",
    severity=CRASH,
    confidence=CERTAIN,
    find=find,
)
