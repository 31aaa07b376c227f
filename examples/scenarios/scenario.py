"""What every scenario script shares: its flags, watched runs in turns, the result, the table.

A script describes itself with a `Scenario` and calls `perform`. Its files are made once. Then, in
turns, each loader gets a child process of its own with a bound, in which the script's `load`
runs. The script's `judge` looks at all outcomes and gives the verdict.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
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
        return f"{self.median:,.0f}  [dim]{self.low:,.0f}-{self.high:,.0f}[/dim]"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge found: whether the scenario went as it should, and sentences that say why."""

    ok: bool
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario, as its script describes it."""

    number: int
    title: str
    make: Callable[[Path, bool], None]
    load: Callable[[type[Any], Path, bool], Report]
    judge: Callable[[Outcomes], Verdict]
    bound_s: float = CHILD_BOUND_S


@dataclass(frozen=True, slots=True)
class Result:
    """What a scenario came to. `rates` are samples a second: pass, then loader."""

    number: int
    title: str
    torch: str
    antifreeze: str
    wrong_samples: dict[str, int]
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
    report = scenario.load(DataLoader, options.folder, options.quick)
    options.report.write_text(json.dumps(asdict(report)))
    return 0


def _run(scenario: Scenario, quick: bool, console: Console) -> Result:
    rounds = 1 if quick else ROUNDS
    found: dict[str, list[Outcome]] = {loader: [] for loader in LOADERS}
    with tempfile.TemporaryDirectory(prefix="antifreeze-scenario-") as name:
        folder = Path(name) / "data"
        folder.mkdir()
        console.print(f"making its files in {folder} ...")
        scenario.make(folder, quick)
        for number in range(1, rounds + 1):
            for loader in LOADERS:
                console.print(f"round {number} of {rounds}: {loader:<11}", end="")
                outcome = _watch(scenario, loader, folder, quick)
                found[loader].append(outcome)
                console.print(f"{outcome.ended} after {outcome.seconds:.1f} s")
                if outcome.ended != "finished":
                    console.print(f"  {outcome.last_words}", markup=False)
    outcomes = Outcomes(**{loader: tuple(each) for loader, each in found.items()})
    verdict = scenario.judge(outcomes)
    names = dict.fromkeys(name for each in found.values() for o in each for name in o.report.passes)
    return Result(
        number=scenario.number,
        title=scenario.title,
        torch=_worst(outcomes.torch),
        antifreeze=_worst(outcomes.antifreeze),
        wrong_samples={loader: _wrong(each) for loader, each in found.items()},
        rates={name: {one: outcomes.rate(one, name) for one in LOADERS} for name in names},
        findings=verdict.findings,
        ok=verdict.ok,
    )


def _watch(scenario: Scenario, loader: str, folder: Path, quick: bool) -> Outcome:
    script = str(Path(sys.argv[0]).resolve())
    with tempfile.TemporaryDirectory(prefix="antifreeze-report-") as name:
        file = Path(name) / "report.json"
        command = [sys.executable, script, "--child", loader]
        command += ["--folder", str(folder), "--report", str(file)]
        run = run_bounded(command + (["--quick"] if quick else []), scenario.bound_s)
        report = Report({}, {})
        if run.ended == "finished":
            raw = json.loads(file.read_text())
            report = Report({k: Pass(**v) for k, v in raw["passes"].items()}, raw["facts"])
        return Outcome(run.ended, run.seconds, len(run.stderr.encode()), run.last_words, report)


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
        table.add_row(name, str(rates["torch"]), str(rates["antifreeze"]), ratio(rates))
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
