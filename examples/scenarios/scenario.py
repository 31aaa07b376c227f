"""What every scenario script shares: its flags, watched runs in turns, the result, the table.

A script describes itself with a `Scenario` and calls `perform`. Its files are made once. Then, in
turns, each loader gets a child process of its own with a bound, in which the script's `load`
runs; a scenario in which one way of loading may end the process has a `load` and a child for each
way. The script's `judge` looks at all outcomes and gives the verdict.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from bounded import Ended, heed_sigterm, run_bounded
from rich.console import Console
from rich.table import Table

LOADERS = ("torch", "antifreeze")
ROUNDS = 3
# A child needs a few seconds; the rest is for machines that are busy with something else.
CHILD_BOUND_S = 60.0
QUICK_STILL_S = 10.0  # for torch's loader, which does nothing about it, with --quick


@dataclass(frozen=True, slots=True)
class Pass:
    """What one way of loading delivered, and in what time."""

    samples: int
    wrong: int
    missing: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """What a child hands back: passes by name, and other numbers by name."""

    passes: dict[str, Pass]
    facts: dict[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one child ended. The report is empty unless it finished."""

    way: str
    ended: Ended
    seconds: float
    stderr_bytes: int
    last_words: str
    report: Report

    @property
    def right(self) -> bool:
        """Tell whether the child finished and each sample was the right one."""
        passes = self.report.passes.values()
        return self.ended == "finished" and not any(one.wrong or one.missing for one in passes)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of all rounds, for the judge."""

    torch: tuple[Outcome, ...]
    antifreeze: tuple[Outcome, ...]

    def of(self, loader: str, way: str) -> tuple[Outcome, ...]:
        """Return the outcomes of one way."""
        return tuple(outcome for outcome in getattr(self, loader) if outcome.way == way)

    def rate(self, loader: str, name: str) -> Spread:
        """Return the samples a second of one pass over the rounds."""
        reports = [outcome.report for outcome in getattr(self, loader)]
        passes = [report.passes[name] for report in reports if name in report.passes]
        return Spread.over([one.samples / one.seconds for one in passes])

    def fact(self, loader: str, name: str) -> Spread:
        """Return one of the other numbers over the rounds."""
        reports = [outcome.report for outcome in getattr(self, loader)]
        return Spread.over([report.facts[name] for report in reports if name in report.facts])


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the smallest and the largest value; all zero when nothing was measured."""

    median: float
    low: float
    high: float

    @classmethod
    def over(cls, values: list[float]) -> Spread:
        """Summarise the values of the rounds."""
        if not values:
            return cls(0.0, 0.0, 0.0)
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{short(self.median)}  [dim]{short(self.low)}-{short(self.high)}[/dim]"


def short(value: float) -> str:
    """Write a rate with three digits, so that a table fits into 80 columns: 86.0, 9,120, 1.15M."""
    if value < 100:
        return f"{value:.1f}"
    if value < 10_000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value / 1e6:.2f}M" if value >= 999_500 else f"{float(f'{value / 1e3:.3g}'):g}k"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge found: whether the scenario went as it should, and sentences that say why."""

    ok: bool
    findings: tuple[str, ...]


# From loader class, folder and --quick to what was delivered; runs in a child.
Load = Callable[[type[Any], Path, bool], Report]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario, as its script describes it.

    `load` by name gives each name a child of its own. `within` is what that child's command begins
    with. `still_s`: a child that prints a line a batch is frozen after so long without one.
    """

    number: int | str  # a part of a scenario has a letter: "13a"
    title: str
    make: Callable[[Path, bool], None]
    load: Load | Mapping[str, Load]
    judge: Callable[[Outcomes], Verdict]
    bound_s: float = CHILD_BOUND_S
    still_s: float | None = None
    rounds: int = ROUNDS
    within: Callable[[str], Sequence[str]] = lambda way: ()

    @property
    def ways(self) -> Mapping[str, Load]:
        """Return every `load` by name; the name is empty where there is only one."""
        return self.load if isinstance(self.load, Mapping) else {"": self.load}


@dataclass(frozen=True, slots=True)
class Result:
    """What a scenario came to: `ends` by way and loader, `rates` in samples a second by pass."""

    number: int | str
    title: str
    torch: str
    antifreeze: str
    wrong_samples: dict[str, int]
    ends: dict[str, dict[str, str]]
    rates: dict[str, dict[str, Spread]]
    findings: tuple[str, ...]
    ok: bool


def count(loader: Iterable[Any], epochs: int, is_right: Callable[..., bool], length: int) -> Pass:
    """Go through the loader; check the place and the content of every sample of every epoch.

    A batch is (indices, field, field, ...), the dataset's order is expected, and `is_right` gets
    index and fields of one sample. The checking stands in for the training step: it is timed.
    """
    samples = wrong = 0
    begin = time.perf_counter()
    for _ in range(epochs):
        position = 0
        for indices, *fields in loader:
            for index, *values in zip(indices.tolist(), *fields, strict=True):
                wrong += index != position or not is_right(index, *values)
                position += 1
        samples += position
    return Pass(samples, wrong, epochs * length - samples, time.perf_counter() - begin)


def count_warm(
    loader: Iterable[Any], epochs: int, is_right: Callable[..., bool], length: int
) -> Pass:
    """Time the epochs after the one in which the workers start; check that one as well."""
    first = count(loader, 1, is_right, length)
    rest = count(loader, epochs, is_right, length)
    return Pass(rest.samples, first.wrong + rest.wrong, first.missing + rest.missing, rest.seconds)


def perform(scenario: Scenario) -> int:
    """Be the script's main function: run the scenario, show it, return the exit code."""
    parser = argparse.ArgumentParser(description=f"Scenario {scenario.number}: {scenario.title}")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.add_argument("--quick", action="store_true", help="one round on little data")
    parser.add_argument("--child", choices=LOADERS, help=argparse.SUPPRESS)
    parser.add_argument("--way", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return _be_child(scenario, options)
    heed_sigterm()
    # With --json the story goes to stderr and stdout carries nothing but the result.
    console = Console(stderr=options.json, highlight=False)
    console.rule(f"[bold]Scenario {scenario.number}: {scenario.title}")
    result = _run(scenario, options.quick, console)
    if options.json:
        print(json.dumps(asdict(result), indent=2))
    else:
        _show(result, console)
    return 0 if result.ok else 1


def _be_child(scenario: Scenario, options: argparse.Namespace) -> int:
    # If whoever watches this child dies first, the child must still end.
    faulthandler.dump_traceback_later(scenario.bound_s + 30, exit=True)
    # Scenarios use more workers than cores on purpose: they wait, they do not compute.
    warnings.filterwarnings("ignore", message="This DataLoader will create .* worker processes")
    # The loop has one thread: with two on a machine whose cores the workers use, comparing tensors
    # became ten times slower (OpenMP spins while it waits).
    torch.set_num_threads(1)
    if options.child == "torch":
        from torch.utils.data import DataLoader
    else:
        from antifreeze import DataLoader
    report = scenario.ways[options.way](DataLoader, options.folder, options.quick)
    options.report.write_text(json.dumps(asdict(report)))
    return 0


def _run(scenario: Scenario, quick: bool, console: Console) -> Result:
    rounds = 1 if quick else scenario.rounds
    found: dict[str, list[Outcome]] = {loader: [] for loader in LOADERS}
    with tempfile.TemporaryDirectory(prefix="antifreeze-scenario-") as name:
        folder = Path(name) / "data"
        folder.mkdir()
        console.print(f"making its files in {folder} ...")
        scenario.make(folder, quick)
        for number in range(1, rounds + 1):
            for way, loader in itertools.product(scenario.ways, LOADERS):
                what = f"{loader:<11}{way + ': ' if way else ''}"
                console.print(f"round {number} of {rounds}: {what}", end="")
                outcome = _watch(scenario, way, loader, folder, quick)
                found[loader].append(outcome)
                console.print(f"{outcome.ended} after {outcome.seconds:.1f} s")
                if outcome.ended != "finished":
                    console.print(f"  {outcome.last_words}", markup=False)
    outcomes = Outcomes(**{loader: tuple(each) for loader, each in found.items()})
    verdict = scenario.judge(outcomes)
    # Ours first: it has the passes that torch did not come to.
    each_report = [o.report for o in (*outcomes.antifreeze, *outcomes.torch)]
    names = dict.fromkeys(name for report in each_report for name in report.passes)
    return Result(
        number=scenario.number,
        title=scenario.title,
        torch=_worst(outcomes.torch),
        antifreeze=_worst(outcomes.antifreeze),
        wrong_samples={loader: _wrong(each) for loader, each in found.items()},
        ends={
            way: {loader: _worst(outcomes.of(loader, way)) for loader in LOADERS}
            for way in scenario.ways
        },
        rates={name: {one: outcomes.rate(one, name) for one in LOADERS} for name in names},
        findings=verdict.findings,
        ok=verdict.ok,
    )


def _watch(scenario: Scenario, way: str, loader: str, folder: Path, quick: bool) -> Outcome:
    script = str(Path(sys.argv[0]).resolve())
    with tempfile.TemporaryDirectory(prefix="antifreeze-report-") as name:
        file = Path(name) / "report.json"
        command = [*scenario.within(way), sys.executable, script, "--child", loader, "--way", way]
        command += ["--folder", str(folder), "--report", str(file)] + ["--quick"] * quick
        still_s = scenario.still_s
        if quick and loader == "torch" and still_s is not None:
            still_s = min(still_s, QUICK_STILL_S)
        run = run_bounded(command, scenario.bound_s, still_s)
        report = Report({}, {})
        if run.ended == "finished":
            raw = json.loads(file.read_text())
            report = Report({k: Pass(**v) for k, v in raw["passes"].items()}, raw["facts"])
        stderr_bytes = len(run.stderr.encode())
        return Outcome(way, run.ended, run.seconds, stderr_bytes, run.last_words, report)


def _worst(outcomes: tuple[Outcome, ...]) -> str:
    ends = [outcome.ended for outcome in outcomes]
    worst = next((bad for bad in ("frozen", "failed") if bad in ends), "finished")
    if worst == "finished" and not all(outcome.right for outcome in outcomes):
        return "wrong data"
    return worst


def _wrong(outcomes: list[Outcome]) -> int:
    passes = [one for outcome in outcomes for one in outcome.report.passes.values()]
    return sum(one.wrong + one.missing for one in passes)


def _show(result: Result, console: Console) -> None:
    table = Table(caption="median, then smallest and largest", caption_justify="left")
    table.add_column("samples a second", no_wrap=True)
    for loader in LOADERS:
        table.add_column(loader, justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    for name, rates in result.rates.items():
        ends = result.ends.get(name, {})
        cells = [str(rates[one]) if rates[one].median else ends.get(one, "-") for one in LOADERS]
        table.add_row(name, *cells, ratio(rates))
    console.print()
    console.print(table)
    for loader in LOADERS:
        wrong = result.wrong_samples[loader]
        console.print(f"{loader}: {getattr(result, loader)}, {wrong} wrong or missing samples")
    for finding in result.findings:
        console.print(f"- {finding}", markup=False)
    console.print("[green]as it should be" if result.ok else "[red]not as it should be")


def ratio(rates: dict[str, Spread]) -> str:
    """Write how many times torch's rate ours is."""
    ours, theirs = rates["antifreeze"].median, rates["torch"].median
    return f"{ours / theirs:.2f}x" if ours and theirs else "-"
