"""The `antifreeze` command: one file a verb."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .._version import VERSION


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; give the exit code."""
    from . import attach, check, explain, platform, run, scan

    parser = argparse.ArgumentParser(
        prog="antifreeze",
        description="The PyTorch DataLoader that does not freeze, and tells you why yours did.",
    )
    parser.add_argument("--version", action="version", version=f"antifreeze {VERSION}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    run.add_to(verbs)
    attach.add_to(verbs)
    check.add_to(verbs)
    explain.add_to(verbs)
    scan.add_to(verbs)
    platform.add_to(verbs)
    ours, rest = run.set_apart(sys.argv[1:] if argv is None else argv)
    arguments = parser.parse_args(ours, argparse.Namespace(rest=rest))
    if not hasattr(arguments, "run"):
        parser.print_help()
        return 2
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, e.g. `antifreeze ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
