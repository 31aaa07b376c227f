"""Types that ctypes makes of others: arrays of a length, and pointers. They have no name by which
they are found."""

from __future__ import annotations

import ctypes
import operator
from typing import Any

_ARRAYS, _POINTERS = type(ctypes.Array), type(ctypes._Pointer)


def reduce_made_type(kind: Any) -> Any:
    """Return how to make such a type anew, as `__reduce__` does; NotImplemented for any other."""
    made = type(kind)
    if made is _ARRAYS and kind is not ctypes.Array:
        element, length = kind._type_, kind._length_
        if element * length is kind:
            return operator.mul, (element, length)
    if made is _POINTERS and ctypes.POINTER(kind._type_) is kind:
        return ctypes.POINTER, (kind._type_,)
    return NotImplemented
