"""Ranks that all go over the whole dataset."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..source.definitions import DatasetKind
from ..source.loaders import Loader
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.finite_iterables import is_finite
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

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
    """Whether the dataset depends on the rank, or the loader is of a program with one."""
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
    """Whether it is a part that a variable chooses: `indices[mine]`."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Name, ast.Slice))


RULE = Rule(
    code="AF602",
    name="every-rank-loads-everything",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
