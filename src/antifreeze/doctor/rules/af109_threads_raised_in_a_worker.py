"""A worker asks for several threads of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import FREEZE, LIKELY, POSSIBLE, Hit, Rule

_SETTERS = frozenset(
    {"torch.set_num_threads", "cv2.setNumThreads", "mkl.set_num_threads"}
    | {"numexpr.set_num_threads", "pyarrow.set_cpu_count", "numba.set_num_threads"}
)
_COUNTS = frozenset(
    {"os.cpu_count", "multiprocessing.cpu_count", "os.process_cpu_count", "psutil.cpu_count"}
)


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        for call in code.function.calls():
            name = view.resolve(call.func)
            if name in _SETTERS and call.args and _is_several(call.args[0], view):
                yield Hit(
                    call,
                    f"`{text_of(call)}` runs in every worker: workers times threads fight for"
                    " the cores, and a forked worker may wait for threads that it does not have",
                    LIKELY if code.workers is not None else POSSIBLE,
                )


def _is_several(node: ast.expr, view: View) -> bool:
    for value in view.origins(node):
        if isinstance(value, ast.Call) and view.resolve(value.func) in _COUNTS:
            return True
        number = view.constant(value)
        if isinstance(number, int) and number > 1:
            return True
    return False


RULE = Rule(
    code="AF109",
    name="threads-raised-in-a-worker",
    severity=FREEZE,
    confidence=LIKELY,
    find=find,
    follows=True,
)
