"""Names in loading code that nothing gives a value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source import library_names
from ..source.syntax.node_text import text_of
from ..source.syntax.notebooks import HOST_NAMES
from ..source.view import View
from .rule import CERTAIN, CRASH, POSSIBLE, Hit, Rule

_PUT_IN = ("profile",)  # among the builtins, by kernprof and memory_profiler
_MAKE_NAMES = ("exec", "globals", "locals", "vars", "importlib.reload")


def find(view: View) -> Iterator[Hit]:
    module = view.module
    if not module.is_whole or view.calls(*_MAKE_NAMES):
        return  # names may come from what cannot be seen
    seen: set[tuple[ast.AST | None, str]] = set()
    for root, where in _loading(view):
        for name in module.undefined(root):
            function = module.function_around(name)
            if module.is_notebook and name.id in HOST_NAMES:
                continue
            if (function, name.id) in seen or not _is_evaluated(name, view):
                continue
            seen.add((function, name.id))
            place = f"`{function.name}`" if function is not None else where
            yield Hit(
                name,
                f"`{name.id}` is not defined anywhere: {place} ends with a NameError when it gets"
                " here",
                POSSIBLE if name.id in _PUT_IN else None,
            )


def _loading(view: View) -> Iterator[tuple[ast.AST, str]]:
    """Yield the parts of a file that load: classes, functions, loaders, and loops over them."""
    used = {each.node for each in view.datasets}
    for owner in view.classes:
        if owner.node in used or owner.descends_from(*library_names.LOADING_BASES):
            yield owner.node, f"`{owner.name}`"
    for loader in view.loaders:
        for function in (loader.collate, loader.worker_init):
            if function is not None and function.module is view.module:
                yield function.node, f"`{function.name}`"
        yield loader.node, "this loader"
    for loop in view.loops:
        if loop.loader is not None and loop.body:
            for around in (loop.node, loop.epochs):
                if isinstance(around, (ast.For, ast.AsyncFor)):
                    yield around.iter, "this loop"
            for statement in loop.body:
                yield statement, "this loop"


def _is_evaluated(name: ast.Name, view: View) -> bool:
    """Whether a name is looked up when the program runs: not in an annotation that nobody
    evaluates, and not where a NameError is expected."""
    inner: ast.AST = name
    for each in view.module.ancestors(name):
        match each:
            case ast.AnnAssign(annotation=annotation) if annotation is inner:
                return False
            case ast.arg() if each.annotation is inner:
                return not _later(view)
            case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns) if (
                returns is inner
            ):
                return not _later(view)
            case ast.Try(handlers=handlers) | ast.TryStar(handlers=handlers) if inner in each.body:
                if any("NameError" in text_of(h.type) for h in handlers if h.type is not None):
                    return False
            case _:
                pass
        inner = each
    return name.id != "_"


def _later(view: View) -> bool:
    """Whether annotations of functions are not evaluated when these are defined."""
    python = view.project.python
    return (python is not None and python >= (3, 14)) or view.imports("__future__.annotations")


RULE = Rule(
    code="AF705",
    name="undefined-name",
    severity=CRASH,
    confidence=CERTAIN,
    find=find,
)
