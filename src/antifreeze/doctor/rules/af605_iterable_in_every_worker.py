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
    find=find,
)
