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

LATER = ("torch._meta_registrations", "torch.export")
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
    """Imports what was left for later before other modules for compilers, as these expect it."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if name.startswith(FOR_COMPILERS) and cls in sys.meta_path:
            sys.meta_path.remove(cls)
            for each in LATER:
                if isinstance(later := sys.modules.get(each), Later):
                    later.be_real()


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
