"""An iterable dataset that gives all its samples in each of the workers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..source.definitions import Dataset, DatasetKind, Function
from ..source.view import View
from .base import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

# Names that show that a class, or what it reads from, gives each worker a part.
_PARTS = re.compile(
    r"worker|n(um)?_?shard|(my|own|cur|current|this|local)_?shard|shard_(i|n|c|s|rank)|shard(id|ind)|sharded"
    r"|sharding|split_dataset_by_node|split_by",
    re.IGNORECASE,
)
# What several readers share: each item comes to one of them.
_SHARED = re.compile(r"queue|consumer|redis|socket|subscriber|kafka", re.IGNORECASE)
_RANDOM = re.compile(r"^(random|numpy\.random|torch)\.(rand\w*|choices?|sample|normal|uniform)$")
_READS = frozenset(
    {"open", "io.open", "gzip.open", "bz2.open", "csv.reader", "csv.DictReader", "json.load"}
    | {"pandas.read_csv", "pandas.read_json", "pandas.read_parquet", "numpy.load", "torch.load"}
    | {"range", "os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.iglob", "sqlite3.connect"}
    | {"h5py.File", "lmdb.open", "tarfile.open", "zipfile.ZipFile", "pyarrow.parquet.ParquetFile"}
    | {"pyarrow.parquet.read_table", "linecache.getline"}
)
_SAMPLES = re.compile(
    r"path|file|shard|data$|sample|line|row|url|example|text|item|record|indices|frame"
)


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        several = [each for each in dataset.loaders if each.workers.any and not each.single]
        if dataset.kind is not DatasetKind.ITERABLE or not several or not dataset.is_known_whole:
            continue
        if any(each.has_worker_init for each in several):
            continue  # it may give each worker's copy its part
        iterate = dataset.method("__iter__")
        if iterate is None or _knows_parts(dataset):
            continue
        yield Hit(
            view.here(iterate.node, dataset.node),
            f"`__iter__` of `{dataset.name}` does not ask which worker it runs in: each of them"
            " gives all samples, so that every one comes as often as there are workers",
            LIKELY if is_finite(dataset, view) else POSSIBLE,
        )


def _knows_parts(dataset: Dataset) -> bool:
    bodies: list[ast.AST] = [each.node for each in dataset.lineage]
    bodies += [each.node for each in dataset.loading]
    return any(_PARTS.search(name) for body in bodies for name in _names(body))


def _names(body: ast.AST) -> Iterator[str]:
    for node in ast.walk(body):
        match node:
            case ast.Call(func=ast.Attribute(attr="shard")):
                yield "sharded"
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case _:
                pass


def is_finite(dataset: Dataset, view: View) -> bool:
    """Say whether it is seen to read samples of its own that are always the same."""
    reads = False
    for function in dataset.loading:
        for node in function.nodes():
            match node:
                case ast.While(test=ast.Constant(value=True | 1)):
                    return False
                case ast.Call():
                    name = view.resolve(node.func) or ""
                    if _RANDOM.match(name) or name in ("itertools.cycle", "itertools.count"):
                        return False
                    reads = reads or name in _READS
                case ast.For(iter=source) | ast.YieldFrom(value=source):
                    reads = reads or _is_samples(source, function, view)
                case ast.Attribute(attr=name) if _SHARED.search(name):
                    return False
                case _:
                    pass
    return reads


def _is_samples(node: ast.expr, function: Function, view: View) -> bool:
    """Say whether a loop goes over what the class holds: `self.paths`, or a list seen."""
    if isinstance(node, ast.Call) and node.args and view.resolve(node.func) in ("enumerate", "zip"):
        return _is_samples(node.args[0], function, view)
    for value in view.origins(node):
        if isinstance(value, (ast.List, ast.Tuple, ast.ListComp, ast.Dict)):
            return True
        if isinstance(value, ast.Call) and view.resolve(value.func) in (*_READS, "list", "sorted"):
            return True
    held = isinstance(node, ast.Attribute) and function.module.class_of_self(node.value) is not None
    return held and isinstance(node, ast.Attribute) and bool(_SAMPLES.search(node.attr))


RULE = Rule(
    code="AF605",
    name="iterable-in-every-worker",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="Every worker gives all samples of an iterable dataset",
    what="""
    An `IterableDataset` in a loader with more than one worker, whose `__iter__`, and what it calls,
    never asks which worker it runs in.
    """,
    why="""
    Each worker has a copy of the dataset and iterates over all of it: with three workers 60 samples
    come as 180 (measured with torch 2.13, without a warning). An epoch is longer, and evaluation
    counts everything several times
    ([datasets#3423](https://github.com/huggingface/datasets/issues/3423),
    [MatchZoo-py#169](https://github.com/NTMC-Community/MatchZoo-py/pull/169): 30 workers, 30
    copies).
    """,
    instead="""
    Give each worker its part: `worker = torch.utils.data.get_worker_info()`, then
    `itertools.islice(samples, worker.id, None, worker.num_workers)`; with ranks, count by rank and
    worker. Or use one worker.
    """,
    not_flagged="""
    Classes that speak of workers, of sharding or of a number of shards anywhere, and loaders with a
    `worker_init_fn`, which may set the part. One worker. Endless or random streams, queues, and
    what iterates over another dataset are shown with `--confidence possible`.
    """,
    bad="""
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        with open(self.path) as file:
            for line in file:
                yield line.strip()


def load(path):
    return DataLoader(Lines(path), batch_size=32, num_workers=4)
""",
    good="""
import itertools

from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        with open(self.path) as file:
            for line in itertools.islice(file, first, None, step):
                yield line.strip()


def load(path):
    return DataLoader(Lines(path), batch_size=32, num_workers=4)
""",
    also_bad=(
        """
import gzip
import json

import torch
import torch.utils.data


class Corpus(torch.utils.data.IterableDataset):
    def __init__(self, shards):
        super().__init__()
        self.shards = shards

    def parse(self, shard):
        with gzip.open(shard, "rt") as file:
            for line in file:
                yield json.loads(line)["ids"]

    def __iter__(self):
        for shard in self.shards:
            for ids in self.parse(shard):
                yield torch.tensor(ids)


def load(config):
    corpus = Corpus(config["shards"])
    return torch.utils.data.DataLoader(corpus, batch_size=8, num_workers=config["workers"])
""",
        """
import json
import random

import torch.utils.data as data


class JsonLines(data.IterableDataset):
    def __init__(self, paths, tokenizer, cfg):
        super().__init__()
        self.paths = list(paths)
        self.tokenizer = tokenizer
        self.cfg = cfg

    def _read(self):
        random.shuffle(self.paths)
        for path in self.paths:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    yield json.loads(line)

    def __iter__(self):
        for record in self._read():
            yield self.tokenizer(record["text"], max_length=self.cfg.max_length)


def train_dataloader(cfg, paths, tokenizer):
    dataset = JsonLines(paths, tokenizer, cfg)
    return data.DataLoader(dataset, batch_size=cfg.batch_size, num_workers=cfg.num_workers)
""",
        """
import torch
from antifreeze import DataLoader
from torch.utils.data import IterableDataset


class Windows(IterableDataset):
    def __init__(self, frames, size=10):
        self.frames, self.size = frames, size

    def __iter__(self):
        for start in range(len(self.frames) - self.size):
            yield torch.stack(self.frames[start : start + self.size])


def main(args, frames):
    loader = DataLoader(Windows(frames, args.size), batch_size=8, num_workers=args.workers)
    for batch in loader:
        print(batch.shape)
""",
    ),
    also_good=(
        """
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        with open(self.path) as file:
            yield from file


def load(path):
    return DataLoader(Lines(path), batch_size=32, num_workers=1, prefetch_factor=8)
""",
        """
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Part(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        for path in self.paths:
            yield torch.load(path)


def take_part(number):
    info = get_worker_info()
    info.dataset.paths = info.dataset.paths[info.id :: info.num_workers]


def load(paths):
    return DataLoader(Part(paths), batch_size=None, num_workers=4, worker_init_fn=take_part)
""",
        """
import torch
from torch.utils.data import DataLoader, IterableDataset


class Noise(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.randn(3, 32, 32)


def load():
    return DataLoader(Noise(), batch_size=64, num_workers=4)
""",
    ),
    find=find,
)
