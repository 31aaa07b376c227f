"""As many workers as there are cores, in every rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.step_budget import cached_walk
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import LIKELY, SLOW, Hit, Rule

_CORES = frozenset({"os.cpu_count", "multiprocessing.cpu_count", "os.process_cpu_count"})
_COUNTED = ("os.sched_getaffinity", "psutil.cpu_count")


def find(view: View) -> Iterator[Hit]:
    if not view.distributed:
        return
    for loader in view.loaders:
        node = loader["num_workers"].node
        if node is None or loader.ours:
            continue
        for value in view.values(node):
            if _all_cores(value, view):
                yield Hit(
                    loader.node,
                    f"`num_workers` is the number of cores (`{text_of(value)}`), and each rank"
                    f" of a machine starts as many ({view.distributed})",
                )
                break


@cached_walk
def _all_cores(node: ast.expr, view: View, depth: int = 0) -> bool:
    """Whether a number is that of the cores: not divided, not bounded."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Call() as inside]):
            return view.resolve(inside.func) in _COUNTED
        case ast.Call(func=ast.Name(id="int"), args=[inside]):
            return _all_cores(inside, view, depth + 1)
        case ast.Call():
            return view.resolve(node.func) in (*_CORES, "psutil.cpu_count")
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult()) if depth < 4:
            return any(_all_cores(each, view, depth + 1) for each in view.values(left))
        case _:
            return False


RULE = Rule(
    code="AF607",
    name="workers-times-ranks",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
