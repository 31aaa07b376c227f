"""`antifreeze.install()`: every torch DataLoader of the program is made by antifreeze."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Unpack

from .._engine import defaults
from .._linux import platform_support
from .._reporting import process_summaries
from .._reporting.log import logger
from ..loader import present_defaults
from . import accelerate, library_adapters, ray_train, torch_class_takeover
from .multiprocessing_children import Carried, ReportTo, carry


def install(**options: Unpack[defaults.Options]) -> None:
    """Have every torch DataLoader of this program made by antifreeze, its libraries' included.

    Takes the options that torch's loader does not have (see `DataLoader`); they hold for all
    loaders that do not say otherwise, and only those named are changed by a further call. Raises
    TypeError or ValueError for what no loader would take. Does nothing else under ANTIFREEZE=off.
    """
    present = present_defaults()
    new = defaults.check(options, present)
    if platform_support.switched_off():
        return
    present.update(new)
    carry(new)
    torch_class_takeover.take_over()
    library_adapters.when_there("accelerate.data_loader", accelerate.adapt)
    for name in ray_train.MODULES:
        library_adapters.when_there(name, ray_train.adapt)
    accelerate.keep_up()


def arrive(sent: Mapping[str, bytes], report_to: ReportTo | None = None) -> Carried:
    """Install in a process that multiprocessing has just started (`multiprocessing_children`).

    Never raises: the process would be dead before it began.
    """
    install()
    for name in defaults.NAMES:  # one by one; a quarantine after the policy it needs
        if name not in sent:
            continue
        try:
            given: defaults.Options = {name: pickle.loads(sent[name])}  # type: ignore[misc]
            install(**given)
        except Exception as error:
            logger.warning(
                "antifreeze: this process has no %s of its parent's install(): its loaders do"
                " without (%s: %s).",
                name,
                type(error).__name__,
                error,
            )
    if report_to is not None:
        process_summaries.leave_in(process_summaries.Place(*report_to))
    return carry({}, report_to)
