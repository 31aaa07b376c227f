"""What a lost worker costs: from a kill or a hang to the batch, and an epoch with a kill a second.

python benchmarks/recovery.py [--rounds 15] [--json]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.utils.data
from rich.console import Console
from rich.table import Table

import antifreeze

SAMPLE_S = 0.001
BATCH = 8
LIMIT_S = 1.0  # `sample_timeout` of the hang
EPOCH = 6_000  # samples of the disturbed epoch
PEER_S = 8.0  # how long torch's loader is watched


class Mishap:
    """Samples of a millisecond; one of them is lost, once, and the time of that is written down."""

    def __init__(self, mark: Path, deed: Callable[[], object], at: int = 20) -> None:
        self.mark, self.deed, self.at = mark, deed, at

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        if index == self.at and not self.mark.exists():
            self.mark.write_text(str(time.monotonic()))
            self.deed()
        time.sleep(SAMPLE_S)
        return index


class Steady:
    def __len__(self) -> int:
        return EPOCH

    def __getitem__(self, index: int) -> int:
        time.sleep(SAMPLE_S)
        return index


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(1000)


def delay_s(
    loader_class: Any, deed: Callable[[], object], folder: Path, **more: Any
) -> float | str:
    """Give the time from a mishap to the batch it was in, beyond the batch's own time."""
    mark = folder / f"{time.monotonic_ns()}"
    dataset = Mishap(mark, deed)
    loader = loader_class(dataset, batch_size=BATCH, num_workers=1, prefetch_factor=1, **more)
    try:
        for batch in loader:
            if dataset.at in batch.tolist():
                return time.monotonic() - float(mark.read_text()) - BATCH * SAMPLE_S
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "lost"


def epoch_s(kills: bool) -> tuple[float, int]:
    """Run an epoch, with a worker killed every second or not; give its time and the kills."""
    iterator: Any = iter(antifreeze.DataLoader(Steady(), batch_size=BATCH, num_workers=2))  # type: ignore[arg-type]
    over, killed = threading.Event(), 0

    def kill() -> None:
        nonlocal killed
        while not over.wait(1.0):
            os.kill(iterator._workers[killed % 2].pid, signal.SIGKILL)
            killed += 1

    thread = threading.Thread(target=kill)
    began = time.monotonic()
    if kills:
        next(iterator)  # before there is another thread
        thread.start()
    samples = sum(len(batch) for batch in iterator) + BATCH * kills
    took_s = time.monotonic() - began
    over.set()
    if kills:
        thread.join()
    assert samples == EPOCH, f"{samples} of {EPOCH} samples"
    return took_s, killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    logging.getLogger("antifreeze").setLevel(logging.ERROR)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, ours = Path(name), antifreeze.DataLoader
        killed = [delay_s(ours, die, folder) for _ in range(asked.rounds)]
        hung = [
            delay_s(ours, hang, folder, sample_timeout=LIMIT_S) for _ in range(asked.rounds // 2)
        ]
        figures["kill to batch, ms"] = [1000 * float(each) for each in killed]
        figures["hang to batch beyond the limit, ms"] = [
            1000 * (float(each) - LIMIT_S) for each in hung
        ]
        figures["torch after a kill"] = delay_s(torch.utils.data.DataLoader, die, folder)
    rounds = [(epoch_s(False)[0], *epoch_s(True)) for _ in range(3)]
    figures["rate with a kill a second, to undisturbed"] = [quiet / hit for quiet, hit, _ in rounds]
    figures["kills"] = [count for _, _, count in rounds]
    if asked.json:
        print(json.dumps(figures))
        return
    table = Table("what", "asked", "median", "smallest", "largest")
    bars = {
        "kill to batch, ms": "< 100",
        "hang to batch beyond the limit, ms": "< 300",
        "rate with a kill a second, to undisturbed": ">= 0.8",
    }
    for what, bar in bars.items():
        values = figures[what]
        shown = [f"{value:.3g}" for value in (statistics.median(values), min(values), max(values))]
        table.add_row(what, bar, *shown)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"torch after a kill: {figures['torch after a kill']}; kills: {figures['kills']}")


if __name__ == "__main__":
    main()
