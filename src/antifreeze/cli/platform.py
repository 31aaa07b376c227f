"""`antifreeze platform`: what this machine has of what we need, and what that means."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from typing import Any

from .._core.fork_or_clean import Wish
from .._engine import arguments
from .._linux import platform_support
from .._reporting.ranks import ranks
from .._version import VERSION
from . import tested_versions


def add_to(verbs: Any) -> None:
    verb = verbs.add_parser("platform", help="what this machine has of what antifreeze needs")
    verb.add_argument("--json", action="store_true", help="as JSON")
    verb.add_argument(
        "--gpu",
        action="store_true",
        help="check that the loader works with this machine's accelerator: a minute or two; exit"
        " code 0 if it does, 1 if a check failed, 2 if there is nothing to check",
    )
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.gpu:
        from .gpu_check import command

        return command.run(as_json=arguments.json)
    facts = gather()
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        show(facts)
    return 0 if facts["workers"] == "antifreeze" and not _is_refused() else 1


def gather() -> dict[str, Any]:
    import torch

    from .. import _torch_internals
    from .._processes.starting.start_method_messages import default_start_method

    lacking = list(platform_support.missing())
    if _torch_internals.too_old():
        lacking.append(f"torch {'.'.join(map(str, _torch_internals.OLDEST))} or newer")
    lacking += _torch_internals.missing()
    version, python = str(torch.__version__), tested_versions.this_python()
    run = tested_versions.find(tested_versions.read(), version, python)
    off = platform_support.switched_off()
    here = ranks()
    return {
        "antifreeze": VERSION,
        "torch": version,
        "python": python,
        "tested": None if run is None else asdict(run),
        "system": f"{platform.system()} {platform.release()}",
        "cores allowed": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "rank": f"{here.rank} of {here.world_size} ({here.local_world_size} on this machine)",
        "missing": lacking,
        **{
            f"missing for {purpose.value}": list(names)
            for purpose in _torch_internals.Purpose
            if purpose is not _torch_internals.Purpose.EVERY_LOADER
            and (names := _torch_internals.missing(purpose))
        },
        "randomness": _randomness(),
        "workers come from": _worker_source(is_ours=not (lacking or off)),
        "start method": f"{default_start_method()}, the default of multiprocessing",
        "switched off": f"yes, by {platform_support.SWITCH}" if off else "no",
        "workers": "torch" if lacking or off else "antifreeze",
    }


def _randomness() -> str:
    """Return whose draws samples get where nobody says otherwise."""
    if _is_refused():
        return f'an error: {arguments.RANDOMNESS} is neither "sample" nor "torch"'
    said = arguments.said_of_randomness()
    return f"{said}, by {arguments.RANDOMNESS}" if said else arguments.SAMPLE


def _worker_source(*, is_ours: bool) -> str:
    """Return where workers come from in a program that says nothing of how processes start.
    `is_ours`: not torch's own loader has them."""
    from .._processes.starting import start_method_messages as messages

    by_torch = f"processes that torch's own loader starts by {messages.default_start_method()}"
    if not is_ours:
        return by_torch
    from .._processes.starting import start_method

    as_torch = arguments.said_of_randomness() == arguments.TORCH
    wish = start_method.wish_of(None, as_torch=as_torch)
    if as_torch and wish is Wish.CLEAN:  # each is started as torch starts its own
        return messages.of_context(start_method.torch_context(None))
    return f"{messages.of_programs(wish)}; with {platform_support.SWITCH}=off: {by_torch}"


def _is_refused() -> bool:
    """Whether the environment says of random draws what no loader takes."""
    return arguments.said_of_randomness() not in ("", arguments.SAMPLE, arguments.TORCH)


def show(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, value in facts.items():
        if name == "tested":
            runs = tested_versions.read()
            value = tested_versions.in_words(runs, facts["torch"], facts["python"])
        elif isinstance(value, list):
            value = ", ".join(value) or "nothing"
        if name != "workers":
            table.add_row(name, str(value))
    console = Console(file=sys.stdout)
    console.print(table)
    if _is_refused():
        console.print(
            "[yellow]Every DataLoader that is not told otherwise raises an error.[/yellow]"
        )
    elif facts["workers"] == "antifreeze":
        console.print("[green]DataLoader runs on antifreeze's workers here.[/green]")
    else:
        console.print("[yellow]DataLoader works as torch's here.[/yellow]")
