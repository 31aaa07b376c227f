"""A dataset that gives no samples."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.view import View
from .base import CERTAIN, CRASH, Hit, Rule
from .made import Made, has, how_sure, is_closed, made


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        node = loader["dataset"].node
        for each in made(node, view) if node is not None else ():
            words = _lack(each)
            if words:
                assert node is not None
                yield Hit(view.here(each.call, loader.node), words, how_sure(node, view))


def _lack(each: Made) -> str:
    owner = each.owner
    if not is_closed(owner):
        return ""
    if each.is_iterable:
        if has(owner, "__iter__"):
            return ""
        return f"`{owner.name}` is an IterableDataset without `__iter__`: it cannot even be made"
    if has(owner, "__getitem__") or has(owner, "__getitems__"):
        return ""
    if has(owner, "__iter__"):
        return (
            f"`{owner.name}` has `__iter__` but is no IterableDataset: the loader asks it for"
            " samples by index, and it has no `__getitem__`"
        )
    return f"`{owner.name}` has no `__getitem__`: there is nothing to load samples with"


RULE = Rule(
    code="AF702",
    name="dataset-without-getitem",
    severity=CRASH,
    confidence=CERTAIN,
    title="A dataset without `__getitem__`, or without `__iter__`",
    what="""
    A dataset of a loader, of which all bases are known, that has no `__getitem__`; also one
    that has `__iter__` but does not descend from `IterableDataset`, and an `IterableDataset`
    without `__iter__`.
    """,
    why="""
    The loader decides by the base class, not by the methods: whatever is no `IterableDataset`
    is asked by index. torch 2.13: `NotImplementedError: Subclasses of Dataset should implement
    __getitem__.`, or `TypeError: 'Rows' object is not subscriptable`, or `Can't instantiate
    abstract class`.
    """,
    instead="""
    Give it the method; or derive from `torch.utils.data.IterableDataset` if it is a stream.
    """,
    not_flagged="""
    Classes with a base that was not found. `__getitems__`, which loads many at once.
    What a variable was before it was given the dataset.
    """,
    bad="""
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 100

    def __iter__(self):
        with open(self.path) as file:
            yield from file


def loader(path):
    return DataLoader(Lines(path), batch_size=4)
""",
    good="""
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 100

    def __iter__(self):
        with open(self.path) as file:
            yield from file


def loader(path):
    return DataLoader(Lines(path), batch_size=4)
""",
    also_bad=(
        """
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 100

    def get(self, index):
        return index


def loader():
    return DataLoader(Rows(), batch_size=4)
""",
    ),
    also_good=(
        """
from torch.utils.data import DataLoader, Dataset


class Source:
    def __init__(self, path):
        self.path = path

    def rows(self):
        return [self.path]


class Other(Source):
    pass


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def load(path, other, windows):
    if other:
        data = Other(path)
    else:
        data = Source(path)
    data = Rows(data.rows())
    wrapped = Source(path)
    wrapped = windows(wrapped)
    inside = Source(path)
    inside = Rows(inside)
    return DataLoader(data), DataLoader(wrapped), DataLoader(inside)
""",
    ),
    find=find,
)
