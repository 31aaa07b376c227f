"""The PyTorch DataLoader that does not freeze.

What is here is imported when it is first used: the command line's doctor must be there at once, and
on machines where torch is slow to come, or hangs.
"""

from __future__ import annotations

from . import _import_path

_import_path.leave_current_folder()  # before all other imports

import importlib  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from ._version import VERSION as __version__  # noqa: E402

if TYPE_CHECKING:
    from . import errors, policies
    from .data import per_worker
    from .integrations.install import install
    from .loader import DataLoader

__all__ = ["DataLoader", "__version__", "errors", "install", "per_worker", "policies"]

_HOMES = {
    "DataLoader": "loader",
    "errors": "",
    "install": "integrations.install",
    "per_worker": "data",
    "policies": "",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{home or name}", __name__)
    value = globals()[name] = getattr(module, name) if home else module
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
