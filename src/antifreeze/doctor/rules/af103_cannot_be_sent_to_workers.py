"""A dataset holds what pickle refuses, and its workers are not forked."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset
from ..source.syntax.module import AttributeAssignment
from ..source.view import View
from ._helpers.open_handles import HANDLES, MAY_BE_SENT, opened_handle
from .rule import CRASH, LIKELY, POSSIBLE, Hit, Rule

# Tried with Python 3.11: each of these is a TypeError of pickle's, or the like.
_REFUSED = frozenset(
    {"threading.Lock", "threading.RLock", "threading.Condition", "threading.Event"}
    | {"threading.Semaphore", "threading.BoundedSemaphore", "threading.Barrier"}
    | {"threading.local", "threading.Thread", "threading.Timer", "_thread.allocate_lock"}
    | {"queue.Queue", "queue.LifoQueue", "queue.PriorityQueue", "queue.SimpleQueue"}
    | {"concurrent.futures.ThreadPoolExecutor", "concurrent.futures.ProcessPoolExecutor"}
    | {"multiprocessing.Pool", "multiprocessing.pool.ThreadPool", "multiprocessing.dummy.Pool"}
    | {"asyncio.new_event_loop", "mmap.mmap", "subprocess.Popen", "weakref.ref"}
    | {"ctypes.pointer", "ctypes.CDLL", "ctypes.cdll.LoadLibrary"}
)


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.sends_itself or dataset.only_ours or dataset.is_forked:
            continue
        if dataset.workers is not None and not dataset.workers.any:
            continue
        for attribute, places in dataset.attributes.items():
            prepared = {function.node for function in dataset.preparing}
            kept = [each for each in places if each.method in prepared]
            if kept and not _is_none(kept[-1].value):
                yield from _hits(view, dataset, attribute, kept)


def _is_none(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _hits(
    view: View, dataset: Dataset, attribute: str, kept: list[AttributeAssignment]
) -> Iterator[Hit]:
    method = view.sent_by(dataset)
    started = f"started by {method}" if method else "that are not forked"
    for place in kept:
        what = _refused(place.value, view) if place.value is not None else ""
        if what and (method or what not in HANDLES):  # forked: AF201 has the handles
            yield Hit(
                view.here(place.node, dataset.node),
                f"`self.{attribute}` of `{dataset.name}` ({what}) cannot be pickled: workers"
                f" {started} cannot be given the dataset",
                LIKELY if method else POSSIBLE,
            )


def _refused(node: ast.expr, view: View) -> str:
    for value in view.origins(node):
        match value:
            case ast.GeneratorExp():
                return "a generator"
            case ast.Call():
                name = view.resolve(value.func)
                if name in _REFUSED:
                    return name or ""
                function = view.function_of(value.func)
                if function is not None and function.is_generator:
                    return f"the generator `{function.name}`"
            case _:
                pass
    handle = opened_handle(node, view)
    return handle[0] if handle is not None and handle[0] not in MAY_BE_SENT else ""


RULE = Rule(
    code="AF103",
    name="cannot-be-sent-to-workers",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
)
