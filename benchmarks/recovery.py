"""What a lost worker costs: from a kill or a hang to the batch, and an epoch with a kill a second.

Beside it, what other loaders do when a worker is killed, and when a sample hangs.

python benchmarks/recovery.py [--rounds 15] [--quick] [--peers torch-plain grain] [--json]
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

from aftermath import LIMIT_S, WHO, Aftermath, watch
from mishaps import BATCH, DEEDS, SAMPLE_S, SAMPLES, Mishap, die, hang
from rich.console import Console
from rich.table import Table

import antifreeze

EPOCH = 6_000  # samples of the disturbed epoch
PEER_S, QUICK_S = 8.0, 2.0  # how long a loader is watched after its mishap
BARS = {
    "kill to batch, ms": "< 100",
    "hang to batch beyond the limit, ms": "< 300",
    "rate with a kill a second, to undisturbed": ">= 0.8",
}


class Steady:
    def __len__(self) -> int:
        return EPOCH

    def __getitem__(self, index: int) -> int:
        time.sleep(SAMPLE_S)
        return index


def delay_s(deed: Callable[[], object], folder: Path, **more: Any) -> float:
    """Give the time from a mishap to the batch it was in, beyond the batch's own time."""
    mark = folder / f"{time.monotonic_ns()}"
    dataset = Mishap(mark, deed)
    loader = antifreeze.DataLoader(
        dataset, batch_size=BATCH, num_workers=1, prefetch_factor=1, **more
    )
    for batch in loader:
        if dataset.at in batch.tolist():
            return time.monotonic() - float(mark.read_text()) - BATCH * SAMPLE_S
    raise AssertionError("the batch was lost")


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


def ours(rounds: int, epochs: int, folder: Path) -> dict[str, Any]:
    """Measure what a lost worker costs with antifreeze."""
    killed = [delay_s(die, folder) for _ in range(rounds)]
    hung = [delay_s(hang, folder, sample_timeout=LIMIT_S) for _ in range(max(1, rounds // 2))]
    pairs = [(epoch_s(False)[0], *epoch_s(True)) for _ in range(epochs)]
    return {
        "kill to batch, ms": [1000 * each for each in killed],
        "hang to batch beyond the limit, ms": [1000 * (each - LIMIT_S) for each in hung],
        "rate with a kill a second, to undisturbed": [quiet / hit for quiet, hit, _ in pairs],
        "kills": [count for _, _, count in pairs],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="two rounds; peers for 2 s")
    parser.add_argument("--peers", nargs="*", choices=WHO, default=WHO, help="some of them")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    logging.getLogger("antifreeze").setLevel(logging.ERROR)
    rounds, epochs, watched_s = (2, 1, QUICK_S) if asked.quick else (asked.rounds, 3, PEER_S)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        after = [watch(who, what, folder, watched_s) for who in asked.peers for what in DEEDS]
        figures = ours(rounds, epochs, folder)
    figures["watched, s"] = watched_s
    figures["after a mishap"] = [each.as_json() for each in after]
    if asked.json:
        print(json.dumps(figures))
        return
    console = Console(highlight=False)
    console.print(table_of(figures))
    console.print(f"kills: {figures['kills']}")
    console.print(table_of_peers(after, watched_s))


def table_of(figures: dict[str, Any]) -> Table:
    table = Table("antifreeze", "asked", "median", "smallest", "largest")
    for what, bar in BARS.items():
        values = figures[what]
        shown = [f"{value:.3g}" for value in (statistics.median(values), min(values), max(values))]
        table.add_row(what, bar, *shown)
    return table


def table_of_peers(after: list[Aftermath], watched_s: float) -> Table:
    title = f"one epoch of {SAMPLES} samples, two workers; watched for {watched_s:g} s"
    table = Table("loader", "version", *DEEDS, title=title)
    for one in dict.fromkeys(each.loader for each in after):
        does = [each for each in after if each.loader == one]
        table.add_row(one, does[0].version, *(each.words for each in does))
    return table


if __name__ == "__main__":
    main()
