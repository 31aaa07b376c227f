"""`install()` for a process that has not imported torch yet: it comes with it. Imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from .import_hooks import Follower
from .multiprocessing_children import Carried, ReportTo, carry

LOADER = "antifreeze.loader"


def install_with_torch(options: Mapping[str, Any]) -> None:
    """Install now if torch is there, else as soon as somebody has imported it. Processes that the
    program starts before know of it, too. Takes options that have been checked."""

    def install() -> None:
        from .install import install

        install(**options)

    if not _with_torch(install):
        carry(options)


def arrive(sent: Mapping[str, bytes], report_to: ReportTo | None = None) -> Carried:
    """Install in a process that multiprocessing has just started (`multiprocessing_children`)."""

    def install() -> Carried:
        from .install import arrive

        return arrive(sent, report_to)

    if "torch" in sys.modules:
        return install()
    _with_torch(install)
    return Carried(sent, report_to)


def _with_torch(act: Callable[[], object]) -> bool:
    """Act now if torch is there, else when it has been imported; say whether it was now."""
    if "torch" in sys.modules:
        act()
        return True

    def follow(_: ModuleType) -> None:
        loader = sys.modules.get(LOADER)
        if loader is not None and not hasattr(loader, "DataLoader"):
            return  # the program imports our loader, and that torch: it is not complete yet
        if follower in sys.meta_path:
            sys.meta_path.remove(follower)
            act()

    follower = Follower({"torch": follow, LOADER: follow})
    follower.stand()
    return False
