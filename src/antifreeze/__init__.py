"""The PyTorch DataLoader that does not freeze."""

from . import errors, policies
from ._version import VERSION as __version__
from .data import per_worker
from .integrations.install import install
from .loader import DataLoader

__all__ = ["DataLoader", "__version__", "errors", "install", "per_worker", "policies"]
