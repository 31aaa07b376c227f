"""Whose code a line of a traceback is: ours, a library's, or the user's."""

from __future__ import annotations

import contextlib
import functools
import os
import traceback
from types import CodeType, FrameType, TracebackType

from .own_frames import HERE

_STANDARD = os.path.dirname(os.__file__) + os.sep
DEEPEST_CHAIN = 64  # errors, each the cause of another, or part of a group


def is_ours(file: str) -> bool:
    """Whether a file of code is part of antifreeze."""
    return file.startswith(HERE)


@functools.cache
def is_library(file: str) -> bool:
    """Whether a file of code is part of Python or of an installed package."""
    packages = "site-packages" in file or "dist-packages" in file
    return packages or file.startswith((_STANDARD, "<"))


def formatted(error: BaseException) -> str:
    """Return the traceback of an error as text, from the first line that is not ours. May raise:
    it calls `__str__` of the error."""
    told = traceback.TracebackException.from_exception(error, compact=True)
    queue = [(told, type(error).__module__)]
    for _ in range(DEEPEST_CHAIN):
        if not queue:
            break
        each, module = queue.pop()
        each.stack = _from_user(each.stack, module)
        inner = (each.__cause__, each.__context__, *(each.exceptions or ()))
        queue.extend((one, "") for one in inner if one is not None)
    return "".join(told.format())


def _from_user(stack: traceback.StackSummary, module: str) -> traceback.StackSummary:
    """Leave out our own lines before the first of another's. If all are ours they are what matters,
    unless the error is one that we raise on purpose: then the last will do."""
    for place, line in enumerate(stack):
        if not is_ours(line.filename):
            return traceback.StackSummary.from_list(stack[place:])
    last = stack[-1:] if module.partition(".")[0] == "antifreeze" else stack
    return traceback.StackSummary.from_list(last)


def leave_out_ours(trace: TracebackType | None, raisers: frozenset[CodeType]) -> None:
    """Shorten a traceback, in place, that begins in our outermost frame: leave out our own frames
    up to the first of another's. If all are ours they stay, since it is our mistake; unless the
    innermost is one of `raisers`, whose task it is to raise."""
    if trace is None:
        return
    left_out: list[FrameType] = []
    inner = trace.tb_next
    while inner is not None and is_ours(inner.tb_frame.f_code.co_filename):
        if inner.tb_next is None and inner.tb_frame.f_code not in raisers:
            return
        left_out.append(inner.tb_frame)
        inner = inner.tb_next
    trace.tb_next = inner
    for frame in left_out:  # the user's frames keep those that called them, and all they hold
        with contextlib.suppress(RuntimeError):  # it still runs
            frame.clear()
