"""Warnings, told where the user's own line is, however deep in here the reason is found."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType
from typing import Any

from .._transport.own_frames import HERE
from .redaction import shareable

_TORCH = os.path.join("torch", "utils", "data") + os.sep  # whose `__iter__` calls ours


def remark(text: str) -> None:
    """Warn, with the line of the first caller that is neither ours nor torch's."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and _is_inside(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(shareable(text), stacklevel=level)


def _is_inside(path: str) -> bool:
    return path.startswith(HERE) or _TORCH in path


def user_line(frame: FrameType | None, made: Any = None) -> str:
    """Return the first line, from here outward, that is neither ours nor torch's: file and number.
    `made`: what is being made; an `__init__` of a subclass is not where that happens."""
    while frame is not None and (_is_inside(frame.f_code.co_filename) or _makes(frame, made)):
        frame = frame.f_back
    if frame is None:
        return "unknown"
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _makes(frame: FrameType, thing: Any) -> bool:
    code = frame.f_code
    if thing is None or code.co_name != "__init__" or not code.co_varnames:
        return False
    return frame.f_locals.get(code.co_varnames[0]) is thing
