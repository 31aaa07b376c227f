"""Show antifreeze in a minute: a loader that freezes next to one that does not, then numbers.

Part one trains with a collate function that torch's loader cannot digest, with both loaders at
the same time. Part two has three faults in the data: a broken file, a killed worker, a sample that
hangs. Part three trains with all repaired and compares what both loaders cost. Part four takes the
training away: how fast do batches come that cost nothing to load?
Exit code 0: antifreeze's loader finished every run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pictures import COUNT, SIDE_PX, make_pictures
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from three_faults import three_faults, went_well
from verdict import BUSY, Rounds, differ, is_busy, ratio_of, verdict
from watched import Progress, WatchedRun, follow_lines

LOADERS = ("torch", "antifreeze")
FULL_NAMES = {"torch": "torch.utils.data.DataLoader", "antifreeze": "antifreeze.DataLoader"}
COLOURS = {
    "starting": "yellow",
    "running": "yellow",
    "finished": "green",
    "failed": "red",
    "frozen": "red",
}
# How long torch's loop may stand still, counted from the moment it asks for its first batch.
FREEZE_BOUND_S = 6.0
# Any run, start included. Three seconds should do; a machine busy with other things gets more.
FINISH_BOUND_S = 45.0
# Ten seconds should do.
THROUGHPUT_BOUND_S = 60.0
REFRESH_S = 0.1
EPOCHS = 6
ROUNDS = 2

stop_asked = threading.Event()

# Samples a second, a number a round: kind of batch, then loader. Nothing where a loader failed.
Rates = dict[str, Rounds]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one healthy run cost."""

    samples_per_s: float
    waited_share: float
    peak_pss_mib: float
    descriptors: int


def rate(value: float) -> str:
    """Write samples a second so that the table fits into 80 columns: 994, 3,909, 26.6k, 1.15M."""
    if value < 10_000:
        return f"{value:,.0f}"
    return f"{value / 1e3:.3g}k" if value < 999_500 else f"{value / 1e6:.3g}M"


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the table: what it is called, where it comes from, how it is written."""

    title: str
    field: str
    write: Callable[[float], str]


MEASURES = (
    Measure("samples/s", "samples_per_s", rate),
    Measure("time spent waiting", "waited_share", "{:.0%}".format),
    Measure("peak memory, MiB", "peak_pss_mib", "{:,.0f}".format),
    Measure("open descriptors", "descriptors", "{:.0f}".format),
)


# --- part one: the freeze ---------------------------------------------------------------------


def freeze(console: Console, data: Path) -> list[Progress]:
    """Train with both loaders on the broken collate at once; return how each of them ended."""
    console.rule("[bold]1. A collate function whose tensors require grad")
    console.print(
        "The same training script twice, at the same time; only the import differs.\n"
        "One batch in ten is still part of an autograd graph. "
        f"torch's loop gets {FREEZE_BOUND_S:.0f} seconds.\n"
    )
    bounds = {"torch": FREEZE_BOUND_S}
    with (
        WatchedRun("torch", data, epochs=EPOCHS, broken=True) as torch_run,
        WatchedRun("antifreeze", data, epochs=EPOCHS, broken=True) as our_run,
    ):
        runs = (torch_run, our_run)
        if console.is_terminal:
            with Live(console=console, auto_refresh=False) as live:
                for progress in follow(runs, bounds):
                    live.update(side_by_side(progress), refresh=True)
        else:
            tell_in_lines(console, runs, bounds)
        return [run.progress() for run in runs]


def follow(
    runs: tuple[WatchedRun, ...], training_bounds_s: dict[str, float]
) -> Iterator[list[Progress]]:
    """Yield the progress of all runs until each has ended or has used up its time."""
    open_runs = list(runs)
    while open_runs:
        if stop_asked.is_set():
            raise SystemExit(128 + signal.SIGTERM)  # leaving the runs ends them
        for run in list(open_runs):
            if not run.poll():
                open_runs.remove(run)
            elif out_of_time(run.progress(), training_bounds_s.get(run.loader)):
                run.give_up()
                open_runs.remove(run)
        yield [run.progress() for run in runs]
        if open_runs:
            time.sleep(REFRESH_S)


def out_of_time(progress: Progress, training_bound_s: float | None) -> bool:
    """Tell whether a run has had its time: as a whole, and of training if that is bounded."""
    if progress.elapsed_s > FINISH_BOUND_S:
        return True
    return training_bound_s is not None and progress.training_s > training_bound_s


def tell_in_lines(console: Console, runs: tuple[WatchedRun, ...], bounds: dict[str, float]) -> None:
    """Write a line a second and loader, for logs and pipes where nothing can be redrawn."""
    next_line_s = 0.0
    ended: set[str] = set()
    begin = time.monotonic()
    for all_progress in follow(runs, bounds):
        due = time.monotonic() - begin >= next_line_s
        next_line_s += due
        for progress in all_progress:
            over = progress.state in ("finished", "failed", "frozen")
            if progress.loader not in ended and (due or over):
                where = f"batch {progress.batch:>3} of {progress.batches:>3}"
                line = f"{progress.loader:<10}  {where}  {sentence(progress)}"
                console.print(line, soft_wrap=True)
            if over and progress.loader not in ended:
                ended.add(progress.loader)
                if progress.last_words:
                    words = f"{'':<10}  its stderr ends: {progress.last_words}"
                    console.print(words, markup=False, soft_wrap=True)


def sentence(progress: Progress) -> str:
    """Say in words where a run stands."""
    match progress.state:
        case "starting":
            return f"importing torch, {progress.elapsed_s:.1f} s"
        case "running" if progress.since_batch_s > 2:
            return f"standing still: no batch for {progress.since_batch_s:.1f} s"
        case "running":
            return f"training, {progress.elapsed_s:.1f} s"
        case "finished":
            return f"finished after {progress.elapsed_s:.1f} s, loss {progress.loss}"
        case "failed":
            return f"failed after {progress.elapsed_s:.1f} s"
        case "frozen":
            return f"frozen: no batch for {progress.since_batch_s:.1f} s; ended by us"


def side_by_side(all_progress: list[Progress]) -> RenderableType:
    """Draw one panel a loader, next to each other."""
    grid = Table.grid(expand=True, padding=(0, 1))
    for _ in all_progress:
        grid.add_column(ratio=1)
    grid.add_row(*(panel(progress) for progress in all_progress))
    grid.add_row(*(below(progress) for progress in all_progress))
    return grid


def panel(progress: Progress) -> Panel:
    """Draw one run: how far it is, for how long, when its last batch came."""
    colour = COLOURS[progress.state]
    when = "ago" if progress.state in ("starting", "running") else "before the end"
    last = f"{progress.since_batch_s:.1f} s {when}" if progress.batch else "none yet"
    facts = Table.grid(padding=(0, 2))
    facts.add_row("batch", f"{progress.batch} of {progress.batches or '?'}")
    facts.add_row("elapsed", f"{progress.elapsed_s:.1f} s")
    if progress.state != "finished":
        facts.add_row("last batch", last)
    facts.add_row("loss", "-" if progress.loss is None else f"{progress.loss:.3f}")
    bar = ProgressBar(
        total=max(1, progress.batches),
        completed=progress.batch,
        complete_style=colour,
        finished_style=colour,
    )
    body = Group(bar, Text(), facts, Text(), Text(sentence(progress), style=f"bold {colour}"))
    return Panel(body, title=FULL_NAMES[progress.loader], border_style=colour)


def below(progress: Progress) -> Text:
    """Quote the last line of stderr: all that a user would have seen scroll by."""
    if not progress.last_words:
        return Text()
    return Text.assemble(("stderr: ", "bold dim"), (progress.last_words, "dim"))


def moral(all_progress: list[Progress]) -> str:
    """Say what part one showed, also when it did not go as announced."""
    torch_run, our_run = all_progress
    if torch_run.state == "frozen":
        theirs = f"torch's loop stopped after batch {torch_run.batch} and would still be waiting."
    else:
        theirs = f"torch's loader {torch_run.state} this time, which we did not expect."
    if our_run.state == "finished":
        return f"{theirs} antifreeze delivered all {our_run.batches} batches."
    return f"{theirs} [red]antifreeze's run: {our_run.state}. That is a bug of ours.[/red]"


# --- part three: the healthy version ------------------------------------------------------------


def compare(console: Console, data: Path, rounds: int) -> dict[str, list[Cost | None]]:
    """Train in turns with both loaders on the healthy version; None stands for a failed run."""
    console.rule("[bold]3. All repaired: what both loaders cost")
    costs: dict[str, list[Cost | None]] = {loader: [] for loader in LOADERS}
    for number in range(1, rounds + 1):
        for loader in LOADERS:
            console.print(f"round {number} of {rounds}: training with {loader:<11}", end="")
            cost = measure(loader, data)
            costs[loader].append(cost)
            console.print(f"{cost.samples_per_s:,.0f} samples/s" if cost else "[red]failed")
    return costs


def measure(loader: str, data: Path) -> Cost | None:
    """Run the healthy training once, alone."""
    with WatchedRun(loader, data, epochs=EPOCHS, broken=False) as run:
        for _ in follow((run,), {}):
            pass
        if run.progress().state != "finished":
            return None
        result = run.result
        return Cost(
            samples_per_s=result["samples"] / result["seconds"],
            waited_share=result["waited_s"] / result["seconds"],
            peak_pss_mib=run.peak_pss_bytes / 2**20,
            descriptors=result["descriptors"],
        )


def cost_table(costs: dict[str, list[Cost | None]], rates: Rates, *, busy: bool = False) -> Table:
    """Draw the medians, each with the smallest and the largest value of the rounds."""
    rounds = max(len(each) for each in costs.values())
    care = f"\nTake speeds with care: {BUSY}." if busy else ""
    table = Table(
        caption=f"Rounds taken in turns: {rounds}. Each cell: median, then smallest and largest.\n"
        "Training: start of the workers included. Waiting: for data, in the loop.\n"
        "Memory: PSS of all processes. Descriptors: of the main process, loader alive.\n"
        "Loader alone: two workers that already run, samples that are in memory."
        f"{care}",
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    for loader in LOADERS:
        table.add_column(loader, justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_row("[bold]training")
    for row in MEASURES:
        found = {loader: values(costs[loader], row.field) for loader in LOADERS}
        cells = [spread(found[loader], row.write) for loader in LOADERS]
        table.add_row(f"  {row.title}", *cells, ratio(found["antifreeze"], found["torch"]))
    table.add_section()
    table.add_row("[bold]loader alone, samples/s")
    for kind, found in rates.items():
        cells = [spread(found[loader], rate) for loader in LOADERS]
        table.add_row(f"  {kind}", *cells, ratio(found["antifreeze"], found["torch"]))
    return table


def values(costs: list[Cost | None], field: str) -> list[float]:
    """Take one measure out of the runs that finished."""
    return [getattr(cost, field) for cost in costs if cost is not None]


def spread(found: list[float], write: Callable[[float], str]) -> str:
    """Write a median with its range."""
    if not found:
        return "[red]failed"
    low, high = write(min(found)), write(max(found))
    return f"{write(statistics.median(found))}  [dim]{low}-{high}[/dim]"


def ratio(ours: list[float], theirs: list[float]) -> str:
    """Write how many times torch's median ours is."""
    if not ours or not theirs or not statistics.median(theirs):
        return "-"
    return f"{ratio_of(ours, theirs):.2f}x"


# --- part four: nothing but the loader -------------------------------------------------------


def race(console: Console, rounds: int) -> Rates:
    """Let both loaders bring ready samples in turns; tell each kind of batch when it is done."""
    console.rule("[bold]4. No training, nothing to decode: how fast the batches come")
    rates: Rates = {}
    arguments = ("throughput.py", "--rounds", str(rounds))
    with contextlib.closing(follow_lines(*arguments, bound_s=THROUGHPUT_BOUND_S)) as told:
        for facts in told:
            if stop_asked.is_set():
                raise SystemExit(128 + signal.SIGTERM)
            if facts is None:
                continue
            if facts["load"] not in rates:
                _tell_last(console, rates)
                rates[facts["load"]] = {loader: [] for loader in LOADERS}
            found = rates[facts["load"]]
            if facts["event"] == "turn":
                found[facts["loader"]].append(facts["samples_per_s"])
            else:
                found[facts["loader"]].clear()
                words = f"{facts['load']}: {facts['loader']} failed: {facts['error']}"
                console.print(words, style="red", markup=False)
    _tell_last(console, rates)
    return rates


def _tell_last(console: Console, rates: Rates) -> None:
    for kind, found in list(rates.items())[-1:]:
        medians = [rate(statistics.median(each)) if each else "failed" for each in found.values()]
        both = ", ".join(f"{loader} {each}" for loader, each in zip(found, medians, strict=True))
        console.print(f"{kind + ':':<26}{both} samples/s")


# --- all --------------------------------------------------------------------------------------


def main() -> int:
    """Make the data, show all parts, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="results as JSON on stdout")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of parts three and four")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: stop_asked.set())
    # With --json the story goes to stderr and stdout carries nothing but the results.
    console = Console(stderr=options.json, highlight=False)
    busy = is_busy(os.getloadavg()[0], len(os.sched_getaffinity(0)))  # before we are
    with tempfile.TemporaryDirectory(prefix="antifreeze-demo-") as name:
        data = Path(name)
        console.print(f"making {COUNT} JPEG files of {SIDE_PX}x{SIDE_PX} in {data} ...")
        make_pictures(data)
        ends = freeze(console, data)
        console.print()
        console.print(moral(ends))
        console.print()
        seen = three_faults(console, data, stop_asked)
        console.print()
        costs = compare(console, data, options.rounds)
    console.print()
    rates = race(console, options.rounds)
    training = {loader: values(costs[loader], "samples_per_s") for loader in LOADERS}
    busy = busy or any(map(differ, (training, *rates.values())))
    said = verdict(ends, seen, training, rates, busy=busy)
    if options.json:
        results = {
            "verdict": said,
            "freeze": {end.loader: asdict(end) for end in ends},
            "three_faults": {loader: asdict(one)["epochs"] for loader, one in seen.items()},
            "healthy": {
                loader: [asdict(cost) if cost else None for cost in each]
                for loader, each in costs.items()
            },
            "samples_per_s": rates,
        }
        print(json.dumps(results, indent=2))
    else:
        console.print()
        console.print(cost_table(costs, rates, busy=busy))
    console.print(f"\n[bold]{said}")
    survived = went_well(seen["antifreeze"])
    trained = ends[1].state == "finished" and None not in costs["antifreeze"]
    raced = bool(rates) and all(len(f["antifreeze"]) == options.rounds for f in rates.values())
    return 0 if survived and trained and raced else 1


if __name__ == "__main__":
    sys.exit(main())
