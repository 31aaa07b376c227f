"""Adapt a library when it is there: now, or as soon as it is imported."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType
from typing import Any

from .._reporting.user_warnings import remark
from .import_hooks import Act, Follower


def when_there(name: str, adapt: Act) -> None:
    """Adapt a module, once: now if it is imported, else when it is. A failure is said, and no more:
    the library must work as it did."""
    if name in _follower.acts or name in _done:
        return
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        _adapt(adapt, module)
        return
    _follower.acts[name] = partial(_adapt, adapt)
    _follower.stand()


def replace_held(module: ModuleType, name: str, new: Any) -> None:
    """Replace a function of a module, also where its library holds it by the same name."""
    old = vars(module)[name]
    library = module.__name__.partition("_")[0].partition(".")[0]  # lightning, of lightning_fabric
    for other, holder in list(sys.modules.items()):
        if library in other and isinstance(holder, ModuleType) and vars(holder).get(name) is old:
            setattr(holder, name, new)
    setattr(module, name, new)


def _adapt(adapt: Act, module: ModuleType) -> None:
    _follower.acts.pop(module.__name__, None)
    if module.__name__ in _done:
        return
    _done.add(module.__name__)
    try:
        adapt(module)
    except Exception as error:
        remark(
            f"antifreeze: {module.__name__} is not as expected ({type(error).__name__}: {error});"
            " it is left as it is. What is written at a loader (on_error=..., ...) may be lost"
            " where it builds loaders anew; what install() was given holds."
        )


_follower = Follower({})
_done: set[str] = set()
