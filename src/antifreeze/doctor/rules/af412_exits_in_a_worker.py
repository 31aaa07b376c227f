"""A worker that ends itself takes its batch along, and the loop with it."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.view import View
from .base import CRASH, LIKELY, POSSIBLE, Hit, Rule

EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit", "os.abort"})


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if code.only_ours:
            continue  # it names the sample and the exit code
        for call in code.function.calls():
            name = view.resolve(call.func)
            if name in EXITS:
                yield Hit(
                    call,
                    f"`{name}()` in `{code.function.name}` ends the worker, not the program: the"
                    " loop fails with `DataLoader worker exited unexpectedly`, without a cause",
                    LIKELY if code.workers is not None else POSSIBLE,
                )


RULE = Rule(
    code="AF412",
    name="exits-in-a-worker",
    severity=CRASH,
    confidence=LIKELY,
    title="Code that runs in workers ends the process",
    what="""
    `sys.exit()`, `exit()`, `quit()`, `os._exit()` or `os.abort()` where samples are loaded, in a
    collate function, or in a `worker_init_fn`.
    """,
    why="""
    It ends the worker and not the program. With torch 2.13 the main process waits up to five
    seconds, and then raises `RuntimeError: DataLoader worker (pid(s) 41207) exited unexpectedly`.
    What was written before may be lost, and neither the sample nor the reason is named. After
    `sys.exit(0)` the exit code is that of success.
    """,
    instead="""
    Raise an exception that says what is wrong: it comes up in the main process, with its
    traceback. Check what must be there (files, settings) in `__init__`, before workers start.
    """,
    not_flagged="""
    Exits in the main program, also in `__init__` of a dataset. Datasets whose loaders have no
    workers, or are antifreeze's, which names the sample.
    """,
    bad="""
import os
import sys

from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        if not os.path.exists(self.paths[index]):
            print("missing:", self.paths[index])
            sys.exit(1)
        with open(self.paths[index]) as file:
            return file.read()


def load(paths):
    return DataLoader(Texts(paths), batch_size=8, num_workers=4)
""",
    good="""
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index]) as file:
            return file.read()


def load(paths):
    return DataLoader(Texts(paths), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
from sys import exit as stop

import torch
from torch.utils.data import DataLoader


def stack(samples):
    shapes = {tuple(each.shape) for each in samples}
    if len(shapes) > 1:
        print("shapes differ:", shapes)
        stop()
    return torch.stack(samples)


def make_loader(dataset, args):
    return DataLoader(dataset, batch_size=args.batch_size, num_workers=8, collate_fn=stack)
""",
        """
import os

import torch.utils.data as data


class Clips(data.Dataset):
    def __init__(self, reader, count):
        self.reader = reader
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self._decode(index)

    def _decode(self, index):
        clip = self.reader.decode(index)
        if clip is None:
            os._exit(1)
        return clip


def loaders(reader, opt):
    kwargs = {"batch_size": opt.batch, "num_workers": opt.workers}
    return data.DataLoader(Clips(reader, 100), **kwargs)
""",
    ),
    also_good=(
        """
import os
import sys

from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, folder):
        if not os.path.isdir(folder):
            sys.exit(f"{folder} is no folder")
        self.paths = sorted(os.path.join(folder, each) for each in os.listdir(folder))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index]) as file:
            return file.read()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(2)
    for batch in DataLoader(Texts(sys.argv[1]), num_workers=4):
        print(len(batch))
""",
        """
import sys

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if self.rows[index] is None:
            sys.exit(f"row {index} is empty")
        return self.rows[index]


def load(rows):
    return DataLoader(Rows(rows), batch_size=8)
""",
    ),
    find=find,
    follows=True,
)
