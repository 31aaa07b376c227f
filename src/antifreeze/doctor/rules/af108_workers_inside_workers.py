"""Processes that a worker would start."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.file_summary import Workers
from ..source.view import View
from ..source.worker_code import WorkerCode
from .rule import CERTAIN, CRASH, LIKELY, POSSIBLE, Hit, Rule

_STARTS = frozenset(
    {"multiprocessing.Pool", "multiprocessing.Process", "multiprocessing.pool.Pool"}
    | {"multiprocessing.process.Process", "multiprocessing.Manager", "multiprocessing.spawn"}
    | {"concurrent.futures.ProcessPoolExecutor", "concurrent.futures.process.ProcessPoolExecutor"}
)
_OF_A_CONTEXT = ("Pool", "Process", "Manager")


def find(view: View) -> Iterator[Hit]:
    loaders = {each.node: each for each in view.loaders}
    for code in view.worker_code:
        for call in code.function.calls():
            loader = loaders.get(call)
            if loader is not None and loader.workers.any:
                sure = code.workers is Workers.SOME and loader.workers is Workers.SOME
                yield _hit(call, "a loader with workers", code, sure=sure)
            elif (name := _starts(call, view)) != "":
                yield _hit(call, f"`{name}`", code, sure=code.workers is Workers.SOME)


def _hit(call: ast.Call, what: str, code: WorkerCode, *, sure: bool) -> Hit:
    words = f"{what} in `{code.function.name}`, which runs in workers: they may start no processes"
    confidence = CERTAIN if sure and code.role != "sample" else LIKELY
    return Hit(call, words, confidence if code.workers is not None else POSSIBLE)


def _starts(call: ast.Call, view: View) -> str:
    name = view.resolve(call.func) or ""
    if name in _STARTS:
        return name
    match call.func:
        case ast.Attribute(attr=attr, value=ast.expr() as context) if attr in _OF_A_CONTEXT:
            if view.type_of(context) == "multiprocessing.get_context":
                return f"multiprocessing.{attr}"
        case _:
            pass
    return ""


RULE = Rule(
    code="AF108",
    name="workers-inside-workers",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
    follows=True,
)
