"""A random split that each rank draws for itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

# Who splits, and the argument that makes the split the same everywhere.
_SPLITS = {
    "torch.utils.data.random_split": "generator",
    "sklearn.model_selection.train_test_split": "random_state",
}
_SEEDED_BY = {
    "torch.utils.data.random_split": frozenset(
        {"torch.manual_seed", "torch.random.manual_seed", "torch.seed"}
    ),
    "sklearn.model_selection.train_test_split": frozenset({"numpy.random.seed"}),
}


def find(view: View) -> Iterator[Hit]:
    if not view.distributed:
        return
    for name, argument in _SPLITS.items():
        for call in view.calls(name):
            given = view.call_arguments(call, ("dataset", "lengths", "generator"))
            if name.endswith("train_test_split"):
                given = view.call_arguments(call)
                if given["shuffle"].is_(False):
                    continue
            if given.open_ended and not name.endswith("train_test_split"):
                continue
            if given[argument].given and not given[argument].is_(None):
                continue
            if _is_seeded(name, view):
                continue
            yield Hit(
                call,
                f"each rank draws this split for itself, without a seed: samples that one rank"
                f" validates with are in another's training; pass `{argument}`",
                LIKELY if not view.project.importers(view.path) else POSSIBLE,
            )


def _is_seeded(name: str, view: View) -> bool:
    """Say whether a seed is set for the whole program, under whatever name."""
    for call in view.module.nodes(ast.Call):
        called = view.resolve(call.func) or text_of(call.func)
        if called in _SEEDED_BY[name] or "seed" in called.rpartition(".")[2].lower():
            return True
    return False


RULE = Rule(
    code="AF610",
    name="split-of-each-rank",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="Each rank draws a split of its own",
    what="""
    `random_split` without a `generator`, or `train_test_split` without a `random_state`, in a
    program with several ranks in which nothing sets a seed.
    """,
    why="""
    Every rank runs the same script with another random state. Each draws its own split, so that
    what one rank keeps for validation is in the training data of another: the score is too good,
    and nothing fails. After a restart the split is another one again, on one rank, too.
    """,
    instead="""
    `random_split(dataset, lengths, generator=torch.Generator().manual_seed(0))`, or
    `train_test_split(..., random_state=0)`.
    """,
    not_flagged="""
    Programs with one rank; files in which anything with "seed" in its name is called; splits with a
    generator of their own. In a file that others import, which may set the seed, it is shown with
    `--confidence possible`.
    """,
    bad="""
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, random_split


def load(dataset):
    dist.init_process_group("nccl")
    count = len(dataset) // 10
    train, held = random_split(dataset, [len(dataset) - count, count])
    sampler = DistributedSampler(train, shuffle=False)
    return DataLoader(train, 32, sampler=sampler, num_workers=4), DataLoader(held, 32)
""",
    good="""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, random_split


def load(dataset):
    dist.init_process_group("nccl")
    count = len(dataset) // 10
    same = torch.Generator().manual_seed(0)
    train, held = random_split(dataset, [len(dataset) - count, count], generator=same)
    sampler = DistributedSampler(train, shuffle=False)
    return DataLoader(train, 32, sampler=sampler, num_workers=4), DataLoader(held, 32)
""",
    also_bad=(
        """
import os

from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, DistributedSampler, Subset


def load(dataset):
    rank = int(os.environ["RANK"])
    train, held = train_test_split(range(len(dataset)), test_size=0.1)
    sampler = DistributedSampler(Subset(dataset, train), shuffle=False, rank=rank)
    return DataLoader(Subset(dataset, train), 32, sampler=sampler, num_workers=4)
""",
    ),
    also_good=(
        """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, random_split


def load(dataset, args):
    torch.manual_seed(args.seed)
    dist.init_process_group("nccl")
    train, held = random_split(dataset, [0.9, 0.1])
    sampler = DistributedSampler(train, shuffle=False)
    return DataLoader(train, 32, sampler=sampler, num_workers=4), DataLoader(held, 32)
""",
    ),
    find=find,
)
