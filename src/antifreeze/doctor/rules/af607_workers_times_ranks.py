"""As many workers as there are cores, in every rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.budget import asked_once
from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, SLOW, Hit, Rule

_CORES = frozenset({"os.cpu_count", "multiprocessing.cpu_count", "os.process_cpu_count"})
_COUNTED = ("os.sched_getaffinity", "psutil.cpu_count")


def find(view: View) -> Iterator[Hit]:
    if not view.distributed:
        return
    for loader in view.loaders:
        node = loader["num_workers"].node
        if node is None or loader.ours:
            continue
        for value in view.values(node):
            if _all_cores(value, view):
                yield Hit(
                    loader.node,
                    f"`num_workers` is the number of cores (`{text_of(value)}`), and each rank"
                    f" of a machine starts as many ({view.distributed})",
                )
                break


@asked_once
def _all_cores(node: ast.expr, view: View, depth: int = 0) -> bool:
    """Say whether a number is that of the cores: not divided, not bounded."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Call() as inside]):
            return view.resolve(inside.func) in _COUNTED
        case ast.Call(func=ast.Name(id="int"), args=[inside]):
            return _all_cores(inside, view, depth + 1)
        case ast.Call():
            return view.resolve(node.func) in (*_CORES, "psutil.cpu_count")
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult()) if depth < 4:
            return any(_all_cores(each, view, depth + 1) for each in view.values(left))
        case _:
            return False


RULE = Rule(
    code="AF607",
    name="workers-times-ranks",
    severity=SLOW,
    confidence=LIKELY,
    title="Every rank starts as many workers as there are cores",
    what="""
    `num_workers` is the number of cores, in a program with several ranks.
    """,
    why="""
    `num_workers` counts for each rank. Eight ranks on a machine of 64 cores start 512 workers, each
    with its own copy of what the dataset holds: cores are shared by eight, memory and starting time
    are eight times as much, and the loader waits for the slowest of its workers.
    """,
    instead="""
    Divide by the ranks of a machine: `len(os.sched_getaffinity(0)) //
    int(os.environ["LOCAL_WORLD_SIZE"])`.
    """,
    not_flagged="""
    Numbers that are divided or bounded (`min(8, ...)`), and antifreeze's loader.
    """,
    bad="""
import os

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def load(dataset, epoch):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset)
    sampler.set_epoch(epoch)
    return DataLoader(dataset, sampler=sampler, num_workers=len(os.sched_getaffinity(0)))
""",
    good="""
import os

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def load(dataset, epoch):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset)
    sampler.set_epoch(epoch)
    workers = len(os.sched_getaffinity(0)) // int(os.environ["LOCAL_WORLD_SIZE"])
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
    also_bad=(
        """
import os

import lightning as L
from torch.utils.data import DataLoader

WORKERS = len(os.sched_getaffinity(0)) - 1


class Data(L.LightningDataModule):
    def __init__(self, dataset, batch_size):
        super().__init__()
        self.dataset, self.batch_size = dataset, batch_size

    def train_dataloader(self):
        return DataLoader(self.dataset, self.batch_size, shuffle=True, num_workers=WORKERS)


def main(model, dataset):
    trainer = L.Trainer(devices=8, strategy="ddp")
    trainer.fit(model, Data(dataset, 32))
""",
        """
import os

from torch.utils.data import DataLoader

LOCAL_RANK = int(os.environ["LOCAL_RANK"])


class Options:
    def __init__(self, args):
        self.batch = args.batch
        self.workers = int(len(os.sched_getaffinity(0)))

    def loader(self, dataset, sampler):
        return DataLoader(dataset, self.batch, sampler=sampler, num_workers=self.workers)
""",
    ),
    also_good=(
        """
import os

from torch.utils.data import DataLoader

rank = int(os.environ["LOCAL_RANK"])


def load(dataset, sampler):
    workers = min(8, len(os.sched_getaffinity(0)))
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
        """
import os

from torch.utils.data import DataLoader


def load(dataset, sampler):
    return DataLoader(dataset, sampler=sampler, num_workers=len(os.sched_getaffinity(0)))
""",
    ),
    find=find,
)
