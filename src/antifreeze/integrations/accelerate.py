"""accelerate: it builds each prepared loader anew, from a list of torch's options.

The list is a dict of names and defaults, read with `getattr` when a loader is prepared, or its
first batches are skipped: with our names in it, what was written at a loader stays. A
StatefulDataLoader (`use_stateful_dataloader=True`) does not take them: that is said.
"""

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any

from .._engine.defaults import NAMES
from .._reporting.user_warnings import remark
from ..loader import present_defaults

LIST = "_PYTORCH_DATALOADER_KWARGS"
STATEFUL = "use_stateful_dataloader"


def adapt(module: ModuleType) -> None:
    """Add our options to the list of `accelerate.data_loader`. Raises if it is another than we know
    (1.0 to 1.15): there is no list, or no class to keep them from torchdata's loader."""
    known: dict[str, Any] = getattr(module, LIST)
    adapter: Any = module.DataLoaderAdapter
    parameters = inspect.signature(adapter.__init__).parameters
    if "num_workers" not in known or STATEFUL not in parameters or "kwargs" not in parameters:
        raise AttributeError(f"{LIST} or DataLoaderAdapter has changed")
    adapter.__init__ = _without_ours_for_stateful(adapter.__init__)
    _lists.append(known)
    keep_up()


_lists: list[dict[str, Any]] = []


def keep_up() -> None:
    """Have what install() was told last be what holds for loaders that say nothing."""
    for known in _lists:
        known.update({name: present_defaults()[name] for name in NAMES})


def _without_ours_for_stateful(behind: Any) -> Any:
    @functools.wraps(behind)
    def __init__(
        self: Any, dataset: Any, use_stateful_dataloader: bool = False, *rest: Any, **named: Any
    ) -> None:
        if use_stateful_dataloader:
            _drop(named)
        behind(self, dataset, use_stateful_dataloader, *rest, **named)

    return __init__


_told: set[str] = set()


def _drop(named: dict[str, Any]) -> None:
    present = present_defaults()
    lost = [name for name in NAMES if name in named and named.pop(name) != present[name]]
    if not _told:
        _told.add(STATEFUL)
        also = (
            f" {', '.join(lost)} of this one {'is' if len(lost) == 1 else 'are'} lost."
            if lost
            else ""
        )
        remark(
            "antifreeze: accelerate makes a StatefulDataLoader of a loader, as"
            f" use_stateful_dataloader asks: torchdata's workers load, not antifreeze's.{also}"
        )
