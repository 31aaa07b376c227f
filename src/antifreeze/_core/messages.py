"""What events, commands and other small values are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def message(cls: type[T]) -> type[T]:
    """Make a class a slotted dataclass that nobody may change, enforced by the type checker.

    `frozen=True` would enforce it at run time as well, at 1.4 us an object instead of 0.24 us:
    eight of them a batch are a fifth of what a whole batch of integers costs.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
