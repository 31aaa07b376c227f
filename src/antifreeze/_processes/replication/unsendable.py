"""The refusal to send what would arrive as something else, and what it may be due to."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..._transport.packing import parts


class Unsendable(Exception):
    """This would arrive as something else."""


def parts_sent(thing: Any) -> list[tuple[str, Any]]:
    """Return what of an object would be pickled, as far as it leaves that to us."""
    kind: Any = type(thing)
    if kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__:
        return parts(thing) if isinstance(thing, list | tuple | dict | set | frozenset) else []
    if kind.__getstate__ is not object.__getstate__ and not dataclasses.is_dataclass(kind):
        try:
            state = thing.__getstate__()
        except Exception:
            return []
        return [(f".{name}", part) for name, part in state.items()] if type(state) is dict else []
    return parts(thing)
