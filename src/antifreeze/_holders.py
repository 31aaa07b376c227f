"""Who holds an object: a loop that is still running, or nobody but its keeper."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any


def is_held(keeper: dict[str, Any], name: str) -> bool:
    """Say whether somebody beside its keeper holds an object, and could still use it.

    The frame of a loop that an exception has ended may be kept by a traceback, in a notebook for
    ever; that is nobody.
    """
    alone = {name: Thing()}
    others = sys.getrefcount(keeper[name]) - sys.getrefcount(alone[name])
    if others <= 0:
        return False
    running = _running_frames()
    holders = gc.get_referrers(keeper[name])
    dead = [each for each in holders if type(each) is FrameType and id(each) not in running]
    return others > len(dead)


class Thing:
    """Anything."""


def _running_frames() -> set[int]:
    running: set[int] = set()
    for frame in sys._current_frames().values():
        while frame is not None:
            running.add(id(frame))
            frame = frame.f_back  # type: ignore[assignment]
    return running
