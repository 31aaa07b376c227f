"""A loader that is made, or started, again and again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.loaders import Loader
from ..source.view import View
from .rule import LIKELY, POSSIBLE, SLOW, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        if loader.workers.any and _needlessly(loader, view):
            yield Hit(
                loader.node,
                "this loader is made anew in every round of the loop: its workers are started and"
                " ended each time",
            )
    for call in view.calls("next"):
        hit = _first_batch_again(call, view)
        if hit is not None:
            yield hit


def _needlessly(loader: Loader, view: View) -> bool:
    """Whether every round makes the same loader: nothing in it comes from the loop."""
    loop = loader.in_loop
    if loop is None or not any(each.loader is loader for each in view.loops):
        return False
    changing = {
        node.id  # `self` too, of `self.size = ...`
        for target in ast.walk(loop)
        if isinstance(getattr(target, "ctx", None), ast.Store)
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    }
    used = {each.id for each in ast.walk(loader.node) if isinstance(each, ast.Name)}
    calls = [each for each in ast.walk(loader.node) if isinstance(each, ast.Call)]
    return changing.isdisjoint(used) and len(calls) == 1


def _first_batch_again(call: ast.Call, view: View) -> Hit | None:
    match call.args:
        case [ast.Call(func=ast.Name(id="iter"), args=[ast.expr() as inside]), *_]:
            loader = view.loader_of(inside)
        case _:
            return None
    if loader is None or not loader.workers.any or loader.in_loop is not None:
        return None
    if view.loop_around(call) is None:
        return None
    kept = loader["persistent_workers"]
    what = (
        "has all workers begin a new epoch, takes one batch and throws away the others they load"
        if kept.is_(True)
        else "starts all workers, takes one batch and ends them again"
    )
    return Hit(
        call,
        f"`next(iter(loader))` in a loop {what}, in every round; without shuffling it is always the"
        " same batch",
        LIKELY if kept.absent or kept.is_(True) or kept.is_(False) else POSSIBLE,
    )


RULE = Rule(
    code="AF501",
    name="loader-made-in-the-loop",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
