"""Numbers that are addresses in this process: in another one they mean something else, or nothing.

Libraries keep some where a setting could be (numba those of functions in C), and a worker that is
given an address of the main process crashes. A number of the program's must not be taken for one,
or it would be lost: `Image.MAX_IMAGE_PIXELS = 10_000_000_000` lies where the CUDA driver reserves
memory.

So a number counts as an address only if it is as large as addresses are where processes are laid
out at random, and there is memory that can be read. Where addresses are, `LEFT_OUT` stands for
them; the process to which the rest is sent puts its own there.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any

from .mapped_memory import Areas

# What is mapped at random lies above: from 183 GB on with 39 bits for an address (RISC-V), from
# 85 TB on with 47 (x86-64). What CUDA and Java reserve at fixed places lies below 100 GB.
LOWEST_ADDRESS = 1 << 37
LEFT_OUT: EllipsisType = ...  # no plain value, and it can be pickled and marshalled
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})


def without_addresses(value: Any, areas: Areas) -> Any:
    """Return a plain value without the addresses in it: the very same one if there are none."""
    kind = type(value)
    if kind is int:
        return LEFT_OUT if value >= LOWEST_ADDRESS and areas.is_readable(value) else value
    if kind not in _CONTAINERS:
        return value
    if kind is dict:
        keys = [without_addresses(key, areas) for key in value]
        kept = [without_addresses(each, areas) for each in value.values()]
        if _are_same(keys, value) and _are_same(kept, value.values()):
            return value
        return dict(zip(keys, kept, strict=True))
    kept = [without_addresses(each, areas) for each in value]
    return value if _are_same(kept, value) else kind(kept)


def with_addresses(value: Any, present: Any) -> Any:
    """Return a value that was sent, with the addresses of this process: those in the present one.
    `LEFT_OUT` if it cannot be told which they are."""
    kind = type(value)
    if value is LEFT_OUT:
        return present if type(present) is int else LEFT_OUT
    if kind not in _CONTAINERS or not _lacks_some(value):
        return value
    if kind is not type(present):
        return LEFT_OUT
    if kind is dict:
        whole = {
            key: with_addresses(each, present.get(key))
            for key, each in value.items()
            if key is not LEFT_OUT
        }
        return {key: each for key, each in whole.items() if each is not LEFT_OUT}
    if kind in (set, frozenset) or len(value) != len(present):
        return LEFT_OUT
    items = [with_addresses(*pair) for pair in zip(value, present, strict=True)]
    return LEFT_OUT if any(each is LEFT_OUT for each in items) else kind(items)


def _are_same(these: Any, those: Any) -> bool:
    return all(this is that for this, that in zip(these, those, strict=True))


def _lacks_some(value: Any) -> bool:
    """Whether there is a place for an address in a plain value."""
    if type(value) not in _CONTAINERS:
        return value is LEFT_OUT
    inner = [*value, *value.values()] if type(value) is dict else value
    return any(map(_lacks_some, inner))
