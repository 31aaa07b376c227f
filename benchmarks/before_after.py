"""What a change costs: two trees of antifreeze on every workload, in turns, in one run.

python benchmarks/before_after.py OLDER_SRC [--rounds N] [--turn SECONDS] [workload ...]

OLDER_SRC is the `src` folder of another checkout (git worktree add ../older REVISION). The other
tree is the one this file is in. Beside the rates it gives the CPU time of a batch, main process
and workers together, in the best round: on a machine that others use it shows small differences
that rates cannot.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import rates
from contenders import NUM_WORKERS, Contender, Make
from rich.console import Console
from rich.table import Table
from torch.utils.data import Dataset
from workloads import WORKLOADS, Workload

SETTINGS = {"2, kept": (NUM_WORKERS, True), "0": (0, False)}


def _of_tree(source: Path, workers: int, persistent: bool) -> Make:
    """Make a loader of one tree; called in a process of its own."""

    def make(dataset: Dataset[Any], workload: Workload) -> Iterable[Any]:
        sys.path.insert(0, str(source))
        module = importlib.import_module("antifreeze")
        assert Path(str(module.__file__)).is_relative_to(source), module.__file__
        loader: Iterable[Any] = module.DataLoader(
            dataset,
            batch_size=workload.batch_size,
            collate_fn=workload.collate,
            num_workers=workers,
            persistent_workers=persistent,
        )
        return loader

    return make


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("older", type=Path)
    parser.add_argument("workloads", nargs="*", default=[each.name for each in WORKLOADS])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--turn", type=float, default=rates.TURN_S, metavar="SECONDS")
    wanted = parser.parse_intermixed_args()
    rates.ROUNDS, rates.TURN_S = wanted.rounds, wanted.turn
    trees = {
        "before": wanted.older.resolve(),
        "after": Path(__file__).resolve().parent.parent / "src",
    }
    table = Table("workload", "workers", "samples/s", "after", "ratio", "spread", "CPU us", "after")
    table.add_column("ratio")
    console = Console()
    for workload in (each for each in WORKLOADS if each.name in wanted.workloads):
        for setting, (workers, persistent) in SETTINGS.items():
            contenders = [
                Contender(key, key, "own", _of_tree(source, workers, persistent))
                for key, source in trees.items()
            ]
            before, after = rates.measure(workload, contenders, quick=False)
            divided = sorted(rates.ratios(after, before))
            if not divided:
                table.add_row(workload.name, setting, "-", "-", before.error or after.error)
                continue
            quarter = len(divided) // 4
            table.add_row(
                workload.name,
                setting,
                f"{before.rate or 0:,.0f}",
                f"{after.rate or 0:,.0f}",
                f"{statistics.median(divided):.3f}",
                f"{divided[quarter]:.2f}-{divided[-1 - quarter]:.2f}",
                f"{before.least_cpu_s * 1e6:.1f}",
                f"{after.least_cpu_s * 1e6:.1f}",
                f"{after.least_cpu_s / before.least_cpu_s:.3f}",
            )
            console.print(f"{workload.name}, {setting} workers: {statistics.median(divided):.3f}")
    console.print(table)


if __name__ == "__main__":
    main()
