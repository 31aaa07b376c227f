"""The names of LMDB's databases, which their handles do not tell."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

_SHAPE = ("depth", "branch_pages", "leaf_pages", "overflow_pages", "entries")
# What the main database keeps of each named one, in format 0: padding, flags, depth; pages of
# three kinds and entries; the root.
_RECORD = struct.Struct("IHHNNNNN")
_MOST = 1024  # entries of the main database that are looked at


def name_of(database: Any, env: Any) -> tuple[bytes | None] | None:
    """Return the name of a database of an environment (None: the main one's); nothing, if it is not
    of this one, or if two of the same shape may be meant.

    Its shape is told by the record that the main database keeps of it. So its own record always
    fits: if only one does, it is that.
    """
    with contextlib.suppress(Exception), env.begin() as now:
        if hasattr(env, "lib_version") and env.lib_version()[0] != 0:  # another format
            return None
        shape = _shape(now.stat(database))
        main = now.stat()
        if main["entries"] > _MOST:
            return None
        fitting: list[bytes | None] = [None] if _shape(main) == shape else []
        for key, value in now.cursor():
            if len(value) == _RECORD.size:
                _, _, depth, *pages, _ = _RECORD.unpack(value)
                if (depth, *pages) == shape:
                    fitting.append(bytes(key))
        return (fitting[0],) if len(fitting) == 1 else None
    return None


def _shape(told: dict[str, int]) -> tuple[int, ...]:
    return tuple(told[each] for each in _SHAPE)
