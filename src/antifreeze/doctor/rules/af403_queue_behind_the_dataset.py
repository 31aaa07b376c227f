"""Samples that workers take from a queue."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import DatasetKind
from ..source.syntax.node_text import text_of
from ..source.view import View
from ..source.worker_code import WorkerCode
from ._helpers.exception_handlers import catches_any_of, exception_handlers, is_broad, own_nodes
from ._helpers.multiprocessing_objects import multiprocessing_primitive
from .rule import FREEZE, LIKELY, Hit, Rule

QUEUES = frozenset({"Queue", "JoinableQueue", "SimpleQueue"})


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if code.role != "sample":
            continue
        for call in code.function.calls():
            match call.func:
                case ast.Attribute(attr="get" | "get_nowait", value=ast.expr() as queue):
                    if multiprocessing_primitive(queue, view) in QUEUES and not _fails_loudly(
                        call, code
                    ):
                        yield Hit(call, _words(call, queue, code))  # who has one has workers
                case _:
                    pass


def _words(call: ast.Call, queue: ast.expr, code: WorkerCode) -> str:
    name = f"`{code.function.name}` takes samples from the queue `{text_of(queue)}`"
    if _waits_for_ever(call):
        return f"{name}: when its producer has died or has no more, the workers wait for ever"
    if code.dataset is not None and code.dataset.kind is DatasetKind.MAP:
        return f"{name}: whenever it is empty at that moment, a sample fails or is left out"
    return f"{name}: an empty queue is taken for the end, also if its producer is only slow"


def _fails_loudly(call: ast.Call, code: WorkerCode) -> bool:
    """Whether a stream that waits in vain ends with an error: nothing takes the empty queue for
    the end. A map-style dataset has no such way: its samples are counted before."""
    limited = any(each.arg == "timeout" for each in call.keywords) or len(call.args) > 1
    if not limited or code.dataset is None or code.dataset.kind is DatasetKind.MAP:
        return False
    around = [
        handler
        for attempt, handler in exception_handlers(code.function)
        if any(node is call for each in attempt.body for node in ast.walk(each))
        and (is_broad(handler) or catches_any_of(handler, "Empty"))
    ]
    return all(any(isinstance(n, ast.Raise) for n in own_nodes(each)) for each in around)


def _waits_for_ever(call: ast.Call) -> bool:
    plain = isinstance(call.func, ast.Attribute) and call.func.attr == "get"
    return plain and not call.args and not call.keywords


RULE = Rule(
    code="AF403",
    name="queue-behind-the-dataset",
    severity=FREEZE,
    confidence=LIKELY,
    find=find,
    follows=True,
)
