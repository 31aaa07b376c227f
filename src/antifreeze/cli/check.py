"""`antifreeze check`: what will freeze, crash, corrupt or crawl, before it runs. Nothing is run."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from ..doctor.check.found import Result
    from ..doctor.check.mending import Mended
    from ..doctor.check.settings import Settings

NOTHING, FOUND, CANNOT = 0, 1, 2  # exit codes
STANDARD_INPUT = "-"


def add_to(verbs: Any) -> None:
    verb = verbs.add_parser(
        "check",
        help="what will freeze, crash, give wrong data or crawl, from the source alone",
        description="Read Python files and notebooks, without running them or importing torch, and"
        " name what will go wrong with their data loading.",
        epilog="exit code: 0 nothing was found, 1 something was, 2 it could not be checked",
    )
    verb.add_argument(
        "paths", nargs="*", default=["."], metavar="PATH", help="files, folders, or - (default: .)"
    )
    verb.add_argument("--select", action="append", metavar="RULES", help="only these: AF2,AF301")
    verb.add_argument(
        "--extend-select", action="append", metavar="RULES", help="these too, such as AF9"
    )
    verb.add_argument("--ignore", action="append", metavar="RULES", help="not these")
    verb.add_argument("--exclude", action="append", metavar="PATTERN", help="not these files")
    verb.add_argument(
        "--confidence",
        choices=("certain", "likely", "possible"),
        help="the least sure that is shown (default: likely)",
    )
    verb.add_argument(
        "--format",
        choices=("text", "json", "sarif", "github"),
        default="text",
        help="for people, as JSON, SARIF 2.1.0, or annotations of a GitHub workflow",
    )
    verb.add_argument("--fix", action="store_true", help="mend what can be mended safely")
    verb.add_argument("--diff", action="store_true", help="show what --fix would change, instead")
    verb.add_argument("--strict", action="store_true", help="also report allows without effect")
    verb.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..doctor.check.running import check
    from ..doctor.check.walking import find_files

    try:
        settings = _settings(arguments)
        texts: dict[Path, str] = {}
        if arguments.paths == [STANDARD_INPUT]:
            texts[Path("<stdin>")] = sys.stdin.read()
            files = list(texts)
        else:
            files = list(find_files(map(Path, arguments.paths), settings))
    except (ValueError, OSError) as error:
        print(f"antifreeze check: {error}", file=sys.stderr)
        return CANNOT
    result = check(files, settings, texts)
    out = sys.stdout
    if arguments.fix or arguments.diff:
        from ..doctor.check.fixes import CannotFix
        from ..doctor.check.mending import mend

        try:
            write = arguments.fix and not arguments.diff and not texts
            done = mend(result, files, settings, texts, write=write)
        except (CannotFix, OSError) as error:
            print(f"antifreeze check: {error}", file=sys.stderr)
            return CANNOT
        _say_what_was_done(done, diff=arguments.diff)
        if arguments.diff:
            return FOUND if result.found else NOTHING
        result = done.result
        for path, text in texts.items():  # the mended text is the output; all else goes beside it
            print(done.after.get(path, text), end="")
            out = sys.stderr
    _tell(result, arguments.format, out)
    if result.failures:
        return CANNOT
    return FOUND if result.found else NOTHING


def _say_what_was_done(done: Mended, *, diff: bool) -> None:
    from ..doctor.check.fixes import as_diff

    for path in done.notebooks:
        words = "notebooks are not changed; what could be fixed is left to you"
        print(f"antifreeze check: {path}: {words}", file=sys.stderr)
    if diff:
        for path, before in done.before.items():
            print(as_diff(str(path), before, done.after[path]), end="")
    elif done.applied:
        files = f"{len(done.after)} file{'s' * (len(done.after) != 1)}"
        print(f"antifreeze check: mended {done.applied} in {files}", file=sys.stderr)


def _tell(result: Result, how: str, out: TextIO) -> None:
    match how:
        case "json":
            from ..doctor.check.as_json import as_json

            print(as_json(result), file=out)
        case "sarif":
            from ..doctor.check.as_sarif import as_sarif

            print(as_sarif(result), file=out)
        case "github":
            from ..doctor.check.as_github import as_github

            print(as_github(result), end="", file=out)
        case _:
            from ..doctor.check.telling import show

            show(result, out)


def _settings(arguments: argparse.Namespace) -> Settings:
    """Give what pyproject.toml says, and what the command line says instead or in addition."""
    from ..doctor.check.config import read_settings
    from ..doctor.check.settings import check_words
    from ..doctor.findings import Confidence

    first = Path(arguments.paths[0])
    settings = read_settings(first if first.is_dir() else first.parent)
    said: dict[str, Any] = {}
    for name in ("select", "extend_select", "ignore", "exclude"):
        words = [w.strip() for each in getattr(arguments, name) or () for w in each.split(",")]
        if name != "exclude":
            check_words(words)
        if words and name == "select":
            said[name] = tuple(words)
        elif words:
            said[name] = (*getattr(settings, name), *words)
    if arguments.confidence:
        said["confidence"] = Confidence(arguments.confidence)
    if arguments.strict:
        said["strict"] = True
    if arguments.jobs is not None:
        said["jobs"] = arguments.jobs
    return dataclasses.replace(settings, **said)
