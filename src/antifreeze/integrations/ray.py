"""Ray Train: `prepare_data_loader` builds a loader anew, of a few of torch's options."""

from __future__ import annotations

import sys
from types import ModuleType

from .._defaults import keeping_options
from ..loader import present_defaults

FUNCTION = "prepare_data_loader"
MODULES = ("ray.train.v2.torch.train_loop_utils", "ray.train.torch.train_loop_utils")


def adapt(module: ModuleType) -> None:
    """Have `prepare_data_loader` keep our options, by whichever name of Ray's it is called. Raises
    if there is none."""
    old = getattr(module, FUNCTION)
    new = keeping_options(present_defaults(), old)
    for name, holder in list(sys.modules.items()):
        if name.partition(".")[0] == "ray" and vars(holder).get(FUNCTION) is old:
            setattr(holder, FUNCTION, new)
    setattr(module, FUNCTION, new)
