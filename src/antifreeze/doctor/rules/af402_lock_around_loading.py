"""A lock between processes, held while samples are loaded."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Function
from ..source.syntax.node_text import text_of
from ..source.view import View
from ..source.worker_code import WorkerCode
from ._helpers.exception_handlers import own_nodes
from ._helpers.multiprocessing_objects import multiprocessing_primitive
from .rule import FREEZE, LIKELY, POSSIBLE, Hit, Rule

LOCKS = frozenset({"Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition"})
_THREADS = frozenset({"threading.Lock", "threading.RLock", "threading.Semaphore"})
# Calls that are over at once: a lock around them holds nobody up.
_BRIEF = frozenset({"print", "len", "int", "float", "str", "max", "min", "sum", "isinstance"})
_BRIEF_METHODS = frozenset(
    {"append", "add", "update", "get", "pop", "popleft", "put", "get_nowait", "put_nowait"}
    | {"write", "flush", "item", "info", "debug", "warning", "acquire", "release", "set"}
)


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        for place, lock in _held(code.function):
            kind = multiprocessing_primitive(lock, view)
            if kind in LOCKS:
                yield Hit(place, _words(code, lock))  # who has such a lock has workers
            elif view.type_of(lock) in _THREADS:
                yield Hit(
                    place,
                    f"`{text_of(lock)}` is a lock of threads: each worker has its own copy, so"
                    " it keeps no other worker out",
                    POSSIBLE,
                )


def _words(code: WorkerCode, lock: ast.expr) -> str:
    slow = (
        f"`{code.function.name}` holds `{text_of(lock)}` while it works: only one worker does"
        " so at a time"
    )
    if code.only_ours:
        return slow
    return f"{slow}, and one that is killed meanwhile stops all the others for ever"


def _held(function: Function) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield the locks under which a function does more than count, each with its place."""
    for node in function.nodes():
        match node:
            case ast.With():
                for item in node.items:
                    if isinstance(item.context_expr, (ast.Name, ast.Attribute)) and _works(
                        node.body
                    ):
                        yield node, item.context_expr
            case ast.Call(func=ast.Attribute(attr="acquire", value=ast.expr() as lock)):
                body = function.node.body if isinstance(function.node.body, list) else []
                if _works(body):
                    yield node, lock
            case _:
                pass


def _works(body: list[ast.stmt]) -> bool:
    for statement in body:
        for node in own_nodes(statement):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in _BRIEF:
                    pass
                case ast.Call(func=ast.Attribute(attr=name)) if name in _BRIEF_METHODS:
                    pass
                case ast.Call() | ast.Yield():
                    return True
                case ast.Subscript(value=ast.Attribute() | ast.Subscript(), ctx=ast.Load()):
                    return True  # self.file[index]
                case _:
                    pass
    return False


RULE = Rule(
    code="AF402",
    name="lock-around-loading",
    severity=FREEZE,
    confidence=LIKELY,
    find=find,
    follows=True,
)
