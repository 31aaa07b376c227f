"""Compare loaders on several workloads: epochs in turns, medians, ratios to torch.

Each workload has a process of its own. In it every contender keeps its loader and its workers;
after one epoch to warm up, the contenders take turns, in a rotated order each round. The loop
does nothing with a batch. A ratio is taken within a round, so that a busy minute hits both sides.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from contenders import CONTENDERS
from rich.console import Console
from rich.table import Table
from workloads import WORKLOADS, Workload

ROUNDS, ROUNDS_QUICK = 7, 3
QUICK_SHRINKS_BY = 4
# Of the loop's own process. With more, collating without workers varied twentyfold on a machine
# that had other work: OpenMP spins while it waits for a core that somebody else has.
THREADS = 1
# One workload, all contenders. About 30 s are expected; a loader that hangs must not hang us.
WORKLOAD_BOUND_S = 240.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What one contender did on one workload: samples a second, a number a round."""

    contender: str
    rates: tuple[float, ...]
    error: str


# --- in the process of one workload -----------------------------------------------------------


def measure(workload: Workload, quick: bool) -> list[Figures]:
    """Run all contenders on one workload in turns. A contender that raises drops out."""
    faulthandler.dump_traceback_later(WORKLOAD_BOUND_S, exit=True)
    torch.set_num_threads(THREADS)
    batches = workload.batches // (QUICK_SHRINKS_BY if quick else 1)
    samples = batches * workload.batch_size
    dataset = workload.dataset(samples)
    loaders: dict[str, Iterable[Any]] = {}
    rates: dict[str, list[float]] = {contender.name: [] for contender in CONTENDERS}
    errors: dict[str, str] = {}

    def attempt(name: str) -> float | None:
        try:
            return samples / epoch_s(loaders[name], batches)
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            del loaders[name]
            return None

    for contender in CONTENDERS:
        loaders[contender.name] = contender.make(dataset, workload.batch_size)
        attempt(contender.name)
    for number in range(ROUNDS_QUICK if quick else ROUNDS):
        turn = number % len(CONTENDERS)
        for contender in CONTENDERS[turn:] + CONTENDERS[:turn]:
            if contender.name in loaders and (rate := attempt(contender.name)):
                rates[contender.name].append(rate)
    faulthandler.cancel_dump_traceback_later()
    return [Figures(name, tuple(each), errors.get(name, "")) for name, each in rates.items()]


def epoch_s(loader: Iterable[Any], batches: int) -> float:
    """Time one epoch; an epoch of the wrong length is an error, however fast."""
    begin = time.perf_counter()
    found = sum(1 for _ in loader)
    seconds = time.perf_counter() - begin
    if found != batches:
        raise RuntimeError(f"{found} batches instead of {batches}")
    return seconds


# --- in the main process ----------------------------------------------------------------------


def measure_apart(workload: Workload, quick: bool) -> list[Figures]:
    """Run one workload in a process of its own; if that dies, nobody gets figures."""
    command = [sys.executable, __file__, "--child", workload.name] + ["--quick"] * quick
    child = subprocess.run(command, stdout=subprocess.PIPE, timeout=2 * WORKLOAD_BOUND_S)
    if child.returncode != 0:
        error = f"the process of this workload ended with code {child.returncode}"
        return [Figures(contender.name, (), error) for contender in CONTENDERS]
    return [Figures(one["contender"], tuple(one["rates"]), one["error"]) for one in read(child)]


def read(child: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    """Take the figures from the last line of a child's stdout."""
    figures: list[dict[str, Any]] = json.loads(child.stdout.splitlines()[-1])
    return figures


def machine() -> dict[str, str]:
    """Say where, with what and how this was measured."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0].partition(":")[2].strip() if models else cpu
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return {
        "cpu": f"{cpu}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load before": load,
        "python": platform.python_version(),
        "torch": f"{torch.__version__}, threads in the loop: {THREADS}",
        "antifreeze": version("antifreeze"),
        "command": shlex.join(["python", *sys.argv]),
    }


def version(package: str) -> str:
    """Return the version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed: from a source tree"


def ratios(figures: Figures, base: Figures) -> list[float]:
    """Divide round by round; rounds that one of the two did not finish are left out."""
    return [ours / theirs for ours, theirs in zip(figures.rates, base.rates, strict=False)]


def short(value: float) -> str:
    """Write a number with three digits: 1.53, 24.1, 809, 1.03k, 241k."""
    for limit, unit in ((1e6, "M"), (1e3, "k"), (0, "")):
        if value >= limit:
            scaled = value / (limit or 1)
            digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{digits}f}{unit}"
    raise ValueError(f"a rate cannot be negative: {value}")


def spread(values: list[float] | tuple[float, ...]) -> tuple[str, str]:
    """Write a median, and the smallest with the largest value."""
    if not values:
        return "-", ""
    return short(statistics.median(values)), f"{short(min(values))}-{short(max(values))}"


def draw(results: dict[str, list[Figures]]) -> Table:
    """Draw a section a workload, a row a contender; where ours is slower, the row is yellow."""
    table = Table(
        caption="Medians of the rounds; beside them the smallest and the largest.\n"
        f"Ratio: to {CONTENDERS[0].name}, within a round; below 1 is slower.",
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    table.add_column("samples/s", justify="right", no_wrap=True)
    table.add_column("spread", justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("spread", justify="right", no_wrap=True)
    for name, all_figures in results.items():
        table.add_row(f"[bold]{name}")
        for figures in all_figures:
            divided = ratios(figures, all_figures[0])
            slower = bool(divided) and statistics.median(divided) < 1
            style = "yellow" if slower and figures.contender.startswith("antifreeze") else ""
            cells = (*spread(figures.rates), *spread(divided))
            table.add_row(f"  {figures.contender}", *cells, style=style)
        table.add_section()
    return table


def main() -> int:
    """Measure what was asked for and show it."""
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="all figures as JSON on stdout")
    parser.add_argument("--quick", action="store_true", help="fewer, shorter rounds: a smoke test")
    parser.add_argument("--only", nargs="+", choices=names, help="some workloads only")
    parser.add_argument("--child", choices=names, help=argparse.SUPPRESS)
    options = parser.parse_args()
    by_name = {workload.name: workload for workload in WORKLOADS}
    if options.child:
        figures = measure(by_name[options.child], options.quick)
        print(json.dumps([figures_as_dict(one) for one in figures]))
        return 0
    console = Console(stderr=options.json, highlight=False)
    facts = machine()
    for name, fact in facts.items():
        console.print(f"{name:<12}{fact}", markup=False)
    results: dict[str, list[Figures]] = {}
    for name in options.only or names:
        console.print(f"{name}: {by_name[name].what} ...", end=" ")
        begin = time.monotonic()
        results[name] = measure_apart(by_name[name], options.quick)
        console.print(f"{time.monotonic() - begin:.0f} s")
        for error in dict.fromkeys(f"{f.contender}: {f.error}" for f in results[name] if f.error):
            console.print(f"  {error}", style="red", markup=False)
    if options.json:
        workloads = {
            name: [figures_as_dict(one) | {"ratio": ratios(one, each[0])} for one in each]
            for name, each in results.items()
        }
        print(json.dumps({"machine": facts, "workloads": workloads}, indent=2))
    else:
        console.print(draw(results))
    return 1 if any(one.error for each in results.values() for one in each) else 0


def figures_as_dict(figures: Figures) -> dict[str, Any]:
    """Return figures as JSON can hold them."""
    return {
        "contender": figures.contender,
        "rates": list(figures.rates),
        "median": statistics.median(figures.rates) if figures.rates else None,
        "error": figures.error,
    }


if __name__ == "__main__":
    sys.exit(main())
