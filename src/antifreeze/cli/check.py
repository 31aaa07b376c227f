"""`antifreeze check`: what will freeze, crash, corrupt or crawl, before it runs. Nothing is run."""

from __future__ import annotations

import argparse
import dataclasses
import io
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from .._reporting.untrusted_text import as_log_line, printable, printable_lines

if TYPE_CHECKING:
    from ..doctor.check.check_result import Result
    from ..doctor.check.file_fixes import FixResult
    from ..doctor.check.files.file_discovery import WalkResult
    from ..doctor.check.files.text_encoding import Decoded
    from ..doctor.check.settings import Settings

NAMED_LINKS = 5  # of those that are left out
LONGEST_NAME = 200  # characters of each
NOTHING, FOUND, CANNOT, INTERRUPTED = 0, 1, 2, 130  # exit codes; the last as shells have it
STANDARD_INPUT = "-"
NAMELESS = "<stdin>"


def add_to(verbs: Any) -> None:
    verb = verbs.add_parser(
        "check",
        help="what will freeze, crash, give wrong data or crawl, from the source alone",
        description="Read Python files and notebooks, without running them or importing torch, and"
        " name what will go wrong with their data loading.",
        epilog="exit code: 0 nothing was found, 1 something was, 2 not all could be checked",
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
        "--force-exclude", action="store_true", help="leave them out also if they are named"
    )
    verb.add_argument(
        "--stdin-filename", metavar="PATH", help="with -: the file that standard input is of"
    )
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
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise  # nobody reads any more: the same for every verb
    except OSError as error:  # what was found cannot be written: a full disk
        _complain(str(error))
        return CANNOT
    except Exception:  # ours, and not of one file: it must not look like a finding
        print(printable_lines(traceback.format_exc()), end="", file=sys.stderr)
        _complain("this is a bug of antifreeze: please report it")
        return CANNOT


def _run(arguments: argparse.Namespace) -> int:
    from ..doctor.check.check_result import Failure
    from ..doctor.check.checker import check
    from ..doctor.check.files.file_discovery import (
        folders_without_files,
        is_left_out,
        refused_paths,
        walk,
    )

    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files need not be UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    refused: dict[Path, str] = {}
    try:
        settings = _settings(arguments)
        given = _standard_input(arguments)
        if given:
            files = [p for p in given if not (settings.force_exclude and is_left_out(p, settings))]
        else:
            paths = [Path(each) for each in arguments.paths]
            refused = refused_paths(paths)
            paths = [each for each in paths if each not in refused]
            settings = dataclasses.replace(settings, named=tuple(paths))
            walked = walk(paths, settings)
            files = walked.files
            _complain_of_walk(walked)
            for folder in folders_without_files(paths, files):
                _complain(
                    f"no Python files in {folder} (what git ignores or `exclude` names is left out)"
                )
    except (ValueError, OSError) as error:
        _complain(str(error))
        return CANNOT
    result = check(files, settings, {path: each.text for path, each in given.items()})
    unseen = tuple(Failure(path, why, ours=False) for path, why in refused.items())
    result = dataclasses.replace(result, failures=(*unseen, *result.failures))
    if arguments.fix or arguments.diff:
        return _mend(arguments, result, files, settings, given)
    _tell(result, arguments.format, sys.stdout)
    return _exit_code(result)


def _complain_of_walk(walked: WalkResult) -> None:
    """Name what was left out of folders, or was not."""
    if walked.led_out:
        many = len(walked.led_out)
        links = "link leads" if many == 1 else "links lead"
        names = [printable(str(each), LONGEST_NAME) for each in walked.led_out[:NAMED_LINKS]]
        more = ", ..." if many > NAMED_LINKS else ""
        _complain(f"left out: {many:,} {links} out of the project ({', '.join(names)}{more})")
    if not walked.is_whole:
        _complain("too many patterns in .gitignore files: not all of them were heeded")


def _exit_code(result: Result) -> int:
    if result.failures:
        return CANNOT
    return FOUND if result.found else NOTHING


def _complain(words: str) -> None:
    print(as_log_line(f"antifreeze check: {words}"), file=sys.stderr)


def _standard_input(arguments: argparse.Namespace) -> dict[Path, Decoded]:
    """Give what stands on standard input, by the file it is of; nothing if nobody asks."""
    from ..doctor.check.files.source_reader import MOST_NOTEBOOK_BYTES, too_large
    from ..doctor.check.files.text_encoding import decode

    if arguments.paths != [STANDARD_INPUT]:
        if arguments.stdin_filename is not None:
            raise ValueError("--stdin-filename is for - alone")
        return {}
    data = sys.stdin.buffer.read(MOST_NOTEBOOK_BYTES + 1)
    if len(data) > MOST_NOTEBOOK_BYTES:
        raise ValueError(f"{NAMELESS}: {too_large(MOST_NOTEBOOK_BYTES)}")
    return {Path(arguments.stdin_filename or NAMELESS): decode(data)}


def _mend(
    arguments: argparse.Namespace,
    result: Result,
    files: list[Path],
    settings: Settings,
    given: dict[Path, Decoded],
) -> int:
    """Mend, or show what would be; then tell what is left."""
    from ..doctor.check.file_fixes import apply_fixes
    from ..doctor.check.libcst_fixes import CannotFix

    try:
        write = arguments.fix and not arguments.diff and not given
        done = apply_fixes(result, files, settings, given, write=write)
    except CannotFix as error:
        _complain(str(error))
        return CANNOT
    _say_what_was_done(done, diff=arguments.diff)
    if arguments.diff:
        for failure in result.failures:
            _complain(str(failure))
        if result.failures or done.refused:
            return CANNOT
        return FOUND if done.after else NOTHING
    for path, decoded in given.items():  # the mended text is the output; all else goes beside it
        sys.stdout.flush()
        sys.stdout.buffer.write(decoded.encoded(done.after.get(path, decoded.text)))
        sys.stdout.buffer.flush()
    _tell(done.result, arguments.format, sys.stderr if given else sys.stdout)
    return CANNOT if done.refused else _exit_code(done.result)


def _say_what_was_done(done: FixResult, *, diff: bool) -> None:
    from ..doctor.check.output.unified_diff import as_diff

    for path in done.notebooks:
        _complain(f"{path}: notebooks are not changed; what could be fixed is left to you")
    for path, why in done.refused.items():
        _complain(f"{path}: {why}")
    if diff:
        for path, before in done.before.items():
            print(printable_lines(as_diff(str(path), before, done.after[path])), end="")
        if done.result.found and not done.before:
            _complain(f"nothing that --fix can mend ({len(done.result.found):,} found)")
    elif done.applied:
        files = f"{len(done.after)} file{'s' * (len(done.after) != 1)}"
        _complain(f"mended {done.applied} in {files}")


def _tell(result: Result, how: str, out: TextIO) -> None:
    match how:
        case "json":
            from ..doctor.check.output.json_output import as_json

            print(as_json(result), file=out)
        case "sarif":
            from ..doctor.check.output.sarif import as_sarif

            print(as_sarif(result), file=out)
        case "github":
            from ..doctor.check.output.github_annotations import as_github

            print(as_github(result), end="", file=out)
        case _:
            from ..doctor.check.output.terminal_text import print_result

            print_result(result, out)


def _settings(arguments: argparse.Namespace) -> Settings:
    """Give what pyproject.toml says, and what the command line says instead or in addition."""
    from ..doctor.check.pyproject_settings import read_settings
    from ..doctor.findings import Confidence

    first = Path(arguments.stdin_filename or arguments.paths[0])
    settings = read_settings(first)
    said: dict[str, Any] = {}
    for name in ("select", "extend_select", "ignore", "exclude"):
        words = [w.strip() for each in getattr(arguments, name) or () for w in each.split(",")]
        if words and name == "select":
            said[name] = tuple(words)
        elif words:
            said[name] = (*getattr(settings, name), *words)
    if arguments.confidence:
        said["confidence"] = Confidence(arguments.confidence)
    if arguments.force_exclude:
        said["force_exclude"] = True
    if arguments.strict:
        said["strict"] = True
    if arguments.jobs is not None:
        said["jobs"] = arguments.jobs
    return dataclasses.replace(settings, **said)
