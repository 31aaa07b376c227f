"""Objects with code of their own for whatever can be asked of an object: nobody may ask."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class Asked(Exception):
    pass


asked: list[str] = []


def refuse(what: str) -> Any:
    def ask(*_: Any) -> Any:
        asked.append(what)
        raise Asked(what)

    return ask


class Meta(type):
    __getattribute__ = refuse("an attribute of a class")
    __subclasscheck__ = refuse("issubclass")
    __instancecheck__ = refuse("isinstance")
    __hash__ = refuse("the hash of a class")
    __eq__ = refuse("the equality of classes")


class Shy(metaclass=Meta):
    """Whatever is asked of it, it raises."""

    __getattr__ = refuse("getattr")
    __getattribute__ = refuse("getattribute")
    __class__ = property(refuse("class"))
    __dict__ = property(refuse("dict"))
    __eq__ = refuse("eq")
    __hash__ = refuse("hash")
    __repr__ = __str__ = refuse("repr")
    __call__ = refuse("call")
    __enter__ = None

    def __exit__(self, *_: object) -> None:
        pass


def anything() -> None:
    """Called in a context: it could take a lock."""


class Enters(Shy):
    def __enter__(self) -> None:
        anything()


class Makes:
    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        asked.append(name)
        raise AttributeError(name)

    def __call__(self) -> Any:
        return contextlib.nullcontext()


@contextlib.contextmanager
def nobody_asked() -> Iterator[None]:
    """Check that none of these is asked for anything."""
    asked.clear()
    yield
    assert asked == []
