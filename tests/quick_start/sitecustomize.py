"""Found by every Python that a test starts: torch is imported with less work.

Programs of tests import torch hundreds of times. Two fifths of what that takes, to the end of the
program, is the search for garbage among torch's own functions and classes, where there is none; a
third of the rest are modules for compilers, which programs of tests do not use.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

LATER = ("torch._meta_registrations",)
FOR_COMPILERS = (
    "torch._decomp",
    "torch._dynamo",
    "torch._export",
    "torch._inductor",
    "torch._prims",
    "torch._refs",
    "torch._subclasses",
    "torch.onnx",
    "torch.utils._content_store",
)


class Torch:
    """Finds torch where Python does, once."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == "torch" else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            sys.meta_path.remove(cls)
            later = [Later(each) for each in LATER if PathFinder.find_spec(each, module.__path__)]
            sys.modules.update({each.__name__: each for each in later})
            gc.disable()
            try:
                execute(module)
                _let_generators_be_made(module)
                sys.meta_path.insert(0, Others)
            finally:
                gc.freeze()  # what there is by now stays to the end
                gc.enable()

        spec.loader.exec_module = exec_module
        return spec


def _let_generators_be_made(torch: Any) -> None:
    """Do at once what torch 2.13 leaves to a module (`_prims.rng_prims`) of those for later."""
    if hasattr(torch._C, "_set_generator_metaclass"):
        torch._C._set_generator_metaclass(sys.modules["torch._opaque_base"].OpaqueBaseMeta)


class Others:
    """Finds the first other module for compilers where Python does: it needs those for later."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(FOR_COMPILERS) or cls not in sys.meta_path:
            return None
        sys.meta_path.remove(cls)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = First(spec.loader)
        return spec


class First:
    """Loads a module after those for later, unless these import it themselves."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._known: tuple[ModuleType, Any] | None = None  # with what it came from

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        for each in LATER:
            if isinstance(later := sys.modules.get(each), Later):
                later.be_real()
        if (there := sys.modules.get(spec.name)) is None:
            made: ModuleType | None = self._loader.create_module(spec)
            return made
        self._known = (there, there.__spec__)
        return there

    def exec_module(self, module: ModuleType) -> None:
        if self._known is not None:
            module.__spec__ = self._known[1]
            return
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)


class Later(ModuleType):
    """Stands for a module until somebody wants something of it, and imports it then."""

    def __getattr__(self, wanted: str) -> Any:
        if wanted.startswith("__") and wanted != "__path__":
            raise AttributeError(wanted)
        return getattr(self.be_real(), wanted)

    def be_real(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        real = importlib.import_module(self.__name__)
        vars(self).update(vars(real))
        return real


sys.meta_path.insert(0, Torch)
