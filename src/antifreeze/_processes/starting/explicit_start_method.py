"""Whether the program has chosen a start method, or multiprocessing has only fixed its default.

`set_start_method("fork")` and the first `multiprocessing.Lock()` leave the same state behind where
"fork" is the default: the context that both use is one object. So multiprocessing is given another
default, equal to its own: what is fixed to that one was not chosen by anybody.
"""

from __future__ import annotations

import copy
import multiprocessing
import multiprocessing.context
import sys
from types import FrameType
from typing import Any

_NAME = "set_start_method"
_contexts: Any = getattr(multiprocessing.context, "_default_context", None)


def is_chosen() -> bool:
    """Whether somebody in this program has called `set_start_method`, as far as can be told."""
    if _default is None:
        default = multiprocessing.get_all_start_methods()[0]
        return multiprocessing.get_start_method(allow_none=True) not in (None, default)
    present = _contexts._actual_context
    return present is not None and present is not _default


def _own_default() -> Any:
    """Return the default that multiprocessing has from now on; None: it cannot be told apart."""
    default = getattr(_contexts, "_default_context", None)
    present = getattr(_contexts, "_actual_context", None)
    if default is None:
        return None
    own = copy.copy(default)
    _contexts._default_context = own
    # What was fixed before this import: a choice if a caller of the import speaks of it.
    if present is default and not _is_named(sys._getframe()):
        _contexts._actual_context = own
    return own


def _is_named(frame: FrameType | None) -> bool:
    while frame is not None:
        if _NAME in frame.f_code.co_names and frame.f_globals.get("__name__") != __name__:
            return True
        frame = frame.f_back
    return False


_default = _own_default()
