"""Threads of the main process that forked workers wait for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset, Function
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import FREEZE, LIKELY, POSSIBLE, Hit, Rule

_POOLS = frozenset(
    {"concurrent.futures.ThreadPoolExecutor", "concurrent.futures.thread.ThreadPoolExecutor"}
)
# Their threads start at once, not with the first task.
_AT_ONCE = {
    "multiprocessing.pool.ThreadPool": "its threads are not in a forked worker",
    "multiprocessing.dummy.Pool": "its threads are not in a forked worker",
    "s3fs.S3FileSystem": "its thread is not in a forked worker, where it is not fork-safe",
    "s3fs.core.S3FileSystem": "its thread is not in a forked worker, where it is not fork-safe",
    "gcsfs.GCSFileSystem": "its thread is not in a forked worker, where it is not fork-safe",
    "adlfs.AzureBlobFileSystem": "its thread is not in a forked worker, where it is not fork-safe",
    "fsspec.filesystem": "its thread is not in a forked worker, where it is not fork-safe",
    "grpc.insecure_channel": "its threads are not in a forked worker",
    "grpc.secure_channel": "its threads are not in a forked worker",
}
_ASYNC = frozenset({"s3", "s3a", "gs", "gcs", "http", "https", "abfs", "az", "adl", "abfss"})
# What a worker waits at, for a thread to do something.
_WAITED_FOR = frozenset(
    {"queue.Queue", "queue.SimpleQueue", "queue.LifoQueue", "queue.PriorityQueue"}
    | {"threading.Event", "threading.Condition", "asyncio.new_event_loop", "asyncio.Queue"}
)


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.only_ours or view.sent_by(dataset):
            continue
        if dataset.workers is None or dataset.workers.any:
            for node, words in (*_kept(dataset, view), *_started(dataset, view)):
                place = view.here(node, dataset.node)
                yield Hit(place, words, LIKELY if dataset.workers is not None else POSSIBLE)
    yield from _of_the_module(view)


def _kept(dataset: Dataset, view: View) -> Iterator[tuple[ast.AST, str]]:
    prepared = {function.node for function in dataset.preparing}
    for attribute, places in dataset.attributes.items():
        if not dataset.uses(attribute) or dataset.sets_anew(attribute):
            continue
        for place in places:
            if place.value is None or place.method not in prepared:
                continue
            for value in view.origins(place.value):
                why = _threads(value, view)
                if not why and _is_pool(value, view):
                    if _is_used(attribute, dataset):
                        why = "`__init__` has started its threads, which are not in a forked worker"
                    elif (line := _sample_taken(dataset, view)) is not None:
                        why = f"line {line} has started its threads, which no forked worker has"
                if why:
                    yield (
                        place.node,
                        f"`self.{attribute}` is made in `{place.method.name}` and used by every"
                        f" worker, but {why}",
                    )


def _threads(value: ast.expr, view: View) -> str:
    if not isinstance(value, ast.Call):
        return ""
    name = view.resolve(value.func) or ""
    if name == "fsspec.filesystem":
        kind = view.constant(value.args[0]) if value.args else ""
        return _AT_ONCE[name] if kind in _ASYNC else ""
    return _AT_ONCE.get(name, "")


def _is_pool(value: ast.expr, view: View) -> bool:
    return isinstance(value, ast.Call) and view.resolve(value.func) in _POOLS


def _is_used(attribute: str, dataset: Dataset) -> bool:
    """Whether `__init__` gives a pool something to do: only then are there threads."""
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("submit", "map")
        and text_of(call.func.value) == f"self.{attribute}"
        for function in dataset.preparing
        for call in function.calls()
    )


def _sample_taken(dataset: Dataset, view: View) -> int | None:
    """Return the line where the main process itself takes a sample: `dataset[0]`."""
    for node in view.module.nodes(ast.Subscript):
        if not isinstance(node.value, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        if not isinstance(node.slice, ast.Constant) or view.function_around(node) in {
            each.node for each in dataset.loading
        }:
            continue
        if any(
            isinstance(value, ast.Call)
            and (owner := view.class_of(value.func)) is not None
            and owner.node is dataset.node
            for value in view.origins(node.value)
        ):
            return node.lineno
    return None


def _started(dataset: Dataset, view: View) -> Iterator[tuple[ast.AST, str]]:
    """Yield the threads that `__init__` starts, and that loading waits for."""
    waits = {
        name
        for name, places in dataset.attributes.items()
        if dataset.uses(name)
        and not dataset.sets_anew(name)
        and any(each.value and view.type_of(each.value) in _WAITED_FOR for each in places)
    }
    for function in dataset.preparing:
        starts = any(
            isinstance(call.func, ast.Attribute) and call.func.attr == "start"
            for call in function.calls()
        )
        for call in function.calls() if starts else ():
            if view.resolve(call.func) != "threading.Thread":
                continue
            shared = sorted(waits & _touched(call, function, dataset))
            if shared:
                yield (
                    call,
                    f"a thread is started in `{function.name}`, and every worker waits for it at"
                    f" `self.{shared[0]}`: a forked worker does not have that thread",
                )


def _touched(thread: ast.Call, function: Function, dataset: Dataset) -> set[str]:
    """Return the attributes of `self` that a thread has to do with: in its target, or passed."""
    names: set[str] = set()
    for node in ast.walk(thread):
        if isinstance(node, ast.Attribute) and function.module.class_of_self(node.value):
            names.add(node.attr)
            for each in dataset.reached(node.attr):
                names.update(
                    inside.attr for inside in each.nodes() if isinstance(inside, ast.Attribute)
                )
    return names


def _of_the_module(view: View) -> Iterator[Hit]:
    seen = set[ast.expr]()
    for code in view.worker_code:
        if code.only_ours or code.workers is None or _is_sent(code.dataset, view):
            continue
        for node in code.function.nodes():
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            for binding in view.module.scopes.top.names.get(node.id, []):
                value = binding.value
                if value is None or value in seen or binding not in view.module.bindings(node):
                    continue
                why = _threads(value, view)
                if why and view.runs_on_import(value):
                    seen.add(value)
                    words = (
                        f"`{node.id}` is made when the file is imported and used by every worker"
                    )
                    yield Hit(value, f"{words}, but {why}")


def _is_sent(dataset: Dataset | None, view: View) -> bool:
    return dataset is not None and bool(view.sent_by(dataset))


RULE = Rule(
    code="AF106",
    name="threads-before-fork",
    severity=FREEZE,
    confidence=LIKELY,
    find=find,
)
