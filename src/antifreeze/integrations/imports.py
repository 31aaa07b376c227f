"""Adapt a library when it is there: now, or as soon as it is imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from .._remarks import remark

Adapt = Callable[[ModuleType], None]


def when_there(name: str, adapt: Adapt) -> None:
    """Adapt a module, once: now if it is imported, else when it is. A failure is said, and no more:
    the library must work as it did."""
    if name in _finder.waiting or name in _finder.done:
        return
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        _finder.done.add(name)
        _try(adapt, module)
        return
    _finder.waiting[name] = adapt
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def replace_held(module: ModuleType, name: str, new: Any) -> None:
    """Replace a function of a module, also where its library holds it by the same name."""
    old = vars(module)[name]
    library = module.__name__.partition("_")[0].partition(".")[0]  # lightning, of lightning_fabric
    for other, holder in list(sys.modules.items()):
        if library in other and isinstance(holder, ModuleType) and vars(holder).get(name) is old:
            setattr(holder, name, new)
    setattr(module, name, new)


def _try(adapt: Adapt, module: ModuleType) -> None:
    try:
        adapt(module)
    except Exception as error:
        remark(
            f"antifreeze: {module.__name__} is not as expected ({type(error).__name__}: {error});"
            " it is left as it is. What is written at a loader (on_error=..., ...) may be lost"
            " where it builds loaders anew; what install() was given holds."
        )


class _Finder(importlib.abc.MetaPathFinder):
    """Stands before all others: has a module found by them, and adapted when it has been run."""

    def __init__(self) -> None:
        self.waiting: dict[str, Adapt] = {}
        self.done: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        adapt = self.waiting.get(name)
        if adapt is None:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, adapt)
                return spec  # type: ignore[no-any-return]
        return None

    def __repr__(self) -> str:
        return f"<antifreeze: waits for {', '.join(self.waiting) or 'no module'}>"


class _Loader(importlib.abc.Loader):
    """Stands before a module's own loader until the module has been run."""

    def __init__(self, behind: Any, adapt: Adapt) -> None:
        self._behind, self._adapt = behind, adapt

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
        _finder.waiting.pop(module.__name__, None)
        _finder.done.add(module.__name__)
        _try(self._adapt, module)


_finder = _Finder()
