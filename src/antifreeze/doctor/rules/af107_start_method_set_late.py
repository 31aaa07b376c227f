"""set_start_method where the start method is set already."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import PICKLING
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import CRASH, LIKELY, POSSIBLE, Hit, Rule

_SET = "multiprocessing.set_start_method"
_STARTS = ("multiprocessing.Process", "multiprocessing.Pool", "multiprocessing.spawn")


def find(view: View) -> Iterator[Hit]:
    calls = view.calls(_SET)
    started = [each.place for each in view.loops if each.loader and each.loader.workers.any]
    for call in calls:
        arguments = view.call_arguments(call, ("method", "force"))
        forced = not (arguments["force"].absent or arguments["force"].is_(False))
        if forced or _is_looked_after(call, view):
            continue
        method = arguments["method"].value
        if any(_follows(call, each, view) for each in calls):
            words = "the start method is set a second time: `context has already been set`"
            yield Hit(call, words)
        elif _is_repeated(call, view):
            words = "this runs again in each round of a loop: `context has already been set`"
            yield Hit(call, words)
        elif any(_follows(call, each, view) for each in started):
            words = "workers were started before this line: `context has already been set`"
            yield Hit(call, words)
        elif method in PICKLING and view.runs_on_import(call) and not view.module.is_notebook:
            yield Hit(
                call,
                f"every worker that is started by {method} imports this file and comes to this line"
                " again, where the start method is set already",
                LIKELY if _starts_some(view) else POSSIBLE,
            )


def _is_repeated(call: ast.Call, view: View) -> bool:
    """Whether a call is in a loop, or in a function of this file that is called in one."""
    function = view.function_around(call)
    conditional = any(isinstance(each, ast.If) for each in view.module.ancestors(call))
    if view.loop_around(call) is not None:
        return not conditional
    return (
        function is not None
        and view.module.scopes.parents.get(view.module.scopes.parents.get(call, call)) is function
        and any(view.loop_around(each) is not None for each in view.calls_of(function))
    )


def _is_looked_after(call: ast.Call, view: View) -> bool:
    """Whether a failure is caught, or the method asked for first."""
    inner: ast.AST = call
    for each in view.module.ancestors(call):
        if isinstance(each, (ast.Try, ast.TryStar)) and inner in each.body and each.handlers:
            return True
        if isinstance(each, ast.If) and "start_method" in text_of(each.test):
            return True
        inner = each
    return False


def _follows(late: ast.AST, early: ast.AST, view: View) -> bool:
    """Whether one runs after the other, certainly: in a later statement of the same block."""
    if late is early or view.function_around(late) is not view.function_around(early):
        return False
    above = {id(each) for each in (late, *view.module.ancestors(late))}
    inner = early
    for each in (early, *view.module.ancestors(early)):
        body = getattr(each, "body", None)
        if each is not early and id(each) in above and isinstance(body, list):
            places = [id(statement) for statement in body]
            mine = next((place for place, known in enumerate(places) if known in above), -1)
            return id(inner) in places and places.index(id(inner)) < mine
        if each is not early and isinstance(each, (ast.If, ast.Try, ast.TryStar)):
            return False
        inner = each
    return False


def _starts_some(view: View) -> bool:
    return any(each.workers.any and not each.ours for each in view.loaders) or bool(
        view.calls(*_STARTS)
    )


RULE = Rule(
    code="AF107",
    name="start-method-set-late",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
)
