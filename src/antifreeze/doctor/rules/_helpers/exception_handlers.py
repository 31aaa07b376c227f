"""Exception handlers: which are broad, which end the block, and which report the exception."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.definitions import Function
from ...source.syntax.node_text import last_name

TryNode = ast.Try | ast.TryStar  # `except*` catches as `except` does
_TELLING = frozenset(
    {"debug", "info", "warning", "warn", "error", "exception", "critical", "log", "fatal"}
    | {"capture_exception", "report", "write", "writerow", "put"}
)
_COUNTING = ("append", "add", "extend", "update", "inc", "increment")


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Whether it catches nearly everything: `except:`, `except Exception:`."""
    match handler.type:
        case None:
            return True
        case ast.Name(id="Exception" | "BaseException"):
            return True
        case ast.Tuple(elts=elts):
            return any(
                isinstance(each, ast.Name) and each.id in ("Exception", "BaseException")
                for each in elts
            )
        case _:
            return False


def catches_any_of(handler: ast.ExceptHandler, *names: str) -> bool:
    """Whether it names one of these classes: `except (KeyError, queue.Empty)`."""
    parts = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(part is not None and last_name(part) in names for part in parts)


def exception_handlers(function: Function) -> Iterator[tuple[TryNode, ast.ExceptHandler]]:
    """Yield every handler of a function, with its `try`."""
    for node in function.nodes():
        if isinstance(node, (ast.Try, ast.TryStar)):
            for handler in node.handlers:
                yield node, handler


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all under it, but not what is in functions and classes defined there."""
    queue = [node]  # not by recursion: a sum may have a thousand terms
    while queue:
        here = queue.pop()
        yield here
        children = [
            child
            for child in ast.iter_child_nodes(here)
            if not isinstance(
                child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
            )
        ]
        queue += reversed(children)


def leaves_block(handler: ast.ExceptHandler) -> bool:
    """Whether a handler, at some place, ends what it is in: by an error, `return`, `break`."""
    return any(isinstance(each, (ast.Raise, ast.Return, ast.Break)) for each in own_nodes(handler))


def reports_exception(handler: ast.ExceptHandler) -> bool:
    """Whether someone can learn of the exception: it is logged, counted, kept or raised on.

    `print` does not count: nobody reads it in the output of sixteen workers.
    """
    for node in own_nodes(handler):
        match node:
            case ast.Raise() | ast.AugAssign():
                return True
            case ast.Call(func=ast.Attribute(attr=name)) if name in _TELLING or name in _COUNTING:
                return True
            case ast.Call(func=ast.Name(id=name)) if name.lower() in _TELLING or (
                "log" in name.lower() or "warn" in name.lower()
            ):
                return True
            case ast.Assign() if handler.name is not None and any(
                isinstance(each, ast.Name) and each.id == handler.name
                for each in ast.walk(node.value)
            ):
                return True  # the exception is kept
            case _:
                pass
    return False
