"""Ray Train: `prepare_data_loader` builds a loader anew, of a few of torch's options."""

from __future__ import annotations

from types import ModuleType

from .._engine.defaults import keeping_options
from ..loader import present_defaults
from .library_adapters import replace_held

FUNCTION = "prepare_data_loader"
MODULES = ("ray.train.v2.torch.train_loop_utils", "ray.train.torch.train_loop_utils")


def adapt(module: ModuleType) -> None:
    """Have `prepare_data_loader` keep our options, by whichever name of Ray's it is called. Raises
    if there is none."""
    replace_held(module, FUNCTION, keeping_options(present_defaults(), getattr(module, FUNCTION)))
