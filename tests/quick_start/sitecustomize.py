"""Found by every Python that a test starts: torch is imported without looking for garbage.

Programs of tests import torch hundreds of times; two fifths of what that takes, to the end of the
program, is the search for garbage among torch's own functions and classes, where there is none.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


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
            gc.disable()
            try:
                execute(module)
            finally:
                gc.freeze()  # what there is by now stays to the end
                gc.enable()

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Torch)
