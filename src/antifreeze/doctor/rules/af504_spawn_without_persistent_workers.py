"""Workers that are slow to start, and are started anew in every epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import PICKLING
from ..source.loader_loops import LoaderLoop
from ..source.view import View
from .rule import LIKELY, SLOW, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    reported = set[ast.Call]()
    for loop in view.loops:
        loader = loop.loader
        if loader is None or loader.ours or not loader.workers.any or loader.node in reported:
            continue
        kept = loader["persistent_workers"]
        if not (kept.absent or kept.is_(False)) or loader.start_method not in PICKLING:
            continue
        if loader.in_loop is None and _in_epochs(loop, view):
            reported.add(loader.node)
            yield Hit(
                loader.node,
                f"workers start by {loader.start_method}, and this loader starts them anew in every"
                " epoch: each imports everything again and gets the dataset sent again",
            )


def _in_epochs(loop: LoaderLoop, view: View) -> bool:
    """Whether a loop over a loader runs more than once: it, or the call of its function, is in
    a loop. A loop that is left in its first round does not count."""
    around = loop.epochs
    if around is None:
        function = view.function_around(loop.node)
        for call in view.calls_of(function) if function is not None else ():
            around = around or view.loop_around(call)
    if around is None or isinstance(around, ast.While):
        return around is not None
    return not (isinstance(around.iter, ast.Call) and _is_one(around.iter, view))


def _is_one(call: ast.Call, view: View) -> bool:
    return (
        view.resolve(call.func) == "range"
        and len(call.args) == 1
        and view.constant(call.args[0]) in (0, 1)
    )


RULE = Rule(
    code="AF504",
    name="spawn-without-persistent-workers",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
