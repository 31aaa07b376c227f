"""Ranks that all go over the whole dataset."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..source.definitions import DatasetKind
from ..source.loaders import Loader
from ..source.view import View
from ..source.wording import text_of
from .af605_iterable_in_every_worker import is_finite
from .base import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

_SPREADS = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_shard",
    "torch.distributed.init_process_group",
    "horovod.torch.DistributedOptimizer",
    "deepspeed.initialize",
)
# Who gives each rank its part by itself, or may.
_PART_THEM = (
    *("lightning", "pytorch_lightning", "lightning_fabric", "accelerate", "transformers", "ray"),
    *("ignite", "composer", "webdataset", "torchdata", "catalyst", "mmengine"),
)
_BY_RANK = re.compile(r"rank|world|shard|replica|split_dataset_by_node|local_|num_proc|partition")
_CHOICE = re.compile(r"distributed|world|rank|ddp|gpu|parallel|device_count|sampler", re.IGNORECASE)


def find(view: View) -> Iterator[Hit]:
    if view.imports(*_PART_THEM) or not view.distributed:
        return
    spreads = view.calls(*_SPREADS)
    if _has_sampler_for_ranks(view):
        return
    for loader in view.loaders:
        if spreads and _streams_all(loader, view) and not _is_parted(loader, view):
            yield Hit(
                loader.node,
                "every rank goes over the whole stream: nothing in this iterable dataset asks for"
                " the rank, so that an epoch is as many epochs as there are ranks",
            )
        if not _shuffles_all(loader) or loader.for_evaluation or _is_parted(loader, view):
            continue
        yield Hit(
            loader.node,
            "every rank goes over the whole dataset: this loader shuffles by itself, without a"
            " DistributedSampler, so that an epoch is as many epochs as there are ranks",
            LIKELY if spreads else POSSIBLE,
        )


def _has_sampler_for_ranks(view: View) -> bool:
    return any(
        "Sampler" in name and ("Distributed" in name or "Rank" in name)
        for name in (text_of(each.func) for each in view.module.nodes(ast.Call))
    )


def _shuffles_all(loader: Loader) -> bool:
    own = ("sampler", "batch_sampler")
    plain = all(loader[each].absent or loader[each].is_(None) for each in own)
    mapped = loader.dataset is None or loader.dataset.kind is DatasetKind.MAP
    return loader["shuffle"].is_(True) and plain and mapped and not loader.hook


def _streams_all(loader: Loader, view: View) -> bool:
    dataset = loader.dataset
    return (
        dataset is not None
        and dataset.kind is DatasetKind.ITERABLE
        and dataset.is_known_whole
        and not loader.for_evaluation
        and is_finite(dataset, view)
    )


def _is_parted(loader: Loader, view: View) -> bool:
    """Say whether the dataset depends on the rank, or the loader is of a program with one."""
    for each in view.module.ancestors(loader.node):
        if isinstance(each, (ast.If, ast.IfExp)) and _CHOICE.search(text_of(each.test)):
            return True
    node = loader["dataset"].node
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)] if node else []
    made = [each for name in names for each in view.origins(name)]
    if node is not None:
        made += [node, *view.origins(node)]
    if any(_BY_RANK.search(text_of(each).lower()) or _is_chosen(each) for each in made):
        return True
    dataset = loader.dataset
    inside = [
        name.id if isinstance(name, ast.Name) else name.attr
        for body in (dataset.lineage if dataset is not None else ())
        for name in ast.walk(body.node)
        if isinstance(name, (ast.Name, ast.Attribute))
    ]
    return any(_BY_RANK.search(each.lower()) for each in inside)


def _is_chosen(node: ast.expr) -> bool:
    """Say whether it is a part that a variable chooses: `indices[mine]`."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Name, ast.Slice))


RULE = Rule(
    code="AF602",
    name="every-rank-loads-everything",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="Every rank goes over the whole dataset",
    what="""
    A loader with `shuffle=True` and no sampler, of a map-style dataset, or of an iterable dataset
    that does not ask for its rank, in a file that trains with several ranks
    (`DistributedDataParallel`, `init_process_group`, FSDP).
    """,
    why="""
    Ranks know nothing of each other's loaders. Each one shuffles the whole dataset: an epoch is
    as many epochs as there are ranks, and where all ranks have the same seed they all compute the
    same batches, and a second GPU brings nothing. Nothing fails
    ([torch's DDP tutorial](https://docs.pytorch.org/tutorials/beginner/ddp_series_multigpu.html)
    has the sampler for this reason).
    """,
    instead="""
    `sampler = DistributedSampler(dataset)` in place of `shuffle=True`, and
    `sampler.set_epoch(epoch)` at the start of each epoch.
    """,
    not_flagged="""
    Programs with Lightning, accelerate, transformers, ignite, Ray and the like, which part the
    samples themselves. Loaders for validation or tests, loaders under an `if` that asks for
    the ranks, and datasets that are made with the rank. Where only another file shows the ranks:
    `--confidence possible`.
    """,
    bad="""
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def main(dataset, model):
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4)
    for batch in loader:
        model(batch).backward()
""",
    good="""
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def main(dataset, model):
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, num_workers=4)
    sampler.set_epoch(0)
    for batch in loader:
        model(batch).backward()
""",
    also_bad=(
        """
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        with open(self.path) as file:
            for number, line in enumerate(file):
                if number % step == first:
                    yield torch.tensor([float(each) for each in line.split(",")])


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    loader = DataLoader(Lines("train.csv"), batch_size=64, num_workers=4)
    model = DistributedDataParallel(torch.nn.Linear(10, 1).cuda())
    for x in loader:
        model(x.cuda()).mean().backward()
""",
        """
import argparse
import os

import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.length = len(file.read())

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.tensor(index)


class Trainer:
    def __init__(self, model, args):
        self.device = int(os.environ["LOCAL_RANK"])
        self.model = DDP(model.to(self.device), device_ids=[self.device])
        self.train_loader = DataLoader(
            Texts(args.path), args.batch_size, True, num_workers=args.workers, drop_last=True
        )

    def fit(self):
        for batch in self.train_loader:
            self.model(batch.to(self.device)).backward()


def main(model):
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=4)
    Trainer(model, parser.parse_args()).fit()
""",
        """
import torch
import torch.distributed
from torch.utils.data import DataLoader, random_split


def train(rank, world_size, model, dataset, config):
    torch.distributed.init_process_group("nccl", rank=rank, world_size=world_size)
    train_set, valid_set = random_split(dataset, [0.9, 0.1], torch.Generator().manual_seed(1))
    options = {"batch_size": config["batch"], "num_workers": config["workers"]}
    train_loader = DataLoader(train_set, shuffle=True, **options)
    valid_loader = DataLoader(valid_set, **options)
    model = torch.nn.parallel.DistributedDataParallel(model.to(rank), device_ids=[rank])
    for batch in train_loader:
        model(batch).backward()
    return valid_loader
""",
    ),
    also_good=(
        """
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def load(dataset, rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    mine = Subset(dataset, range(rank, len(dataset), world_size))
    return DataLoader(mine, batch_size=32, shuffle=True, num_workers=4)
""",
        """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def load(dataset, args, make_sampler, model):
    if args.distributed:
        dist.init_process_group("nccl")
        model = DistributedDataParallel(model)
        loader = DataLoader(dataset, args.batch, sampler=make_sampler(dataset), num_workers=4)
    else:
        loader = DataLoader(dataset, args.batch, shuffle=True, num_workers=4)
    return model, loader
""",
        """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main(dataset, model):
    accelerator = Accelerator()
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return accelerator.prepare(model, optimizer, loader)
""",
    ),
    find=find,
)
