"""Modules of the program's own that are sent with all that is in them.

Of other modules only what is used is sent, and the rest is made from the module's file when
somebody asks for it. That will not do where code may look for anything, or where the module is of a
class of its own, or was put in its place by the program.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from .stand_in_modules import Around, namespace_of, stand_in


class WholeModule:
    """A module of the program's own, with all that is in it; where it is unpickled, it is the
    stand-in. Of modules in it only stand-ins are made."""

    def __init__(self, around: Around, inner: dict[str, WholeModule]) -> None:
        self._around, self._inner = around, inner
        self.content: dict[str, Any] | None = None  # None: only the stand-in

    @property
    def name(self) -> str:
        return self._around[-1].name

    def __reduce__(self) -> tuple[Any, ...]:
        if self.content is None:
            return stand_in, (self._around,)
        kind = type(sys.modules[self.name])
        state = {**self.content, **self._inner}, None if kind is ModuleType else kind
        return stand_in, (self._around,), state, None, None, fill


class ReplacedModule:
    """What the program has put in place of a module, and is none; where it is unpickled, it is
    there, too."""

    def __init__(self, name: str, outer: Around, thing: Any) -> None:
        self.name, self.content = name, {"": thing}
        self._outer = outer

    def __reduce__(self) -> tuple[Any, ...]:
        return _put_in_place, (self.name, self._outer, self.content[""])


# ---- in the clean process -----------------------------------------------------------------------


def fill(module: ModuleType, state: tuple[dict[str, Any], type[ModuleType] | None]) -> None:
    content, kind = state
    namespace_of(module).update(content)
    if kind is not None:
        module.__class__ = kind


def _put_in_place(name: str, outer: Around, thing: Any) -> Any:
    sys.modules[name] = thing
    if outer:
        setattr(stand_in(outer), name.rpartition(".")[2], thing)
    return thing
