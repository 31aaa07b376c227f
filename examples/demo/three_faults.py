"""Show three faults: what torch's loop makes of each, and ours of all three in one epoch."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import BROKEN, HANGS, KILLED, SAMPLE_TIMEOUT_S
from pictures import COUNT
from rich.console import Console
from rich.live import Live
from rich.table import Table
from watched import follow_lines

WHAT = {BROKEN: "half a JPEG file", HANGS: "never returns", KILLED: "its worker is killed"}
# How long torch's loop may wait for one batch. A healthy one takes a hundredth of a second.
STILL_S = 6.0
BOUND_S = 45.0


@dataclass(slots=True)
class Epoch:
    """What has been told of one epoch so far."""

    faults: list[int]
    batches: int
    batch: int = 0
    told: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None
    frozen: bool = False


@dataclass(slots=True)
class Seen:
    """What has been told of one loader, and when the last line came."""

    epochs: list[Epoch] = field(default_factory=list)
    last_line: float = 0.0
    over: bool = False

    def take(self, facts: dict[str, Any]) -> None:
        """Read one line."""
        self.last_line = time.monotonic()
        match facts.pop("event"):
            case "begun":
                self.epochs.append(Epoch(facts["faults"], facts["batches"]))
            case "batch":
                self.epochs[-1].batch = facts["batch"]
            case "fault":
                self.epochs[-1].told.append(facts)
            case "ended":
                self.epochs[-1].end = facts

    @property
    def still_s(self) -> float:
        """Return how long the present epoch has stood still."""
        if not self.epochs or self.epochs[-1].end is not None:
            return 0.0
        return time.monotonic() - self.last_line

    def epoch_with(self, fault: int) -> Epoch | None:
        """Return the epoch that has this fault in it."""
        return next((epoch for epoch in self.epochs if fault in epoch.faults), None)


def three_faults(console: Console, data: Path, stop_asked: threading.Event) -> dict[str, Seen]:
    """Let both loaders meet the faults at the same time; show what comes of it."""
    console.rule("[bold]2. Three faults: half a file, a killed worker, a sample that never returns")
    console.print(
        'Ours has all of them in one epoch: DataLoader(..., on_error="skip", '
        f"sample_timeout={SAMPLE_TIMEOUT_S:g}).\ntorch's has an epoch for each, and {STILL_S:.0f} "
        "seconds for a batch.\n",
        markup=False,
    )
    seen = {"torch": Seen(), "antifreeze": Seen()}
    with contextlib.ExitStack() as stack:
        runs = {}
        for loader in seen:
            lines = follow_lines(
                "faults.py", "--loader", loader, "--data", str(data), bound_s=BOUND_S
            )
            runs[loader] = stack.enter_context(contextlib.closing(lines))
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        while not all(one.over for one in seen.values()):
            if stop_asked.is_set():
                raise SystemExit(128 + signal.SIGTERM)  # leaving the runs ends them
            for loader, one in seen.items():
                _follow(runs[loader], one)
            if console.is_terminal:
                live.update(fault_table(seen), refresh=True)
    if not console.is_terminal:
        console.print(fault_table(seen))
    return seen


def _follow(lines: Generator[dict[str, Any] | None, None, None], seen: Seen) -> None:
    """Take what has come; give up a loop that stands still."""
    if seen.over:
        return
    for facts in lines:
        if facts is None:
            break
        seen.take(facts)
    else:
        seen.over = True
    if seen.still_s > STILL_S:
        lines.close()
        seen.epochs[-1].frozen = seen.over = True


def fault_table(seen: dict[str, Seen]) -> Table:
    """Draw one row a fault, with what both loaders made of it so far."""
    table = Table(expand=True)
    table.add_column("sample", justify="right", no_wrap=True)
    table.add_column("fault", no_wrap=True)
    table.add_column("torch, an epoch each", ratio=4)
    table.add_column("antifreeze, one epoch", ratio=5)
    for fault, what in WHAT.items():
        theirs = in_words(seen["torch"].epoch_with(fault))
        table.add_row(str(fault), what, theirs, handled(seen["antifreeze"], fault))
    table.add_section()
    table.add_row("", "delivered", *(delivered(one) for one in seen.values()))
    return table


def in_words(epoch: Epoch | None) -> str:
    """Say how an epoch of torch's loader went."""
    if epoch is None:
        return "[dim]not yet"
    after = f"after batch {epoch.batch} of {epoch.batches}"
    if epoch.frozen:
        return f"[red]hangs {after}:[/red] no batch for {STILL_S:.0f} s; ended by us"
    if epoch.end is None:
        return f"[yellow]batch {epoch.batch} of {epoch.batches}"
    if error := epoch.end["error"]:
        kind, _, words = error.partition("\n")[0].partition(": ")
        # "Caught OSError in DataLoader worker process 0." has the kind in it.
        said = words if kind in words else f"{kind}: {words}".strip(": ")
        return f"[red]raises {after}:[/red] {said}"
    return f"[green]finished, {epoch.end['samples']} samples"


def handled(seen: Seen, fault: int) -> str:
    """Say what our loader did about one sample, in the words of its own list of faults."""
    epoch = seen.epochs[-1] if seen.epochs else None
    told = [one for one in epoch.told if one["index"] == fault] if epoch else []
    if not told:
        return "[dim]not yet"
    last = told[-1]
    words = last["what"]
    if last["kind"] == "hang":
        words = words.partition(" was ")[2].partition(" (")[0]
    elif last["kind"] == "crash":
        words = words[words.index("killed") :].partition(". ")[0]
    tries = ", tried twice" if len(told) > 1 else ""
    done = {"retried": "loaded again by a new worker"}.get(last["verdict"], last["verdict"])
    return f"[green]{done}{tries}:[/green] {words}"


def delivered(seen: Seen) -> str:
    """Say how many samples came; of torch's loader, in its best epoch."""
    ends = [epoch.end for epoch in seen.epochs if epoch.end is not None]
    if not ends:
        return ""
    best = max(end["samples"] for end in ends)
    if len(seen.epochs) > 1:
        return f"at most {best} of {COUNT} samples"
    took = f"{best} of {COUNT} samples in {ends[0]['seconds']:.1f} s"
    if not went_well(seen):
        return f"[red]{took}. That is a bug of ours."
    return f"[green]{took}: all but the two"


def went_well(seen: Seen) -> bool:
    """Tell whether one epoch came to its end with every sample but the two that cannot be had."""
    if len(seen.epochs) != 1 or seen.epochs[0].end is None:
        return False
    end = seen.epochs[0].end
    return not end["error"] and end["missing"] == [BROKEN, HANGS] and end["samples"] == COUNT - 2
