"""Compare loaders: rates, moments and costs, with torch's loader as the measure; then the bars.

Each contender lives in a process of its own (lanes.py) and takes turns with the others; a ratio is
taken within a round, so that a busy minute hits both sides. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import costs
import moments
import picture
import programs
import psutil
import rates
import report
import torch
from bars import judge
from contenders import CONTENDERS, Contender
from results import Results
from rich.console import Console
from workloads import WORKLOADS

# Of the loop's own process. With more, collating without workers varied twentyfold on a machine
# that had other work: OpenMP spins while it waits for a core that somebody else has.
THREADS = 1
# A machine of which others use this share is too busy to measure on.
BUSY = 0.1
WIDTH = 130
PARTS = (*(workload.name for workload in WORKLOADS), "moments", "steps", "programs")


def machine() -> dict[str, str]:
    """Say where, with what and how this is measured."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0].partition(":")[2].strip() if models else cpu
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    packages = dict.fromkeys(each.package for each in CONTENDERS)
    return {
        "cpu": f"{cpu}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load before": load,
        "python": platform.python_version(),
        "torch": f"{torch.__version__}, threads in the loop: {THREADS}",
        **{package: version(package) for package in packages if package != "torch"},
        "command": shlex.join(["python", "benchmarks/compare.py", *sys.argv[1:]]),
    }


def version(package: str) -> str:
    """Return the version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


class Others:
    """How much of the machine somebody else uses while we measure: why figures may be noise."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._used = self._total() - self._own()

    def cores(self) -> float:
        """Return how many cores others have kept busy so far, on average."""
        used = self._total() - self._own() - self._used
        return max(0.0, used / (time.monotonic() - self._begin))

    @staticmethod
    def _total() -> float:
        times = psutil.cpu_times()
        return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)

    @staticmethod
    def _own() -> float:
        """Add up ours and that of lanes that have ended; one that was killed leaves some out."""
        usages = [resource.getrusage(resource.RUSAGE_SELF)]
        usages.append(resource.getrusage(resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    keys = [each.key for each in CONTENDERS]
    parser.add_argument("--quick", action="store_true", help="fewer, shorter rounds: a first look")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="some parts only")
    parser.add_argument("--contenders", nargs="+", choices=keys, help="some contenders only")
    parser.add_argument("--json", action="store_true", help="all figures as JSON on stdout")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="draw the rates")
    parser.add_argument(
        "--markdown", type=Path, metavar="PAGE.md", help="write the tables between a page's markers"
    )
    parser.add_argument("--strict", action="store_true", help="a missed bar is a failure, too")
    return parser.parse_args()


def measure(
    chosen: Sequence[Contender], parts: Sequence[str], quick: bool, console: Console
) -> Results:
    """Measure what was asked for, telling each part as soon as it is known."""
    results = Results(machine(), [each for each in chosen if not each.installed])
    for name, fact in results.machine.items():
        console.print(f"{name:<12}{fact}", markup=False)
    for each in results.missing:
        console.print(f"{each.name}: missing: pip install {each.package}", style="bold red")
    able = [each for each in chosen if each.installed]
    for workload in WORKLOADS:
        if workload.name in parts:
            begin = time.monotonic()
            console.print(f"{workload.name} ...", end=" ")
            results.rates[workload.name] = measured = rates.measure(workload, able, quick)
            console.print(f"{time.monotonic() - begin:.0f} s")
            report.show(console, report.detail(workload.name, workload.what, measured))
    if "moments" in parts:
        for moment in moments.MOMENTS:
            console.print(f"{moment.what} ...", markup=False)
            results.moments[moment.key] = moments.measure(moment, able, quick)
    if "steps" in parts:
        for kind in costs.STEP_KINDS:
            console.print(f"a training step of 20 ms of {kind} beside the loader ...")
            results.steps[kind] = costs.measure(kind, able, quick)
    if "programs" in parts:
        console.print("four programs, with all that they run beside their loaders ...")
        results.programs = programs.measure(able, quick)
        found = [each.accelerator for group in results.programs.values() for each in group]
        results.machine["accelerator"] = max(found, default="")
    return results


def main() -> int:
    """Measure, show, write; return 1 if a contender is missing or failed, 2 for missed bars."""
    torch.set_num_threads(THREADS)
    asked = options()
    console = Console(stderr=asked.json, highlight=False, width=None if _wide() else WIDTH)
    chosen = [each for each in CONTENDERS if each.key in (asked.contenders or [each.key])]
    compile_ours()
    begin, others = time.monotonic(), Others()
    results = measure(chosen, asked.only or PARTS, asked.quick, console)
    cores = others.cores()
    results.machine["others"] = f"kept {cores:.2f} of {os.cpu_count()} cores busy meanwhile"
    bars = judge(results)
    for sheet in (*report.summaries(results), report.bars_sheet(bars)):
        if sheet.title != report.CPU_TITLE:  # too wide for a terminal, and shown by workload
            report.show(console, sheet)
    for error in results.errors():
        console.print(error, style="bold red", markup=False)
    busy = cores > BUSY * (os.cpu_count() or 1)
    style = "bold red" if busy else ""
    console.print(f"others {results.machine['others']}" + ": do not believe it" * busy, style=style)
    console.print(f"{time.monotonic() - begin:.0f} s in all")
    if asked.picture:
        asked.picture.write_text(picture.draw(results))
    if asked.markdown:
        report.write(asked.markdown, results, bars, report.link(asked.picture, asked.markdown))
    if asked.json:
        print(json.dumps(results.as_json() | {"bars": [asdict(bar) for bar in bars]}, indent=2))
    if results.missing or results.errors():
        return 1
    return 2 if asked.strict and any(bar.met is False for bar in bars) else 0


def compile_ours() -> None:
    """Compile our modules, as pip has compiled everybody else's when it installed them."""
    ours = importlib.util.find_spec("antifreeze")
    for folder in (ours and ours.submodule_search_locations) or ():
        compileall.compile_dir(folder, quiet=1)


def _wide() -> bool:
    return sys.stdout.isatty() and os.get_terminal_size().columns >= WIDTH


if __name__ == "__main__":
    sys.exit(main())
