"""Who holds an iterator: a loop that is still running, or somebody who has only kept it."""

from __future__ import annotations

import gc
import itertools
import sys
from opcode import opmap
from types import FrameType, GeneratorType
from typing import Any

_GET_ITER = opmap["GET_ITER"]
# Who holds an iterator in order to ask it again.
_ASKING = (GeneratorType, enumerate, zip, map, filter, itertools.islice, itertools.chain)


def is_for_loop(caller: FrameType) -> bool:
    """Say whether a frame is about to begin a `for` loop, not to keep an iterator in a variable."""
    code, at = caller.f_code.co_code, caller.f_lasti
    return 0 <= at < len(code) and code[at] == _GET_ITER


def is_asked_again(keeper: dict[str, Any], name: str, *, by_for_loop: bool) -> bool:
    """Say whether somebody beside its keeper will ask an iterator for more: a `for` loop that has
    begun with it and has not ended, or what stands between it and another loop.

    Who has it in a variable or an attribute may just not have thrown it away; a loop that an
    exception has ended may be kept by a traceback, in a notebook for ever. That is nobody.
    """
    alone = {name: _Thing()}
    others = sys.getrefcount(keeper[name]) - sys.getrefcount(alone[name])
    if others <= 0:
        return False
    holders = [each for each in gc.get_referrers(keeper[name]) if each is not keeper]
    for each in holders:
        if isinstance(each, _ASKING) or (type(each) is tuple and _is_of_zip(each, holders)):
            return True
    return by_for_loop and others > len(holders)  # the rest is in frames that run


def _is_of_zip(held: tuple[Any, ...], by_us: list[Any]) -> bool:
    """Say whether a tuple is the one of a `zip`; while that is being made, nobody has it."""
    holders = [each for each in gc.get_referrers(held) if each is not by_us]
    return not holders or any(isinstance(each, _ASKING) for each in holders)


class _Thing:
    """Anything."""
