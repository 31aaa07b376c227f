"""Iterable datasets that read the same samples, of their own, in every process."""

from __future__ import annotations

import ast
import re

from ...source.definitions import Dataset, Function
from ...source.view import View

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


def is_finite(dataset: Dataset, view: View) -> bool:
    """Whether a dataset is seen to read samples of its own that are always the same."""
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
    """Whether a loop goes over what the class holds: `self.paths`, or a list seen."""
    if isinstance(node, ast.Call) and node.args and view.resolve(node.func) in ("enumerate", "zip"):
        return _is_samples(node.args[0], function, view)
    for value in view.origins(node):
        if isinstance(value, (ast.List, ast.Tuple, ast.ListComp, ast.Dict)):
            return True
        if isinstance(value, ast.Call) and view.resolve(value.func) in (*_READS, "list", "sorted"):
            return True
    held = isinstance(node, ast.Attribute) and function.module.class_of_self(node.value) is not None
    return held and isinstance(node, ast.Attribute) and bool(_SAMPLES.search(node.attr))
