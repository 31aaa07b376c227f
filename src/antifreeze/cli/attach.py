"""`antifreeze attach PID`: why a training process hangs right now. It is looked at, not touched."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._clock import pause, time_of_day
from .._redaction import redacts

if TYPE_CHECKING:
    from rich.console import Console

    from ..doctor.attach.diagnose import Answer
    from ..doctor.attach.facts import Case
    from ..doctor.attach.looking import Manner
    from ..doctor.findings import Finding

NOTHING, FOUND, CANNOT, STILL = 0, 1, 2, 3  # exit codes
AGAIN_S = 5.0  # between looks of --watch
_COLOURS = {"certain": "red", "likely": "yellow", "possible": "cyan"}


def add_to(verbs: Any) -> None:
    verb = verbs.add_parser(
        "attach",
        help="why a training process hangs right now (torch's loader or ours)",
        description="Look at a running Python program from outside, twice, and name what it hangs"
        " in. Nothing in it is changed; py-spy stops each of its processes for some milliseconds.",
        epilog="exit code: 0 nothing is stuck, 1 something is, 2 it could not be looked at, 3"
        " nobody has moved, and it is not known why",
    )
    verb.add_argument(
        "pid", type=int, nargs="?", help="the program, one of its workers, or its launcher"
    )
    verb.add_argument("--json", action="store_true", help="the answer as JSON")
    verb.add_argument(
        "--watch",
        type=float,
        nargs="?",
        const=AGAIN_S,
        metavar="SECONDS",
        help=f"look again every so often (default {AGAIN_S:g}) until Ctrl-C",
    )
    verb.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="write what was seen: no data, no secrets (ANTIFREEZE_REDACT=1: no names of files)",
    )
    verb.add_argument(
        "--case", type=Path, metavar="FILE", help="read what was seen elsewhere, instead of a PID"
    )
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..doctor.attach.looking import CannotLook

    if (arguments.pid is None) == (arguments.case is None):
        return _refuse("say which process: antifreeze attach PID (or --case FILE)")
    if arguments.case is not None and (arguments.watch is not None or arguments.save is not None):
        return _refuse("--case reads what was seen: there is nothing to watch or to save")
    if arguments.watch is not None and arguments.watch <= 0:
        return _refuse("--watch takes seconds, more than 0")
    try:
        if arguments.watch is not None:
            return _watch(arguments)
        return _tell(_see(arguments), arguments)
    except CannotLook as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return 130


def _refuse(words: str) -> int:
    print(f"antifreeze attach: {words}", file=sys.stderr)
    return CANNOT


def _see(arguments: argparse.Namespace, manner: Manner | None = None) -> Case:
    """Look, or read what was seen."""
    from ..doctor.attach.facts import Case
    from ..doctor.attach.looking import CannotLook, look_at
    from ..doctor.attach.redacting import without_names

    if arguments.case is None:
        with _patience(arguments.pid):
            case = look_at(arguments.pid, manner)
        if redacts():
            case = without_names(case)
        if arguments.save is not None:
            try:
                arguments.save.write_text(case.to_json() + "\n")
            except OSError as error:
                raise CannotLook(f"{arguments.save} cannot be written: {error.strerror}") from None
        return case
    try:
        return Case.from_json(arguments.case.read_text())
    except OSError as error:
        raise CannotLook(f"{arguments.case} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CannotLook(f"{arguments.case} is no case: {error}") from None


@contextlib.contextmanager
def _patience(pid: int) -> Iterator[None]:
    """Say that it is being looked at, to somebody who sits there."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"looking at process {pid}, twice ..."):
        yield


def _answers(case: Case) -> list[Answer]:
    from ..doctor.attach.diagnose import diagnose
    from ..doctor.attach.looking import CannotLook

    if not (answers := diagnose(case)):
        raise CannotLook(f"no main process was found that {case.asked} belongs to")
    return answers


def _tell(case: Case, arguments: argparse.Namespace) -> int:
    answers = _answers(case)
    if arguments.json:
        print(json.dumps(_plain(case, answers), indent=2))
    else:
        show(case, answers)
        if arguments.save is not None:
            print(f"antifreeze attach: written to {arguments.save}", file=sys.stderr)
    if any(each.stuck for each in answers):
        return FOUND
    return STILL if any(each.still for each in answers) else NOTHING


def _watch(arguments: argparse.Namespace) -> int:
    """Look again and again; say something whenever the answer is another one."""
    from ..doctor.attach.looking import Manner

    said, manner = None, Manner()
    while True:  # until Ctrl-C, or the program ends
        case = _see(arguments, manner)
        answers = _answers(case)
        if arguments.json:
            print(json.dumps(_plain(case, answers)), flush=True)
        elif (now := [(each.pid, each.sentence) for each in answers]) != said:
            print(f"== {time_of_day()}", flush=True)
            show(case, answers)
            said = now
        pause(arguments.watch)


def _plain(case: Case, answers: list[Answer]) -> dict[str, Any]:
    return {
        "asked": case.asked,
        "stuck": any(each.stuck for each in answers),
        "still": any(each.still for each in answers),
        "unseen": list(case.unseen),
        "programs": [
            {
                "pid": each.pid,
                "rank": each.rank,
                "sentence": each.sentence,
                "findings": [_plain_finding(found) for found in each.findings],
                "processes": list(each.facts),
                "loader_says": list(each.told),
                "broken": list(each.broken),
            }
            for each in answers
        ],
    }


def _plain_finding(found: Finding) -> dict[str, Any]:
    return dataclasses.asdict(found) | {"confidence": found.confidence.value}


# ---- for people ----------------------------------------------------------------------------------


def show(case: Case, answers: list[Answer], console: Console | None = None) -> None:
    """Print the answer: the sentence first, then what it rests on and what to do."""
    from rich.console import Console

    out = console or Console(highlight=False, soft_wrap=False)
    for answer in answers:
        rank = f", rank {answer.rank}" if answer.ranks > 1 else ""
        out.print(f"[dim]process {answer.pid}{rank}[/dim]")
        if not answer.findings:
            colour = "green" if answer.sentence.startswith("nothing is stuck") else "yellow"
            out.print(f"[bold {colour}]{_safe(_capital(answer.sentence))}.[/]")
        for place, found in enumerate(answer.findings):
            if place:
                out.print()
            _show_finding(out, found)
        _show_list(out, "who does what", answer.facts)
        _show_list(out, "antifreeze's loader in it says", answer.told)
        _show_list(out, "not looked for, by a mistake of antifreeze's own", answer.broken)
    _show_list(out, "not seen", case.unseen)


def _show_finding(out: Console, found: Finding) -> None:
    colour = "green" if found.harmless else _COLOURS[found.confidence.value]
    out.print(f"[bold {colour}]{_safe(_capital(found.sentence))}.[/]")
    if not found.harmless:
        out.print(
            f"[{colour}]{found.confidence.value}[/] [dim](antifreeze explain {found.rule})[/dim]"
        )
    _show_list(out, "evidence", found.evidence)
    _show_list(out, "to get out now", found.get_out, commands=True)
    _show_list(out, "to prevent it", found.prevent)


def _show_list(out: Console, title: str, lines: tuple[str, ...], *, commands: bool = False) -> None:
    from rich.padding import Padding

    if lines:
        out.print(f"  [dim]{title}[/dim]")
    for line in lines:
        command, gap, remark = line.partition("    ")
        if commands and gap:  # to be copied: on a line of its own, and whole
            out.print(f"    [bold]{_safe(command)}[/]", soft_wrap=True)
            out.print(Padding(_safe(remark), (0, 0, 0, 6), expand=False))
        else:
            out.print(Padding(_safe(line), (0, 0, 0, 4), expand=False))


def _safe(text: str) -> str:
    """Give text of another program as it can be shown: nothing in it means anything to a terminal,
    or to who paints."""
    from rich.markup import escape

    return escape("".join(each if each.isprintable() else "?" for each in text))


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
