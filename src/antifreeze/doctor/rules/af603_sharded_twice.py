"""A DistributedSampler in a loader that accelerate shards again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..source.loaders import Loader
from ..source.view import View
from ..source.wording import text_of
from .af601_sampler_without_set_epoch import SAMPLER
from .base import LIKELY, WRONG_DATA, Hit, Rule

_RANK = re.compile(r"\b(global_|local_)?rank\b|\.rank\b|get_rank\(")


def find(view: View) -> Iterator[Hit]:
    yield from _of_a_part(view)
    sharded = {each.node for each in view.loaders if _has_sampler(each, view)}
    if not sharded:
        return
    for call in view.method_calls("prepare", "prepare_data_loader"):
        if not _is_accelerator(call, view):
            continue
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            for loader in _loaders(argument, view):
                if loader.node in sharded:
                    yield Hit(
                        loader.node,
                        f"this loader has a DistributedSampler, and line {call.lineno} gives it to"
                        " accelerate, which parts it again: each rank sees a part of its part, and"
                        " an epoch leaves out the rest",
                    )


def _of_a_part(view: View) -> Iterator[Hit]:
    """Find samplers of what is the part of one rank already: `Subset(data, range(rank, ...))`."""
    for call in view.calls(SAMPLER):
        whole = view.call_arguments(call, ("dataset",))["dataset"].node
        for value in view.origins(whole) if whole is not None else ():
            if not isinstance(value, ast.Call) or len(value.args) < 2:
                continue
            if view.resolve(value.func) != "torch.utils.data.Subset":
                continue
            indices = (value.args[1], *view.origins(value.args[1]))
            if any(_RANK.search(text_of(each)) for each in indices):
                yield Hit(
                    call,
                    f"the dataset is the part of one rank already (line {value.lineno}), and the"
                    " DistributedSampler parts it again: an epoch leaves out the rest",
                )


def _has_sampler(loader: Loader, view: View) -> bool:
    node = loader["sampler"].node
    return node is not None and any(
        isinstance(each, ast.Call) and view.resolve(each.func) == SAMPLER
        for each in view.origins(node)
    )


def _is_accelerator(call: ast.Call, view: View) -> bool:
    assert isinstance(call.func, ast.Attribute)
    receiver = call.func.value
    named = text_of(receiver).lower().endswith("accelerator")
    return named or view.type_of(receiver) == "accelerate.Accelerator"


def _loaders(node: ast.expr, view: View) -> Iterator[Loader]:
    """Give the loaders that an argument may be: made here, or by a function of this file."""
    if isinstance(node, ast.Starred):
        node = node.value
    found = view.loader_of(node)
    if found is not None:
        yield found
        return
    for value in view.origins(node):
        function = view.function_of(value.func) if isinstance(value, ast.Call) else None
        if function is None or function.module is not view.module:
            continue
        for given in function.returns:
            parts = given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given]
            for part in parts:
                made = view.loader_of(part) if part is not None else None
                if made is not None:
                    yield made


RULE = Rule(
    code="AF603",
    name="sharded-twice",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="The samples are parted by rank twice",
    what="""
    A loader with a `DistributedSampler` that is given to `accelerator.prepare`, or whose dataset is
    a `Subset` of one rank's samples already.
    """,
    why="""
    `prepare` parts the batches of any loader by rank, whether or not its sampler has done so. Each
    rank then sees a part of its part: with two ranks an epoch leaves out half of the samples, with
    eight 7 of 8, and nothing is said
    ([accelerate#4199](https://github.com/huggingface/accelerate/issues/4199); measured with
    accelerate 1.15: 50 of 100 samples).
    """,
    instead="""
    Give `prepare` a plain loader with `shuffle=True`; it makes what is needed. Or keep the sampler
    and leave the loader out of `prepare`.
    """,
    not_flagged="""
    Lightning, Fabric and Ray, which leave a loader alone that has a `DistributedSampler`. Loaders
    that are not given to `prepare`.
    """,
    bad="""
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler


def main(dataset, model):
    accelerator = Accelerator()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, num_workers=4)
    model, loader = accelerator.prepare(model, loader)
    for batch in loader:
        accelerator.backward(model(batch))
""",
    good="""
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main(dataset, model):
    accelerator = Accelerator()
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4)
    model, loader = accelerator.prepare(model, loader)
    for batch in loader:
        accelerator.backward(model(batch))
""",
    also_bad=(
        """
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, Subset


def load(dataset):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    part = Subset(dataset, range(rank, len(dataset), world))
    sampler = DistributedSampler(part, num_replicas=world, rank=rank, shuffle=False)
    return DataLoader(part, batch_size=8, sampler=sampler, num_workers=2)
""",
        """
import torch
from accelerate import Accelerator
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, cfg, dataset, model):
        self.accelerator = Accelerator(mixed_precision=cfg.precision)
        self.sampler = DistributedSampler(
            dataset,
            num_replicas=self.accelerator.num_processes,
            rank=self.accelerator.process_index,
        )
        self.loader = torch.utils.data.DataLoader(
            dataset, batch_size=cfg.batch_size, sampler=self.sampler, num_workers=cfg.workers
        )
        self.model, self.loader = self.accelerator.prepare(model, self.loader)
""",
        """
import accelerate
from torch.utils import data


def get_loaders(args, train_set, test_set):
    sampler = data.DistributedSampler(train_set) if args.distributed else None
    train = data.DataLoader(train_set, args.batch_size, sampler=sampler, num_workers=args.workers)
    test = data.DataLoader(test_set, args.batch_size)
    return train, test


def main(args, train_set, test_set, model):
    accelerator = accelerate.Accelerator()
    train_loader, test_loader = get_loaders(args, train_set, test_set)
    model, train_loader = accelerator.prepare(model, train_loader)
    return model, train_loader, test_loader
""",
    ),
    also_good=(
        """
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler


def main(dataset, model):
    accelerator = Accelerator()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, num_workers=4)
    model = accelerator.prepare(model)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in loader:
            accelerator.backward(model(batch))
""",
        """
import lightning
from torch.utils.data import DataLoader, DistributedSampler


def main(dataset, model):
    fabric = lightning.Fabric(devices=2)
    fabric.launch()
    sampler = DistributedSampler(dataset)
    loader = fabric.setup_dataloaders(DataLoader(dataset, sampler=sampler, num_workers=4))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in loader:
            fabric.backward(model(batch))
""",
    ),
    find=find,
)
