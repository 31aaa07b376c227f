"""How the outcomes are shown: a table, a row of Markdown, JSON, and lines of progress."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..._reporting.untrusted_text import as_log_line, json_text, printable
from .machine import Machine
from .outcomes import Outcome, Verdict

# The part of docs/compatibility.md that rows of users go to.
SECTION = "Accelerators, reported by users"
CHECK_COLUMNS = ("pinning", "copies", "context", "in workers", "DDP", "throughput")
COLUMNS = ("accelerator", "torch", "Python", "antifreeze", "date", *CHECK_COLUMNS)
CELL_LENGTH = 60  # characters; more makes a table that nobody can read
DETAIL_LINES = 12  # of what a check that failed has written; the end has the error
STYLES = {Verdict.OK: "green", Verdict.SKIPPED: "yellow", Verdict.FAILED: "bold red"}


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found on one machine."""

    machine: Machine
    date: str
    outcomes: Mapping[str, Outcome]  # by the columns' names

    @property
    def is_fine(self) -> bool:
        return all(each.verdict is not Verdict.FAILED for each in self.outcomes.values())


def header() -> str:
    """Return the two lines that begin the table of reports."""
    return f"{_row(COLUMNS)}\n{_row(['---'] * len(COLUMNS))}"


def markdown_row(report: Report) -> str:
    machine = report.machine
    about = (machine.accelerator, machine.torch, machine.python, machine.antifreeze, report.date)
    return _row([*about, *(report.outcomes[name].summary for name in CHECK_COLUMNS)])


def _row(cells: Any) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Make text of others fit a cell: what ends a cell, a row or a sentence of Markdown goes."""
    plain = " ".join(printable(text, CELL_LENGTH).split())
    return plain.replace("\\", "/").replace("|", "/").replace("<", "(").replace(">", ")")


def as_json(report: Report) -> str:
    machine = report.machine
    return json_text(
        {
            "accelerator": machine.accelerator,
            "device_type": machine.device_type,
            "devices": machine.devices,
            "torch": machine.torch,
            "python": machine.python,
            "antifreeze": machine.antifreeze,
            "date": report.date,
            "fine": report.is_fine,
            "checks": {name: each.as_data() for name, each in report.outcomes.items()},
            "row": markdown_row(report),
        },
        indent=2,
    )


def show(report: Report) -> None:
    """Print the table for people, what failed in more words, and the row to send."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    machine = report.machine
    table = Table(box=None, pad_edge=False, title_justify="left")
    for title in ("check", "result", ""):
        table.add_column(title)
    for name, outcome in report.outcomes.items():
        detail = "" if outcome.verdict is Verdict.FAILED else outcome.detail
        summary = Text(as_log_line(outcome.summary), style=STYLES[outcome.verdict])
        table.add_row(Text(name), summary, Text(as_log_line(detail), style="dim"))
    console = Console(file=sys.stdout)
    where = f"{machine.accelerator}, torch {machine.torch}, Python {machine.python}"
    console.print(Text(as_log_line(where), style="bold"))
    console.print(table)
    for name, outcome in report.outcomes.items():
        if outcome.verdict is Verdict.FAILED and outcome.detail:
            console.print(Text(f"\n{name}: {as_log_line(outcome.summary)}", style="bold red"))
            for line in outcome.detail.splitlines()[-DETAIL_LINES:]:
                console.print(Text(f"  {as_log_line(line)}"))
    print(f'\nA row for "{SECTION}" in docs/compatibility.md:\n\n{markdown_row(report)}')
