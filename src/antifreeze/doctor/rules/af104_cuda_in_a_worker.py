"""Samples that are put on a GPU by a worker."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import PICKLING
from ..source.syntax.node_text import text_of
from ..source.view import View
from ..source.worker_code import WorkerCode
from ._helpers.cuda_placement import puts_on_cuda
from .rule import CRASH, LIKELY, POSSIBLE, Hit, Rule

_ROLES = {
    "sample": "while it loads a sample",
    "transform": "while it loads a sample",
    "collate": "in the collate function",
}


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if code.only_ours or _is_sent(code, view) or _asks_where_it_is(code):
            continue
        role = _ROLES.get(code.role, "when it starts")
        for call in code.function.calls():
            if puts_on_cuda(call, view):
                yield Hit(
                    call,
                    f"`{_short(call)}` uses the GPU in a worker, {role}: a forked worker cannot,"
                    " once the main process has",
                    LIKELY if code.workers is not None and not _depends(call, view) else POSSIBLE,
                )
            elif _to_some_device(call):
                words = f"`{_short(call)}` in a worker, {role}: it cannot be a GPU there"
                yield Hit(call, words, POSSIBLE)


def _is_sent(code: WorkerCode, view: View) -> bool:
    if code.loader is not None:
        return code.loader.start_method in PICKLING
    return code.dataset is not None and bool(view.sent_by(code.dataset))


def _asks_where_it_is(code: WorkerCode) -> bool:
    """Whether it asks if it runs in a worker at all."""
    return any(
        isinstance(each, ast.Call) and text_of(each.func).endswith("get_worker_info")
        for each in code.function.nodes()
    )


def _depends(call: ast.Call, view: View) -> bool:
    """Whether an `if` around it asks for the device, other than whether there is a GPU."""
    tests = [text_of(e.test) for e in view.module.ancestors(call) if isinstance(e, ast.If)]
    return any("device" in test and "is_available" not in test for test in tests)


def _to_some_device(call: ast.Call) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(attr="to"), args=[ast.Name() | ast.Attribute() as device]):
            return text_of(device).endswith("device")
        case _:
            return False


def _short(call: ast.Call) -> str:
    text = text_of(call)
    return text if len(text) <= 50 else f"{text[:47]}..."


RULE = Rule(
    code="AF104",
    name="cuda-in-a-worker",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
    follows=True,
)
