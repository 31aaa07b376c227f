"""`antifreeze explain AF104`: the page of a rule, by code or name, or of a way to hang."""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import Any

FOUND, CANNOT = 0, 2  # exit codes


def add_to(verbs: Any) -> None:
    verb = verbs.add_parser(
        "explain",
        help="what a finding of `antifreeze check` or `attach` means, why, and what to do",
        epilog="exit code: 0 it was explained, 2 there is no such rule or way to hang",
    )
    verb.add_argument(
        "word",
        nargs="?",
        help="a code or a name: AF201, lock-held-at-fork; without one: all there are",
    )
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.word is None:
        _list()
        return FOUND
    pages = _pages(arguments.word)
    if not pages:
        _complain(arguments.word)
        return CANNOT
    text = "\n".join(pages)
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        print(text, end="")
    return FOUND


def _list() -> None:
    from ..doctor.attach.causes import all_causes
    from ..doctor.rules import all_rules

    for rule in all_rules():
        print(f"{rule.code}  {rule.name:34}  {rule.severity.value:10}  {rule.title}")
    for cause in all_causes():
        print(f"attach {cause.name:34}  {'hang':10}  {cause.title}")


def _pages(word: str) -> list[str]:
    """Give what a word means: a rule, a way to hang, or both, as for `waits-for-a-person`."""
    from ..doctor.attach import pages as hangs
    from ..doctor.attach.causes import all_causes
    from ..doctor.rules import find_rule
    from ..doctor.rules import rule_pages as rules

    rule = find_rule(word)
    found = [rules.page(rule)] if rule is not None else []
    return found + [hangs.page(e) for e in all_causes() if e.name == word.strip().lower()]


def _complain(word: str) -> None:
    from ..doctor.attach.causes import all_causes
    from ..doctor.rules import all_rules

    known = [name for each in all_rules() for name in (each.code.lower(), each.name)]
    known += [each.name for each in all_causes()]
    near = difflib.get_close_matches(word.strip().lower(), known, n=1)
    code = near and near[0].startswith("af") and near[0][2:].isdigit()
    meant = f"; did you mean {near[0].upper() if code else near[0]}?" if near else ";"
    words = f"there is no rule or way to hang {word!r}{meant} `antifreeze explain` lists them"
    print(f"antifreeze explain: {words}", file=sys.stderr)
