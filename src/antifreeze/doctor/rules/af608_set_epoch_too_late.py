"""set_epoch when the order of the epoch is drawn already."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.loader_loops import LoaderLoop
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import LIKELY, WRONG_DATA, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    for call in view.method_calls("set_epoch"):
        if any(_is_of_samples(loop, call, view) for loop in view.loops):
            yield Hit(
                call,
                "`set_epoch` in the loop over batches: the order of this epoch was drawn when the"
                " loop began",
            )
        elif _after_the_loop(call, view):
            yield Hit(
                call,
                f"`set_epoch({text_of(call.args[0])})` after the loop is for the next epoch:"
                " the first two have the same order",
            )


def _is_of_samples(loop: LoaderLoop, call: ast.Call, view: View) -> bool:
    """Whether a call is in the body of a loop over batches, for that loop's own sampler."""
    if view.loop_around(call) is not loop.node or isinstance(loop.node, ast.comprehension):
        return False
    assert isinstance(call.func, ast.Attribute)
    receiver = text_of(call.func.value)
    targets = {each.id for each in ast.walk(loop.node.target) if isinstance(each, ast.Name)}
    if receiver.partition(".")[0] in targets:  # for loader in (train_loader, test_loader)
        return False
    starts_again = any(
        isinstance(each, ast.Call) and view.resolve(each.func) == "iter"
        for statement in loop.body
        for each in ast.walk(statement)
    )
    return "sampler" in receiver.lower() and not starts_again


def _after_the_loop(call: ast.Call, view: View) -> bool:
    """Whether a round of epochs has its loop over batches first, then `set_epoch(epoch)`."""
    epochs = view.loop_around(call)
    if not isinstance(epochs, ast.For) or not isinstance(epochs.target, ast.Name):
        return False
    match call.args:
        case [ast.Name(id=name)] if name == epochs.target.id:
            pass
        case _:
            return False
    places = {id(each): place for place, each in enumerate(epochs.body)}
    here = next(
        (places[id(each)] for each in view.module.ancestors(call) if id(each) in places), None
    )
    loops = [places[id(loop.node)] for loop in view.loops if id(loop.node) in places]
    if here is None or not loops or max(loops) >= here:
        return False
    return not any(
        isinstance(each, ast.Attribute) and each.attr == "set_epoch"
        for statement in epochs.body[:here]
        for each in ast.walk(statement)
    )


RULE = Rule(
    code="AF608",
    name="set-epoch-too-late",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
