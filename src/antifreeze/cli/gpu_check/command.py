"""The whole of `antifreeze platform --gpu`: every check in its own process, one report.

This process does not import torch: a driver that hangs must not keep the answer from coming.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._linux.clock import moment
from ..._reporting.untrusted_text import as_log_line, json_text, printable_lines
from ..._transport.own_frames import ABOVE_PACKAGE
from . import report
from .bounded_processes import Ending, run_together
from .ddp_verdict import judge, ranks_for
from .machine import Machine, platform_problem
from .one_check import DDP, MACHINE
from .outcomes import Outcome, failed

FINE, FAILED, CANNOT, INTERRUPTED = 0, 1, 2, 130  # exit codes; the last as shells have it
# Each takes some ten seconds, most of it imports and the start of a context. A machine that is
# busy may need several times that; one that hangs should be known after minutes, not hours.
BOUND_S = 120.0
LONGEST_SUMMARY = 60  # characters of an error's last line

Say = Callable[[str], None]
Command = Callable[[str, str, Path, Sequence[str]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Answers:
    """What came of the processes of one check: their answers, or why there is none."""

    data: Sequence[Mapping[str, Any]]
    problem: Outcome | None = None


def run(*, as_json: bool = False, device: str | None = None) -> int:
    """Check the accelerator, or a device that a developer names; print what came of it."""
    try:
        machine = look(device)
        if machine.problem:
            told = printable_lines(machine.problem)
            print(json_text({"problem": machine.problem}) if as_json else told)
            return CANNOT
        found = check_all(machine, _progress)
    except KeyboardInterrupt:
        return INTERRUPTED
    if as_json:
        print(report.as_json(found))
    else:
        report.show(found)
    return FINE if found.is_fine else FAILED


def look(device: str | None = None, bound_s: float = BOUND_S) -> Machine:
    """Find out what there is to check."""
    if problem := platform_problem():  # processes could not even be waited for
        return Machine(problem)
    answers = ask(MACHINE, device or "", bound_s=bound_s)
    if answers.problem is not None:
        told = f"{answers.problem.summary}\n{answers.problem.detail}".strip()
        return Machine(f"cannot look for an accelerator: {told}")
    return Machine(**answers.data[0])


def check_all(machine: Machine, say: Say, bound_s: float = BOUND_S) -> report.Report:
    """Run all checks, one after the other."""
    outcomes: dict[str, Outcome] = {}
    for number, name in enumerate(report.CHECK_COLUMNS, start=1):
        say(f"checking {name} ({number} of {len(report.CHECK_COLUMNS)}) ...")
        outcomes[name] = check(name, machine, bound_s)
        say(f"  {as_log_line(outcomes[name].summary)}")
    return report.Report(machine, moment().partition("T")[0], outcomes)


def check(name: str, machine: Machine, bound_s: float = BOUND_S) -> Outcome:
    """Run one check."""
    if name == DDP:
        return _check_ddp(machine, bound_s)
    answers = ask(name, machine.device_type, bound_s=bound_s)
    return answers.problem or Outcome.of_data(dict(answers.data[0]))


def _check_ddp(machine: Machine, bound_s: float) -> Outcome:
    ranks = ranks_for(machine.device_type, machine.devices)
    answers = ask(DDP, machine.device_type, ranks=ranks, bound_s=bound_s)
    return answers.problem or judge(answers.data)


def child_command(name: str, device: str, answer: Path, more: Sequence[str]) -> Sequence[str]:
    """Return how the process of a check is started; the current folder is not on its path."""
    module = f"{__package__}.one_check"
    return [sys.executable, "-P", "-m", module, name, device, str(answer), *more]


def ask(
    name: str,
    device: str,
    *,
    ranks: int = 1,
    bound_s: float = BOUND_S,
    command: Command = child_command,
) -> Answers:
    """Run the processes of one check, and return what they answer."""
    with tempfile.TemporaryDirectory(prefix="antifreeze-gpu-check-") as name_of_folder:
        folder = Path(name_of_folder)
        files = [folder / f"answer-{rank}.json" for rank in range(ranks)]
        commands = [
            command(name, device, file, ["--rank", str(rank), "--ranks", str(ranks)])
            for rank, file in enumerate(files)
        ]
        endings = run_together(commands, bound_s, folder, _environment())
        if problem := _problem(endings, bound_s):
            return Answers((), problem)
        if not all(file.exists() for file in files):
            return Answers((), failed("no answer", "\n".join(each.output for each in endings)))
        return Answers([json.loads(file.read_text()) for file in files])


def _environment() -> dict[str, str]:
    """Return the environment of a check: ours, and where this very package is found."""
    home = ABOVE_PACKAGE
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    others = {name: it for name, it in os.environ.items() if name != "ANTIFREEZE_RANDOMNESS"}
    return {**others, "PYTHONPATH": os.pathsep.join(paths)}


def _problem(endings: Sequence[Ending], bound_s: float) -> Outcome | None:
    """Return what kept processes from an answer. One that failed says more than one that waited
    for it."""
    for each in endings:
        if each.code is not None and each.code < 0:
            return failed(f"crashed: {_signal_name(-each.code)}", each.output)
        if each.code:
            lines = each.output.strip().splitlines() or [f"exit code {each.code}"]
            return failed(f"error: {lines[-1][:LONGEST_SUMMARY]}", each.output)
    for each in endings:
        if each.is_late:
            return failed(f"no answer in {bound_s:g} s", each.output)
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
