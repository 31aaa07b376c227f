"""Floats that are not equal to themselves: the same object there where they are the same here.

Pickle sends a float as its bits. `value is np.nan`, and `np.nan in values`, then find another
object. So one that a library has is found there under its name, and any other nan is one object
however many refer to it.
"""

from __future__ import annotations

import importlib
import pickle
import struct
import sys
from typing import Any

_PLACES = (("math", "nan"), ("math", "inf"), ("numpy", "nan"), ("numpy", "inf"))
Identity = tuple[str, str] | tuple[int, bytes]


class FloatIdentities:
    """Of one stream of pickled things."""

    def __init__(self) -> None:
        self._identities: dict[int, Identity] = {}
        for module, name in _PLACES:
            if module in sys.modules and (found := getattr(sys.modules[module], name, None)):
                self._identities.setdefault(id(found), (module, name))
        self._nans: list[float] = []  # kept: no other object may have the address

    def of(self, number: float) -> Identity | None:
        """Return what stands for a float that is not finite; None: its bits do."""
        identity = self._identities.get(id(number))
        if identity is None and number != number:
            identity = len(self._nans), struct.pack("<d", number)
            self._identities[id(number)] = identity
            self._nans.append(number)
        return identity


class Unpickler(pickle.Unpickler):
    """Reads such a stream."""

    def __init__(self, file: Any, **arguments: Any) -> None:
        super().__init__(file, **arguments)
        self._nans: dict[int, float] = {}

    def persistent_load(self, pid: Any) -> float:
        place, told = pid
        if type(place) is str:
            found: float = getattr(importlib.import_module(place), told)
            return found
        if place not in self._nans:
            (self._nans[place],) = struct.unpack("<d", told)
        return self._nans[place]
