"""The PyTorch DataLoader that does not freeze."""

from . import errors
from ._version import VERSION as __version__
from .loader import DataLoader

__all__ = ["DataLoader", "__version__", "errors"]
