"""Do something to a module as soon as it has been imported, whoever imports it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Act = Callable[[ModuleType], None]


class Follower(importlib.abc.MetaPathFinder):
    """Stands before all others: has a module found by them, and acts when it has been run."""

    def __init__(self, acts: dict[str, Act]) -> None:
        self.acts = acts
        self._finding: set[str] = set()  # other finders may ask all finders, this one included

    def __repr__(self) -> str:
        return f"<antifreeze: waits for {', '.join(self.acts) or 'no module'}>"

    def stand(self) -> None:
        """Take the place before all others."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        act = self.acts.get(name)
        if act is None or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = self._behind(name, path, target)
        finally:
            self._finding.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, act)
        return spec

    def _behind(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        """Have a module found by all others."""
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = (
                None if find is None else find(name, path, target)
            )
            if spec is not None:
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Stands before a module's own loader until the module has been run."""

    def __init__(self, behind: Any, act: Act) -> None:
        self._behind, self._act = behind, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def __repr__(self) -> str:
        return f"<antifreeze: stands before {self._behind!r}>"

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._behind.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._behind  # as if nobody had stood before
        self._behind.exec_module(module)
        self._act(module)
