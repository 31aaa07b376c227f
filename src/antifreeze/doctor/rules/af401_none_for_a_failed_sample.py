"""A sample that fails becomes None, and breaks the collate function, or the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..findings import Confidence
from ..source.definitions import Dataset, DatasetKind, Function
from ..source.view import View
from .base import CRASH, LIKELY, POSSIBLE, Hit, Rule
from .catching import is_broad


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.kind is not DatasetKind.MAP or dataset.only_ours:
            continue
        loader_takes_it = any(each.has_collate for each in dataset.loaders)
        getitem = dataset.methods.get("__getitem__")
        if getitem is None or loader_takes_it or _may_be_meant(dataset):
            continue
        for handler, nothing in _handlers(getitem):
            yield Hit(
                nothing,
                "a sample that cannot be loaded becomes None: the default collate function raises a"
                " TypeError about NoneType, without its index or its cause",
                _confidence(handler, dataset, view),
            )


def _confidence(handler: ast.ExceptHandler, dataset: Dataset, view: View) -> Confidence:
    """Say how sure it is that the default function collates. Where no loader of the dataset is
    seen, one with a function of its own may be the one."""
    if dataset.loaders:
        return LIKELY
    return LIKELY if is_broad(handler) and not view.project.anyone_collates else POSSIBLE


def _may_be_meant(dataset: Dataset) -> bool:
    """Say whether the class itself knows what to do with None: it has a collate method."""
    return any("collate" in name for each in dataset.lineage for name in each.methods)


def _handlers(function: Function) -> Iterator[tuple[ast.ExceptHandler, ast.stmt]]:
    """Give the handlers that return None, each with the statement that does."""
    for handler in function.nodes():
        if not isinstance(handler, ast.ExceptHandler):
            continue
        for node in ast.walk(handler):
            if isinstance(node, ast.Return) and _is_none(node.value):
                yield handler, node


def _is_none(value: ast.expr | None) -> bool:
    match value:
        case None:
            return True
        case ast.Constant():
            return value.value is None
        case ast.Tuple():
            return bool(value.elts) and all(_is_none(each) for each in value.elts)
        case _:
            return False


RULE = Rule(
    code="AF401",
    name="none-for-a-failed-sample",
    severity=CRASH,
    confidence=LIKELY,
    title="A sample that fails becomes None",
    what="""
    `__getitem__` catches an exception and returns None, and no collate function is given that could
    leave it out.
    """,
    why="""
    The default collate function cannot stack None: `default_collate: batch must contain tensors ...
    found NoneType`, far from the file that is broken, and the real error is gone. It is the most
    frequent question about bad samples ([pytorch#1137](https://github.com/pytorch/pytorch/issues/1137),
    [pytorch#74337](https://github.com/pytorch/pytorch/issues/74337)). Where a collate function does
    drop them, batches shrink without a word.
    """,
    instead="""
    Let it raise, and say what is to become of such samples: `antifreeze.DataLoader(...,
    on_error="replace")` or `"skip"`, which count and name them; or find them beforehand with
    `antifreeze scan`. With torch's loader: a collate function that leaves None out, and counts.
    """,
    not_flagged="""
    Loaders with a collate function of their own, classes that have one, and antifreeze's loader,
    which takes None for that sample's fault. Iterable datasets.
    """,
    bad="""
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_tensor


class Pictures(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        try:
            return to_tensor(Image.open(self.paths[index]))
        except Exception as error:
            print(error)
            return None


def load(paths):
    return DataLoader(Pictures(paths), batch_size=8, num_workers=4)
""",
    good="""
from antifreeze import DataLoader
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms.functional import to_tensor


class Pictures(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return to_tensor(Image.open(self.paths[index]))


def load(paths):
    return DataLoader(Pictures(paths), batch_size=8, num_workers=4, on_error="replace")
""",
    also_good=(
        """
from torch.utils.data import DataLoader, Dataset, default_collate


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        try:
            return float(self.rows[index])
        except Exception:
            return None


def without_none(samples):
    return default_collate([each for each in samples if each is not None])


def load(dataset):
    return DataLoader(dataset, batch_size=8, collate_fn=without_none)
""",
        """
from torch.utils.data import DataLoader, Dataset, default_collate


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        try:
            return float(self.rows[index])
        except ValueError:
            return None


def without_none(samples):
    return default_collate([each for each in samples if each is not None])


def load(rows):
    return DataLoader(Rows(rows), batch_size=8, collate_fn=without_none)
""",
    ),
    find=find,
)
