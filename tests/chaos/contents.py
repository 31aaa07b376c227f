"""What epochs are made of: samples that follow from their index, and deeds that samples do.

1. `sample` is a pure function of kind and index; only the augmented kind draws, on top of it.
2. A dataset notes on a board of its worker which sample it is at, for whoever strikes that worker.
3. A deed is done before the sample is made, always or once; each time it is noted as a hit.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

KINDS = ("rows", "slabs", "ragged", "augmented")
BOARD = "<qd"  # the index, and when it was begun
HIT_LOG = "hits.jsonl"
LONG_S = 1000.0
EATEN_MIB = 3000  # more than any group of ours may use


@dataclass(frozen=True)
class Deed:
    """What a sample does instead of coming at once."""

    what: str  # raise, die, hang, deadlock, eat
    once: bool
    how: str = ""

    @property
    def is_lethal(self) -> bool:
        """Say whether it costs the worker its life."""
        return self.what != "raise"


def sample(kind: str, index: int) -> Any:
    """Make the sample of an index."""
    match kind:
        case "rows":
            return index, float(index) / 7
        case "slabs":  # 192 KiB: batches travel in slabs
            return torch.full((3, 128, 128), index, dtype=torch.int32) + torch.arange(128)
        case "ragged":
            values = torch.arange(index % 17 + 1) + index
            return {"index": index, "name": f"sample {index}", "values": values}
        case "augmented":
            return torch.arange(32, dtype=torch.float64) * index
    raise ValueError(kind)


def as_they_are(rows: list[Any]) -> list[Any]:
    """Collate nothing: ragged samples do not stack."""
    return rows


class Troubled:
    """A dataset of known content, some of whose samples do harm."""

    def __init__(self, kind: str, length: int, nap_s: float, folder: Path | None) -> None:
        self.kind, self.length, self.nap_s, self.folder = kind, length, nap_s, folder
        self.deeds: dict[int, Deed] = {}
        self.rng = np.random.default_rng(5)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if self.folder is not None:
            self._note_on_board(self.folder, index)
            if (deed := self.deeds.get(index)) is not None and self._is_due(index, deed):
                with open(self.folder / HIT_LOG, "a") as log:
                    hit = {"index": index, "at": time.monotonic(), "kind": f"sample: {deed.what}"}
                    log.write(json.dumps(hit) + "\n")
                do(deed, index)
        time.sleep(self.nap_s)
        made = sample(self.kind, index)
        if self.kind == "augmented":
            drawn = random.random() + np.random.rand() + self.rng.random() + torch.rand(1).item()
            made = made + drawn
        return made

    def _is_due(self, index: int, deed: Deed) -> bool:
        if not deed.once or self.folder is None:
            return True
        try:
            os.close(os.open(self.folder / f"{index}.once", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _note_on_board(self, folder: Path, index: int) -> None:
        board = os.open(folder / f"board-{os.getpid()}", os.O_CREAT | os.O_WRONLY)
        os.pwrite(board, struct.pack(BOARD, index, time.monotonic()), 0)
        os.close(board)


def do(deed: Deed, index: int) -> None:
    match deed.what:
        case "raise":
            raise ValueError(f"sample {index} is bad")
        case "die":
            _die(deed.how)
        case "hang":
            _hang(deed.how)
        case "deadlock":
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        case "eat":
            hoard = [bytearray(os.urandom(1 << 20)) for _ in range(EATEN_MIB)]
            raise MemoryError(f"{len(hoard)} MiB were there")


def _die(how: str) -> None:
    if how == "_exit":
        os._exit(3)
    if how == "SystemExit":
        raise SystemExit(4)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(LONG_S)


def _hang(how: str) -> None:
    if how == "spin":
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            pass
    if how == "native":  # keeps the interpreter's lock
        ctypes.PyDLL(None).sleep(int(LONG_S))
    time.sleep(LONG_S)
