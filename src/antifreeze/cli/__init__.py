"""The `antifreeze` command: one file a verb."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from .._reporting.untrusted_text import as_log_line
from .._version import VERSION


class _Parser(argparse.ArgumentParser):
    """Refuses arguments in words that can be shown: `check *` makes names of files arguments."""

    def error(self, message: str) -> NoReturn:
        super().error(as_log_line(message))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; give the exit code."""
    from . import attach, check, explain, platform, run, scan

    parser = _Parser(
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
    arguments, unknown = parser.parse_known_args(ours, argparse.Namespace(rest=rest))
    if unknown:
        verb = verbs.choices.get(ours[0], parser)
        verb.error(_unrecognized(unknown, verb))
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


def _unrecognized(unknown: Sequence[str], verb: argparse.ArgumentParser) -> str:
    """Say which arguments a verb does not know, and which options look like them."""
    said = f"unrecognized arguments: {' '.join(unknown)}"
    names = [each.partition("=")[0] for each in unknown if each.startswith("-")]
    meant = [difflib.get_close_matches(each, verb._option_string_actions, 1) for each in names]
    like = [each for found in meant for each in found]
    return f"{said} (did you mean {', '.join(like)}?)" if like else said
