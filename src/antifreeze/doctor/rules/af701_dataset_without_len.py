"""A dataset that cannot say how long it is, where somebody asks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.loaders import Loader
from ..source.view import View
from .base import CERTAIN, CRASH, LIKELY, Hit, Rule
from .made import Made, has, how_sure, is_closed, made

# Samplers that ask the dataset they are given.
_ASK = (
    "torch.utils.data.RandomSampler",
    "torch.utils.data.SequentialSampler",
    "torch.utils.data.DistributedSampler",
)


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        yield from _given_to_loader(loader, view)
    for call in view.calls(*_ASK):
        for each in made(call.args[0], view) if call.args else ():
            if not each.inside and _lacks_length(each):
                yield Hit(call, f"this sampler asks for `len()` of {_named(each)}", CERTAIN)
    streams = dict(_streams(view))
    for call in view.calls("len") if streams else ():
        for value in view.origins(call.args[0]) if call.args else ():
            if value in streams and not _guarded(call, view):
                words = f"the length of this loader is that of {_named(streams[value])}"
                yield Hit(call, words, LIKELY)


def _streams(view: View) -> Iterator[tuple[ast.expr, Made]]:
    """Give the loaders of iterable datasets without a length."""
    for loader in view.loaders:
        node = loader["dataset"].node
        for each in made(node, view) if node is not None else ():
            if each.is_iterable and not each.inside and _lacks_length(each):
                yield loader.node, each


def _given_to_loader(loader: Loader, view: View) -> Iterator[Hit]:
    node = loader["dataset"].node
    if node is None:
        return
    alone = all(
        loader[each].absent or loader[each].is_(None) for each in ("sampler", "batch_sampler")
    )
    confidence = how_sure(node, view)
    for each in made(node, view):
        if each.is_iterable or not _lacks_length(each) or not has(each.owner, "__getitem__"):
            continue  # without either, AF702 has more to say
        who = _named(each)
        if each.asked_for_length:
            short = each.inside.rpartition(".")[2]
            words = f"{short} asks for `len()` of {who}"
            yield Hit(view.here(each.call, loader.node), words, confidence)
        elif alone and not each.inside:
            yield Hit(
                loader.node,
                f"this loader has no sampler, so it asks for `len()` of {who}: TypeError at the"
                " first batch",
                confidence,
            )


def _guarded(node: ast.AST, view: View) -> bool:
    return any(
        isinstance(each, (ast.Try, ast.If, ast.IfExp)) for each in view.module.ancestors(node)
    )


def _lacks_length(each: Made) -> bool:
    return is_closed(each.owner) and not has(each.owner, "__len__")


def _named(each: Made) -> str:
    return f"`{each.owner.name}`, which has no `__len__`"


RULE = Rule(
    code="AF701",
    name="dataset-without-len",
    severity=CRASH,
    confidence=CERTAIN,
    title="A dataset without `__len__`, where its length is asked for",
    what="""
    A map-style dataset of which all bases are known and none has a `__len__`, given to a loader
    without a sampler of its own, to `random_split`, `ConcatDataset` or a sampler that counts;
    or `len(loader)` of an iterable dataset that has none.
    """,
    why="""
    Who gives no sampler gets `SequentialSampler` or `RandomSampler`, which count the dataset:
    `TypeError: object of type 'Rows' has no len()` (torch 2.13; without shuffling at the first
    batch, not where the loader is made).
    """,
    instead="""
    Give the class a `__len__`; or, where there is no length, make it an `IterableDataset` with
    an `__iter__`.
    """,
    not_flagged="""
    Loaders with a sampler or batch sampler, and `Subset`, which know the indices themselves.
    Classes with a base that was not found. Iterable datasets whose loader nobody asks for its
    length.
    """,
    bad="""
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        return self.rows[index]


def loader(rows):
    return DataLoader(Rows(rows), batch_size=4)
""",
    good="""
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def loader(rows):
    return DataLoader(Rows(rows), batch_size=4)
""",
    also_bad=(
        """
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __iter__(self):
        return iter("abc")


def main():
    loader = DataLoader(Lines())
    print(len(loader))
""",
        """
from torch.utils.data import DataLoader, Dataset, random_split


class Rows(Dataset):
    def __getitem__(self, index):
        return index


def loader():
    train, valid = random_split(Rows(), [0.9, 0.1])
    return DataLoader(train), DataLoader(valid)
""",
    ),
    also_good=(
        """
from torch.utils.data import DataLoader, Dataset


class Cuts(Dataset):
    def __getitem__(self, cuts):
        return [each.load() for each in cuts]


def load(config, by_cuts, rows):
    if config.cuts:
        dataset = Cuts()
        return by_cuts(dataset, config)
    dataset = rows(config)
    return DataLoader(dataset, batch_size=8)
""",
        """
from torch.utils.data import DataLoader, IterableDataset


class Stream:
    def __init__(self, rows):
        self.rows = rows
        if IterableDataset not in Stream.__bases__:
            Stream.__bases__ += (IterableDataset,)

    def __iter__(self):
        return iter(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def load(rows):
    return DataLoader(Stream(rows), batch_size=None)
""",
        """
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset
from elsewhere import Sized


class Rows(Dataset):
    def __getitem__(self, index):
        return index


class More(Rows, Sized):
    pass


class Lines(IterableDataset):
    def __iter__(self):
        return iter("abc")


def loaders():
    lines = DataLoader(Lines())
    print(len(list(lines)))
    yield DataLoader(Rows(), sampler=[3, 1, 2])
    yield DataLoader(Subset(Rows(), [3, 1, 2]))
    yield DataLoader(More())
""",
    ),
    find=find,
)
