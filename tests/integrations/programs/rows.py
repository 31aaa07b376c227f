"""What every program here trains on: rows of which one, in the middle, kills its worker.

Run with `WAY` in the environment: "own" (the program takes our loader), "install" (it calls
`antifreeze.install()` first), "late" (it calls that when `TRAINER` is imported already), or "torch"
(it does nothing: whoever runs it may).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

WAY = os.environ["WAY"]
FOLDER = Path(os.environ["FOLDER"])  # for marks and reports

if WAY == "late":
    importlib.import_module(os.environ["TRAINER"])
if WAY in ("install", "late"):
    import antifreeze

    antifreeze.install()

import torch  # noqa: E402
from torch.utils.data import Dataset, get_worker_info  # noqa: E402

if WAY == "own":
    from antifreeze import DataLoader
else:
    from torch.utils.data import DataLoader

__all__ = ["FOLDER", "WAY", "DataLoader", "Rows", "Step", "rank", "report"]


class Rows(Dataset[dict[str, Any]]):
    """Rows that know their number. Once in each rank, one of the second half kills its worker."""

    def __init__(self, length: int, name: str = "rows") -> None:
        self.length = length
        self.name = name

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        with (FOLDER / f"loads-{self.name}.txt").open("a") as loads:
            loads.write(f"{index} {os.getpid()} {_loader_at_work()}\n")
        if index >= self.length // 2 and get_worker_info() is not None:
            self._die_once()
        x = torch.full((4,), index / self.length)
        return {"x": x, "labels": x.sum(), "index": index}

    def _die_once(self) -> None:
        try:
            (FOLDER / f"killed-{self.name}-{rank()}").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


class Step(torch.nn.Module):
    """A linear model that keeps which rows it was trained and tried on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
        self.trained: list[list[int]] = []
        self.tried: list[list[int]] = []

    def forward(
        self, x: torch.Tensor, labels: torch.Tensor, index: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        (self.trained if self.training else self.tried).append(index.tolist())
        guess = self.linear(x).squeeze(-1)
        return {"loss": torch.nn.functional.mse_loss(guess, labels), "logits": guess}


def rank() -> int:
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0)))


def report(loader: Any, **facts: Any) -> None:
    """Say in a file what this rank has seen, and with which loader."""
    kind = type(loader)
    facts |= {"loader": f"{kind.__module__}.{kind.__name__}", "rank": rank()}
    facts["bases"] = [f"{each.__module__}.{each.__name__}" for each in kind.__mro__]
    (FOLDER / f"rank{rank()}.json").write_text(json.dumps(facts))


def _loader_at_work() -> str:
    """Tell whose code loads this row: the one question that no wrapper can answer wrongly."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("antifreeze."):
            return "antifreeze"
        frame = frame.f_back
    return "torch"
