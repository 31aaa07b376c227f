"""The results as tables: for the terminal, and as blocks of a Markdown page."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bars import Bar
from contenders import BY_KEY, CONTENDERS
from costs import ALONE, slowdown
from moments import MOMENTS
from programs import MEASURES, PSS, ProgramFigures
from rates import Figures, ratio, ratios
from real_program import PROGRAMS
from results import Results
from rich.console import Console
from rich.table import Table

BEGIN = "<!-- figures: written by `make bench` with --markdown; do not edit -->"
END = "<!-- end of figures -->"
PROGRAMS_BEGIN = "<!-- programs: written by `make bench` with --markdown; do not edit -->"
PROGRAMS_END = "<!-- end of programs -->"
CPU_TITLE = "CPU seconds for 1,000 batches"
# Rows of a summary, ours first.
ORDER = sorted(CONTENDERS, key=lambda each: not each.key.startswith("antifreeze"))


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table before it has a form: the first column names the row."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def short(value: float) -> str:
    """Write a number with three digits: 1.53, 24.1, 809, 1.03k, 241k."""
    for limit, unit in ((1e6, "M"), (1e3, "k"), (0, "")):
        if value >= limit:
            scaled = value / (limit or 1)
            digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{digits}f}{unit}"
    raise ValueError(f"neither a rate nor a time is negative: {value}")


def seconds(value: float | None) -> str:
    """Write a time: 3.1 ms, 42 ms, 1.72 s."""
    if value is None:
        return "-"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.{1 if value < 0.01 else 0}f} ms"


def spread(values: Iterable[float | None]) -> tuple[str, str]:
    """Write a median, and the smallest with the largest value."""
    known = [value for value in values if value is not None]
    if not known:
        return "-", ""
    return short(statistics.median(known)), f"{short(min(known))}-{short(max(known))}"


def detail(name: str, what: str, measured: Sequence[Figures]) -> Sheet:
    """Tell all about one workload."""
    rows = []
    for each in measured:
        cpu = each.cpu_s(1000)
        rows.append(
            (
                BY_KEY[each.contender].name,
                *spread(each.rates),
                *spread(ratios(each, measured[0])),
                f"{cpu[0]:.2f}" if cpu else "-",
                f"{cpu[1]:.2f}" if cpu else "-",
            )
        )
    columns = ("samples/s", "spread", "ratio", "spread", "CPU s main", "CPU s workers")
    return Sheet(f"{name}: {what}", "CPU seconds are for 1,000 batches.", columns, tuple(rows))


def _by_workload(
    results: Results, cell: Callable[[Figures, Figures | None], str]
) -> list[tuple[str, ...]]:
    rows = []
    for each in ORDER:
        found = [results.figures(name, each.key) for name in results.rates]
        if any(found):
            base = [results.figures(name, "torch") for name in results.rates]
            cells = [
                cell(one, other) if one else "-" for one, other in zip(found, base, strict=True)
            ]
            rows.append((each.name, *cells))
    return rows


def summaries(results: Results) -> list[Sheet]:
    """Return the tables of a whole run."""
    columns = tuple(results.rates)

    def ratio_cell(one: Figures, base: Figures | None) -> str:
        value = ratio(one, base)
        return f"{value:.2f}" if value else "-"

    def cpu_cell(one: Figures, _: Figures | None) -> str:
        cpu = one.cpu_s(1000)
        return f"{cpu[0]:.2f} + {cpu[1]:.2f}" if cpu else "-"

    sheets = []
    if results.rates:
        note = "Medians of the rounds' ratios; above 1 is faster than torch's persistent workers."
        rows = _by_workload(results, ratio_cell)
        sheets.append(Sheet("Speed, as a ratio to torch (persistent)", note, columns, tuple(rows)))
        rows = _by_workload(results, lambda one, _: short(one.rate or 0))
        sheets.append(Sheet("Samples a second", "Medians of the rounds.", columns, tuple(rows)))
        rows = _by_workload(results, cpu_cell)
        note = "Main process + workers. Threads count as the main process."
        sheets.append(Sheet(CPU_TITLE, note, columns, tuple(rows)))
    if results.moments:
        sheets.append(_moments(results))
    if results.steps:
        sheets.append(_steps(results))
    return [*sheets, *program_sheets(results)]


def _moments(results: Results) -> Sheet:
    shown = [each for each in MOMENTS if each.key in results.moments]
    rows = []
    for each in ORDER:
        times = [results.median_s(moment.key, each.key) for moment in shown]
        if any(value is not None for value in times):
            rows.append((each.name, *map(seconds, times)))
    note = " ".join(f"{each.key}: {each.what}." for each in shown)
    return Sheet("Moments", note, tuple(each.key for each in shown), tuple(rows))


def _steps(results: Results) -> Sheet:
    kinds = tuple(results.steps)
    rows = []
    for key in (ALONE, *(each.key for each in ORDER)):
        cells = []
        for kind in kinds:
            alone = next(each for each in results.steps[kind] if each.contender == ALONE)
            found = [each for each in results.steps[kind] if each.contender == key]
            share = slowdown(found[0], alone) if found else None
            cells += [
                seconds(found[0].median_s if found else None),
                f"{share:.3f}" if share else "-",
            ]
        if set(cells) != {"-"}:
            rows.append((BY_KEY[key].name if key in BY_KEY else "no loader", *cells))
    columns = tuple(cell for kind in kinds for cell in (f"20 ms of {kind}", "to no loader"))
    note = "A step and its wait for the batch, tokens. No waiting is hidden: 1.000 is ideal."
    return Sheet("A training step beside the loader", note, columns, tuple(rows))


def program_sheets(results: Results) -> list[Sheet]:
    """Return the tables of the real programs: a column a program, rows for both loaders."""
    shown = [each for each in PROGRAMS if each.key in results.programs]
    if not shown:
        return []
    sides = [each for each in ORDER if any(results.program(one.key, each.key) for one in shown)]
    rows = []
    for key, what in [*((each.key, each.what) for each in MEASURES), (PSS, "of it, PSS")]:
        for side in sides:
            cells = [_program_cell(results.program(one.key, side.key), key) for one in shown]
            rows.append((f"{what}, {side.key}", *cells))
    what = "; ".join(f"{each.key}: {each.what}" for each in shown)
    note = f"Medians of the rounds, smallest and largest. {what[0].upper()}{what[1:]}."
    return [Sheet("Real programs", note, tuple(each.key for each in shown), tuple(rows))]


def _program_cell(figures: ProgramFigures | None, key: str) -> str:
    known = figures.known(key) if figures else []
    if not known:
        return "-"
    kinds = {each.key: each.kind for each in MEASURES}
    values = (statistics.median(known), min(known), max(known))
    if kinds.get(key) == "moment":
        middle, low, high = (f"{value * 1e3:.0f}" for value in values)
        return f"{middle} ms ({low}-{high})"
    if kinds.get(key) == "rate":
        middle, low, high = map(short, values)
        return f"{middle} ({low}-{high})"
    middle, low, high = (f"{value / 2**20:.0f}" for value in values)
    return f"{middle} MiB ({low}-{high})"


def bars_sheet(bars: Sequence[Bar]) -> Sheet:
    """Return the bars as a table."""
    said = {True: "met", False: "MISSED", None: "not measured"}
    rows = tuple((bar.what, bar.asked, bar.measured, said[bar.met]) for bar in bars)
    return Sheet("Bars", "", ("asked", "measured", ""), rows)


def show(console: Console, sheet: Sheet) -> None:
    """Print a sheet; rows of ours stand out, and so do missed bars."""
    table = Table()
    table.add_column("", overflow="fold")
    words = sheet.title == "Bars"
    for column in sheet.columns:
        table.add_column(column, justify="left" if words else "right", overflow="fold")
    for row in sheet.rows:
        style = {"MISSED": "red", "met": "green"}.get(row[-1], "")
        style = "bold cyan" if row[0].startswith("antifreeze") else style
        table.add_row(*row, style=style)
    console.print(f"\n{sheet.title}", style="bold", markup=False)
    console.print(table)
    if sheet.note:
        console.print(sheet.note, markup=False)


def write(page: Path, results: Results, bars: Sequence[Bar], picture: str) -> None:
    """Write the figures of this run to a page. The programs have a block of their own there: what
    was not measured stays as it was."""
    programs = program_sheets(results)
    others = [each for each in summaries(results) if each.title not in {p.title for p in programs}]
    if others:
        sheets = [bars_sheet([bar for bar in bars if bar.part != "programs"]), *others]
        _write_block(page, (BEGIN, END), _block(results, sheets, picture))
    if programs:
        sheets = [*programs, bars_sheet([bar for bar in bars if bar.part == "programs"])]
        _write_block(page, (PROGRAMS_BEGIN, PROGRAMS_END), _block(results, sheets, ""))


def _block(results: Results, sheets: Sequence[Sheet], picture: str) -> list[str]:
    """Write one block of the page: the machine, the picture, the tables."""
    lines = [f"- {name}: {fact}" for name, fact in results.machine.items() if fact]
    if picture:
        lines += ["", f"![Speed of each loader on each workload, as a ratio to torch]({picture})"]
    for sheet in sheets:
        lines += ["", f"### {sheet.title}", ""]
        lines += [sheet.note, ""] if sheet.note else []
        lines += _rows(("", *sheet.columns), sheet)
    for error in results.errors():
        lines += ["", f"Failed: {error}"]
    return lines


def _rows(head: tuple[str, ...], sheet: Sheet) -> list[str]:
    table = [head, ("---",) * len(head), *sheet.rows]
    return ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in table]


def _write_block(page: Path, markers: tuple[str, str], lines: Sequence[str]) -> None:
    """Replace what is between two markers of a page; a page without them is refused."""
    begin, end = markers
    text = page.read_text()
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise SystemExit(f"{page} has no place for figures: it needs the lines {begin} and {end}")
    page.write_text(before + "\n".join([begin, "", *lines, "", end]) + after)


def link(picture: Path | None, page: Path) -> str:
    """Return the picture's path as a page beside it would say it."""
    return os.path.relpath(picture, page.parent) if picture else ""
