"""`antifreeze attach PID`: why a training process hangs right now. It is looked at, not touched."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .._linux.bounded_reads import in_time
from .._linux.clock import pause, time_of_day
from .._reporting.redaction import redacts
from .._reporting.untrusted_text import as_log_line, json_text, styled_line

if TYPE_CHECKING:
    from rich.console import Console

    from ..doctor.attach.diagnose import Answer
    from ..doctor.attach.facts import Case
    from ..doctor.attach.gather.collect import Manner
    from ..doctor.findings import Finding

NOTHING, FOUND, CANNOT, STILL = 0, 1, 2, 3  # exit codes
AGAIN_S = 5.0  # between looks of --watch
BOUND_S = 120.0  # for one look, or for the answer: 2 s are usual, some 15 if it must be watched
MOST_CHARACTERS = 500  # of an error that quotes what others wrote
MOST_LINES = 100  # of a list that is shown
T = TypeVar("T")
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
    from ..doctor.attach.gather.collect import CannotLook

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
    except BrokenPipeError:
        raise  # nobody reads any more: the same for every verb
    except Exception as error:  # ours: it must not look like an answer
        return _refuse(f"{_bug(error)}. This is a bug of antifreeze: please report it")


def _refuse(words: str) -> int:
    print(as_log_line(f"antifreeze attach: {words}"), file=sys.stderr)
    return CANNOT


def _bug(error: Exception) -> str:
    """Return an exception of ours with the place that it comes from, in one line."""
    places = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(places[-1].filename).name}:{places[-1].lineno})" if places else ""
    return f"{type(error).__name__}{place}: {error}"[:MOST_CHARACTERS]


def _in_time(work: Callable[[], T], what: str) -> T:
    """Return what a call returns. If it takes too long the command ends: whatever it waits for may
    never answer, and nothing could make it leave."""
    found = in_time(lambda: (work(),), None, BOUND_S)
    if found is None:
        _refuse(f"{what} took longer than {BOUND_S:g} s, and was given up")
        os._exit(CANNOT)
    return found[0]


def _see(arguments: argparse.Namespace, manner: Manner | None = None) -> Case:
    """Look, or read what was seen."""
    from ..doctor.attach.case_redaction import without_names, without_secrets
    from ..doctor.attach.gather.collect import look_at

    if arguments.case is not None:
        return _case_of(arguments.case)
    pid = arguments.pid
    with _patience(pid):
        case = without_secrets(_in_time(lambda: look_at(pid, manner), f"to look at process {pid}"))
    if redacts():
        case = without_names(case)
    return case


def _is_saved(path: Path, case: Case) -> bool:
    """Write down what was seen; return whether that could be done, and say if not."""
    from ..doctor.attach.case_files import write_case

    try:
        write_case(path, case)
    except OSError as error:
        _refuse(f"{path} cannot be written: {error.strerror or error}")
        return False
    return True


def _case_of(path: Path) -> Case:
    """Read what was seen elsewhere. Whoever wrote it, nothing of it is trusted."""
    from ..doctor.attach.case_files import read_case
    from ..doctor.attach.case_redaction import without_secrets
    from ..doctor.attach.gather.collect import CannotLook

    try:
        return without_secrets(read_case(path))
    except OSError as error:
        raise CannotLook(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise CannotLook(f"{path} is no case: {str(error)[:MOST_CHARACTERS]}") from None


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
    from ..doctor.attach.gather.collect import CannotLook

    if not (answers := _in_time(lambda: diagnose(case), "to name the cause")):
        raise CannotLook(f"no main process was found that {case.asked} belongs to")
    return answers


def _tell(case: Case, arguments: argparse.Namespace) -> int:
    answers = _answers(case)
    if arguments.json:
        print(json_text(_plain(case, answers), 2))
    else:
        show(case, answers)
    if arguments.save is not None:  # the answer is told in any case
        if not _is_saved(arguments.save, case):
            return CANNOT
        if not arguments.json:
            said = f"antifreeze attach: written to {arguments.save}"
            print(as_log_line(said), file=sys.stderr)
    if any(each.stuck for each in answers):
        return FOUND
    return STILL if any(each.still for each in answers) else NOTHING


def _watch(arguments: argparse.Namespace) -> int:
    """Look again and again; say something whenever the answer is another one."""
    from ..doctor.attach.gather.collect import Manner

    said, manner = None, Manner()
    while True:  # until Ctrl-C, or the program ends
        case = _see(arguments, manner)
        answers = _answers(case)
        if arguments.save is not None and not _is_saved(arguments.save, case):
            return CANNOT
        if arguments.json:
            print(json_text(_plain(case, answers)), flush=True)
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

    out = console or Console(highlight=False, soft_wrap=False, markup=False, emoji=False)
    for answer in answers:
        rank = f", rank {answer.rank}" if answer.ranks > 1 else ""
        out.print(styled_line((f"process {answer.pid}{rank}", "dim")))
        if not answer.findings:
            colour = "green" if answer.sentence.startswith("nothing is stuck") else "yellow"
            out.print(styled_line((f"{_capital(answer.sentence)}.", f"bold {colour}")))
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
    out.print(styled_line((f"{_capital(found.sentence)}.", f"bold {colour}")))
    if not found.harmless:
        more = f" (antifreeze explain {found.rule})"
        out.print(styled_line((found.confidence.value, colour), (more, "dim")))
    _show_list(out, "evidence", found.evidence)
    _show_list(out, "to get out now", found.get_out, commands=True)
    _show_list(out, "to prevent it", found.prevent)


def _show_list(out: Console, title: str, lines: tuple[str, ...], *, commands: bool = False) -> None:
    from rich.padding import Padding

    if lines:
        out.print(styled_line("  ", (title, "dim")))
    for line in lines[:MOST_LINES]:
        command, gap, remark = line.partition("    ")
        if commands and gap:  # to be copied: on a line of its own, and whole
            out.print(styled_line("    ", (command, "bold")), soft_wrap=True)
            out.print(Padding(styled_line(remark), (0, 0, 0, 6), expand=False))
        else:
            out.print(Padding(styled_line(line), (0, 0, 0, 4), expand=False))
    if len(lines) > MOST_LINES:
        out.print(f"    and {len(lines) - MOST_LINES} more: --json has them")


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
