"""`antifreeze explain AF104`: the page of a rule, by code or name."""

from __future__ import annotations

import argparse
import sys
from typing import Any

FOUND, CANNOT = 0, 2  # exit codes


def add_to(verbs: Any) -> None:
    verb = verbs.add_parser(
        "explain",
        help="what a rule of `antifreeze check` means, why, and what to do instead",
        epilog="exit code: 0 it was explained, 2 there is no such rule",
    )
    verb.add_argument("rule", nargs="?", help="a code or a name: AF201; without one: all rules")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..doctor.rules import all_rules, find_rule
    from ..doctor.rules.pages import page

    if arguments.rule is None:
        for each in all_rules():
            print(f"{each.code}  {each.name:34}  {each.severity.value:10}  {each.title}")
        return FOUND
    rule = find_rule(arguments.rule)
    if rule is None:
        words = f"there is no rule {arguments.rule!r}; `antifreeze explain` lists them"
        print(f"antifreeze explain: {words}", file=sys.stderr)
        return CANNOT
    text = page(rule)
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        print(text)
    return FOUND
