"""As many workers as the machine has cores, whoever may use them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.budget import asked_once
from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, SLOW, Hit, Rule

COUNTS = frozenset({"os.cpu_count", "multiprocessing.cpu_count", "psutil.cpu_count"})


def find(view: View) -> Iterator[Hit]:
    for node, call in _given(view):
        count = _count(node, view, 0)
        if count is not None:
            yield Hit(
                count if view.module.holds(count) else view.here(node, call),
                f"the number of workers comes from `{text_of(count)}`, which counts all cores"
                " of the machine: where fewer are allowed, workers crowd each other out",
            )


def _given(view: View) -> Iterator[tuple[ast.expr, ast.Call]]:
    for loader in view.loaders:
        node = loader["num_workers"].node
        if node is not None:
            yield node, loader.node
    for call in view.training_arguments:
        node = view.call_arguments(call)["dataloader_num_workers"].node
        if node is not None:
            yield node, call


@asked_once
def _count(node: ast.expr, view: View, depth: int) -> ast.Call | None:
    """Give the call that counts cores, if the number is that, or that and a constant."""
    if depth > 4:
        return None
    for value in view.origins(node):
        match value:
            case ast.Call() if view.resolve(value.func) in COUNTS:
                return value
            case ast.Call(func=ast.Name(id="int" | "max" | "round"), args=[inner, *_]):
                deeper = _count(inner, view, depth + 1)
            case ast.BinOp(
                op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Div(), left=left
            ) if isinstance(view.constant(value.right), (int, float)):
                deeper = _count(left, view, depth + 1)
            case ast.BinOp(op=ast.Add() | ast.Mult(), right=right) if isinstance(
                view.constant(value.left), (int, float)
            ):
                deeper = _count(right, view, depth + 1)
            case _:
                continue
        if deeper is not None:
            return deeper
    return None


RULE = Rule(
    code="AF502",
    name="workers-by-cpu-count",
    severity=SLOW,
    confidence=LIKELY,
    title="As many workers as the machine has cores",
    what="""
    `num_workers=os.cpu_count()`, `multiprocessing.cpu_count()` or `psutil.cpu_count()`, also with
    a constant added, multiplied or divided by, also as `dataloader_num_workers` of transformers.
    """,
    why="""
    `cpu_count()` counts the cores of the machine, not those this program may use. In a container
    with 4 of 64 cores it starts 64 workers, and each has its memory, its batches ahead and its
    thread pools. On a machine with several ranks every rank starts as many. torch's loader warns
    when it sees more workers than the affinity mask allows, but does not know a container's quota.
    """,
    instead="""
    Start with a small number, such as 4, and measure. If it must be counted:
    `len(os.sched_getaffinity(0))`, or `os.process_cpu_count()` from Python 3.13 on.
    With antifreeze's loader, `loader.explain()` says after some seconds whether more would help.
    """,
    not_flagged="""
    A number that is bounded (`min(8, os.cpu_count())`) or divided among ranks, and
    `os.sched_getaffinity`.
    """,
    bad="""
import os

from torch.utils.data import DataLoader


def load(dataset):
    return DataLoader(dataset, batch_size=32, num_workers=os.cpu_count())
""",
    good="""
import os

from torch.utils.data import DataLoader


def load(dataset):
    return DataLoader(dataset, batch_size=32, num_workers=len(os.sched_getaffinity(0)))
""",
    also_bad=(
        """
import multiprocessing as mp

import torch.utils.data as data

NUM_WORKERS = mp.cpu_count() - 1


class Training:
    def __init__(self, dataset):
        self.options = {"batch_size": 32, "num_workers": NUM_WORKERS}
        self.loader = data.DataLoader(dataset, **self.options)
""",
        """
from multiprocessing import cpu_count

from transformers import TrainingArguments


def arguments(folder):
    workers = cpu_count()
    return TrainingArguments(output_dir=folder, dataloader_num_workers=workers)
""",
        """
import os

from torch.utils.data import DataLoader

WORKERS = os.cpu_count()


def create_dataloaders(train, test, batch_size: int, num_workers: int = WORKERS):
    return (
        DataLoader(train, batch_size, shuffle=True, num_workers=num_workers),
        DataLoader(test, batch_size, num_workers=num_workers),
    )
""",
        """
from os import cpu_count

from torch.utils.data import DataLoader


def load(dataset, workers=None):
    workers = (cpu_count() or 1) // 2
    return DataLoader(dataset, batch_size=32, num_workers=workers)
""",
    ),
    also_good=(
        """
import os

from torch.utils.data import DataLoader


def load(dataset, batch_size):
    workers = min(os.cpu_count(), batch_size if batch_size > 1 else 0, 8)
    return DataLoader(dataset, batch_size=batch_size, num_workers=workers)
""",
        """
import os

import torch
from torch.utils.data import DataLoader


def load(dataset):
    share = os.cpu_count() // max(1, torch.cuda.device_count())
    return DataLoader(dataset, batch_size=32, num_workers=share)
""",
    ),
    find=find,
)
