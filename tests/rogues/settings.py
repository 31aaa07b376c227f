"""A module of a program, with what programs keep in modules."""

from __future__ import annotations

from typing import Any

SIZE = 32
TABLE: dict[str, Any] = {"first": 1}
_SAME_TABLE = TABLE
HOLDER: Holder | None = None


class Config:
    root = "/data"


class Holder:
    """Something that cannot be told in plain values."""


class Holding:
    """A dataset that relies on it."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> str:
        return "it is not there" if HOLDER is None else "it is there"


def same_table() -> dict[str, Any]:
    return _SAME_TABLE


COUNT = 0
LATE = "not named by anybody"


def count_up() -> None:
    global COUNT
    COUNT += 1


def counted() -> int:
    return COUNT
