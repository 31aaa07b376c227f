"""A seed that is set anew for every sample: all samples get the same random numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset, DatasetKind, Function
from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule
from .seeding import GLOBAL_SEEDS, SEEDED_GENERATORS, Seeding, seedings


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.kind is not DatasetKind.MAP:
            continue  # a stream is seeded once, so that all workers shuffle alike
        for function in dataset.loading:
            for each in seedings(function, view, GLOBAL_SEEDS | SEEDED_GENERATORS):
                if not _same_for_all(each, function, dataset, view):
                    continue
                yield Hit(
                    view.here(each.call, dataset.node),
                    f"`{text_of(each.call)}` runs for every sample: all samples get the same"
                    " random numbers, in every epoch",
                    POSSIBLE if _on_condition(each, function, view) else LIKELY,
                )


def _same_for_all(seeding: Seeding, function: Function, dataset: Dataset, view: View) -> bool:
    parts = view.made_of(seeding.seed, seeding.function)
    if not parts.fixed:
        return False
    if seeding.function.node is not function.node and parts.attributes:
        return False
    return all(_never_changes(name, dataset) for name in parts.attributes)


def _never_changes(attribute: str, dataset: Dataset) -> bool:
    """Say whether an attribute is given in `__init__` and nowhere else, as far as is seen."""
    prepared = {function.node for function in dataset.preparing}
    places = dataset.given(attribute)
    return bool(places) and all(each.method in prepared and each.value for each in places)


def _on_condition(seeding: Seeding, function: Function, view: View) -> bool:
    """Say whether it is only seeded sometimes: for validation, or if that is asked for."""
    return any(
        isinstance(each, (ast.If, ast.IfExp))
        for each in function.module.ancestors(seeding.call)
        if each is not function.node
    )


RULE = Rule(
    code="AF303",
    name="seed-in-every-sample",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="The same seed is set for every sample",
    what="""
    `random.seed`, `np.random.seed`, `torch.manual_seed`, or a generator that is made from a seed,
    while a map-style dataset loads a sample, with a seed that is the same for all samples.
    """,
    why="""
    Each sample starts from the same state: all of them get the same crop, the same flip and the
    same noise, in every epoch, with and without workers. There is augmentation in the code and none
    in the data. The global generators stay seeded so for whatever draws next.
    """,
    instead="""
    Do not seed here. Seed the program once; torch seeds the workers from it. For numbers that
    belong to the sample: `np.random.default_rng((self.seed, index))`.
    """,
    not_flagged="""
    Seeds that depend on the index, on the sample, on a random number or on any call. Streams
    (`__iter__`), which are seeded once. Under a condition, as for validation: shown only with
    `--confidence possible`.
    """,
    bad="""
import random

from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        random.seed(42)
        start = random.randint(0, 8)
        return self.rows[index][start : start + 16]


def load(rows):
    return DataLoader(Crops(rows), batch_size=8, num_workers=4)
""",
    good="""
import random

from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        start = random.randint(0, 8)
        return self.rows[index][start : start + 16]


def load(rows):
    random.seed(42)
    return DataLoader(Crops(rows), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
import numpy as np
import torch
from torch.utils.data import Dataset


def fix_seed(seed):
    np.random.seed(seed)
    torch.manual_seed(seed)


class Noisy(Dataset):
    def __init__(self, rows, cfg):
        self.rows = rows
        self.cfg = cfg

    def __len__(self):
        return len(self.rows)

    def _noise(self, row):
        fix_seed(self.cfg.seed)
        return row + np.random.normal(size=row.shape)

    def __getitem__(self, index):
        return self._noise(self.rows[index])
""",
        """
import numpy
from torch.utils import data


class Masked(data.Dataset):
    def __init__(self, rows, seed=0):
        super().__init__()
        self.rows = rows
        self.seed = seed

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, item):
        rng = numpy.random.default_rng(self.seed)
        row = self.rows[item]
        return row * (rng.random(row.shape) < 0.5)
""",
    ),
    also_good=(
        """
import random

import numpy as np
import torch
from torch.utils.data import Dataset


class Pairs(Dataset):
    def __init__(self, pictures, masks, transform):
        self.pictures = pictures
        self.masks = masks
        self.transform = transform

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        seed = np.random.randint(2147483647)
        random.seed(seed)
        torch.manual_seed(seed)
        picture = self.transform(self.pictures[index])
        random.seed(seed)
        torch.manual_seed(seed)
        return picture, self.transform(self.masks[index])
""",
        """
import random

from torch.utils.data import Dataset


class Shuffled(Dataset):
    def __init__(self, rows, seed):
        self.rows = rows
        self.seed = seed
        self.epoch = 0
        random.seed(seed)
        random.shuffle(self.rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        rng = random.Random(f"{self.seed}-{self.epoch}-{index}")
        return self.rows[index] * rng.random()
""",
    ),
    find=find,
)
