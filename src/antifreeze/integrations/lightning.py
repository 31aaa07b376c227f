"""Lightning, under `antifreeze run`: it starts the other ranks of a machine by a command line.

It makes it of the script and its arguments, `python train.py ...`; they should run as this one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from .library_adapters import replace_held, when_there

FUNCTIONS = ("_basic_subprocess_cmd", "_hydra_subprocess_cmd")
MODULES = tuple(
    f"{package}.strategies.launchers.subprocess_script"
    for package in ("lightning.fabric", "lightning_fabric")
)


def launch_with(words: Sequence[str]) -> None:
    """Put words between the interpreter and the script of other ranks."""

    def adapt(module: ModuleType) -> None:
        for name in FUNCTIONS:
            replace_held(module, name, _wrapped(getattr(module, name), words))

    for name in MODULES:
        when_there(name, adapt)


def _wrapped(behind: Any, words: Sequence[str]) -> Any:
    @functools.wraps(behind)
    def command(*given: Any, **named: Any) -> Any:
        made = behind(*given, **named)
        if isinstance(made, tuple):  # and where to run it
            return _longer(made[0], words), *made[1:]
        return _longer(made, words)

    return command


def _longer(command: Sequence[str], words: Sequence[str]) -> list[str]:
    if command[0] != sys.executable:
        return list(command)
    return [command[0], *words, *command[1:]]
