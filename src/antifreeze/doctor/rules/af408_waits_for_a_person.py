"""A question to a person, in a worker that has no keyboard."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.view import View
from .base import CRASH, LIKELY, POSSIBLE, Hit, Rule

_QUIT = "it has no keyboard, and fails with BdbQuit"
_EVER = "waits for an editor of its own, for ever"
# What asks, and what becomes of it in a worker.
ASKS = {
    "input": "it has no keyboard, and fails with EOFError",
    "breakpoint": _QUIT,
    "pdb.set_trace": _QUIT,
    "ipdb.set_trace": _QUIT,
    "IPython.core.debugger.set_trace": _QUIT,
    "IPython.embed": "it has no keyboard, and fails or waits for ever",
    "pudb.set_trace": "it has no keyboard, and fails or waits for ever",
    "getpass.getpass": "asks at the one terminal of the program, and waits for ever",
    "debugpy.wait_for_client": _EVER,
    "ptvsd.wait_for_attach": _EVER,
}


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        for call in code.function.calls():
            name = view.resolve(call.func)
            if name in ASKS:
                yield Hit(
                    call,
                    f"`{name}()` in `{code.function.name}` runs in a worker: {ASKS[name]}",
                    LIKELY if code.workers is not None else POSSIBLE,
                )


RULE = Rule(
    code="AF408",
    name="waits-for-a-person",
    severity=CRASH,
    confidence=LIKELY,
    title="A worker asks a person, who cannot answer",
    what="""
    `breakpoint()`, `pdb.set_trace()`, `input()`, `IPython.embed()` and the like in code that runs
    in workers: the loading of samples, a collate function, a `worker_init_fn`.
    """,
    why="""
    The standard input of a worker is `/dev/null`. With torch 2.13 `input()` raises `EOFError: EOF
    when reading a line`, and a debugger quits at once with `bdb.BdbQuit`, as if the sample were
    broken. What reads the terminal itself (`getpass`) or waits for an editor
    (`debugpy.wait_for_client`) stops the worker for ever, and with it the loop.
    """,
    instead="""
    To look into a sample, load it without workers: `dataset[17]`, or `num_workers=0`. Take the
    question out, or ask it before the loader starts. `antifreeze attach PID` shows what a worker is
    doing without stopping it.
    """,
    not_flagged="""
    Loaders without workers, and questions in the main program.
    """,
    bad="""
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        if row["label"] < 0:
            breakpoint()
        return row["x"], row["label"]


def load(rows):
    return DataLoader(Rows(rows), batch_size=8, num_workers=4)
""",
    good="""
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        if row["label"] < 0:
            raise ValueError(f"row {index} has the label {row['label']}")
        return row["x"], row["label"]


def load(rows):
    return DataLoader(Rows(rows), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
import pdb

import torch
from torch.utils import data


class Scans(data.Dataset):
    def __init__(self, cfg):
        self.paths = cfg.paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, idx):
        return self.load(self.paths[idx])

    def load(self, path):
        scan = torch.load(path)
        pdb.set_trace()
        return scan


def build(cfg):
    return data.DataLoader(Scans(cfg), cfg.batch_size, num_workers=cfg.num_workers)
""",
        """
from getpass import getpass

from torch.utils.data import DataLoader


def log_in(worker_id):
    global password
    password = getpass(f"worker {worker_id}: ")


def make(dataset):
    return DataLoader(dataset, num_workers=2, worker_init_fn=log_in)
""",
    ),
    also_good=(
        """
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        breakpoint()
        return self.rows[index]


def look(rows):
    return DataLoader(Rows(rows), batch_size=8, num_workers=0)
""",
        """
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def main(rows):
    if input("train? ") == "y":
        for batch in DataLoader(Rows(rows), num_workers=4):
            print(batch)
""",
    ),
    find=find,
    follows=True,
)
