"""A generator made before the workers: each of them has a copy, and draws the same numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset, Function
from ..source.view import View
from .base import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

GENERATORS = frozenset(
    {
        "numpy.random.default_rng",
        "numpy.random.Generator",
        "numpy.random.RandomState",
        "random.Random",
        "torch.Generator",
    }
)
_SEEDS = frozenset({"seed", "manual_seed", "setstate", "set_state"})


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.only_ours or (dataset.workers is not None and not dataset.workers.any):
            continue
        confidence = LIKELY if dataset.workers is not None else POSSIBLE
        for hit in (*_owned(view, dataset), *_of_the_module(view, dataset)):
            yield Hit(hit.node, hit.words, confidence)
    yield from _of_transforms(view)


def _of_transforms(view: View) -> Iterator[Hit]:
    """Find generators of objects that the dataset calls for each sample."""
    told: set[ast.AST] = set()
    for code in view.worker_code:
        owner = code.function.owner
        if code.role != "transform" or owner is None or code.only_ours:
            continue
        prepared = {each.node for each in owner.reached("__init__")}
        for attribute, places in owner.attributes.items():
            used = any(
                isinstance(node, ast.Attribute)
                and node.attr == attribute
                and owner.owns(node.value, code.function.module)
                for node in code.function.nodes()
            )
            if not used or any(each.method not in prepared for each in places):
                continue
            for place in places:
                maker = _maker(view, place.value) if place.value is not None else None
                if maker is None or place.node in told or _seeded(code.function, attribute):
                    continue
                told.add(place.node)
                yield Hit(
                    view.here(place.node, code.function.node),
                    f"every worker gets a copy of the transform `{owner.name}` with its"
                    f" `self.{attribute}` ({maker}): all of them draw the same numbers, and the"
                    " same again in the next epoch",
                )


def _owned(view: View, dataset: Dataset) -> Iterator[Hit]:
    prepared = {function.node for function in dataset.preparing}
    for attribute, places in dataset.attributes.items():
        for place in places:
            if place.value is None or (place.method is not None and place.method not in prepared):
                continue
            maker = _maker(view, place.value)
            if maker is None or not dataset.uses(attribute) or dataset.sets_anew(attribute):
                continue
            started = [code.function for code in view.worker_code if code.role == "init"]
            if any(_seeded(function, attribute) for function in (*dataset.loading, *started)):
                continue
            yield Hit(
                view.here(place.node, dataset.node),
                f"every worker gets a copy of `self.{attribute}` ({maker}) as it was when the"
                " workers started: all of them draw the same numbers, and draw them again in the"
                " next epoch, unless the workers are persistent",
            )


def _of_the_module(view: View, dataset: Dataset) -> Iterator[Hit]:
    for function in dataset.loading:
        for node in function.nodes():
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            if view.module.scopes.top.names.get(node.id) != view.module.bindings(node):
                continue  # of a function, or of another file
            value = view.value(node)
            maker = _maker(view, value) if value is not None else None
            if maker is not None and not _seeded(function, node.id):
                yield Hit(
                    node,
                    f"every worker gets a copy of the module's `{node.id}` ({maker}): all of them"
                    " draw the same numbers",
                )


def _maker(view: View, value: ast.expr) -> str | None:
    for each in view.origins(value):
        if isinstance(each, ast.Call):
            name = view.resolve(each.func)
            if name in GENERATORS:
                return name
    return None


def _seeded(function: Function, name: str) -> bool:
    """Say whether a function gives the generator a seed of its own before it draws."""
    for call in function.calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr in _SEEDS:
            owner = call.func.value
            if isinstance(owner, ast.Attribute) and owner.attr == name:
                return True
            if isinstance(owner, ast.Name) and owner.id == name:
                return True
    return False


RULE = Rule(
    code="AF301",
    name="generator-of-the-dataset",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="A generator made before the workers draws the same numbers in each of them",
    what="""
    A dataset that draws, while it loads a sample, from a generator made in its `__init__`, in the
    body of the class or at module level: `np.random.default_rng()`, `np.random.RandomState()`,
    `random.Random()`, `torch.Generator()`.
    """,
    why="""
    torch seeds the global generators of every worker, not those a dataset owns. Each worker starts
    with the same copy: with four workers every augmentation comes four times, and again in each
    epoch, since new workers start from the same state. Measured with torch 2.13; the same for many
    augmentation libraries ([pytorch-3dunet#32](https://github.com/wolny/pytorch-3dunet/issues/32),
    [pytorch#107131](https://github.com/pytorch/pytorch/pull/107131)).
    """,
    instead="""
    Draw from the global generators (`torch.rand`, `random.random`), which torch seeds per worker;
    or make the generator in the sample from what is different for each:
    `np.random.default_rng((self.seed, epoch, index))`; or give each worker its own in
    `worker_init_fn`: `info.dataset.rng = np.random.default_rng(info.seed)`; or use antifreeze's
    loader, which gives such generators a stream for each sample.
    """,
    not_flagged="""
    Generators that the loading itself, or `worker_init_fn`, makes or seeds. Datasets without
    workers, or with
    antifreeze's loader only. Generators that only `__init__` draws from.
    """,
    bad="""
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index] + self.rng.normal()


def main(rows):
    for batch in DataLoader(Noisy(rows), batch_size=8, num_workers=4):
        print(batch)
""",
    good="""
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self, rows, seed=0):
        self.rows = rows
        self.seed = seed

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        rng = np.random.default_rng((self.seed, index))
        return self.rows[index] + rng.normal()


def main(rows):
    for batch in DataLoader(Noisy(rows), batch_size=8, num_workers=4):
        print(batch)
""",
    also_bad=(
        """
import numpy as np
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Noise:
    def __init__(self, sigma, seed=0):
        self.sigma = sigma
        self.random = np.random.RandomState(seed)

    def __call__(self, tensor):
        noise = self.random.normal(0, self.sigma, tensor.shape)
        return tensor + torch.from_numpy(noise).float()


def load():
    steps = transforms.Compose([transforms.ToTensor(), Noise(0.1)])
    pictures = datasets.CIFAR10("data", transform=steps)
    return DataLoader(pictures, batch_size=32, num_workers=4)
""",
        """
import random

from torch.utils.data import DataLoader, Dataset

rng = random.Random(7)


class Flipped(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.turned(self.rows[index])

    def turned(self, row):
        return row[::-1] if rng.random() < 0.5 else row


def main(rows, workers):
    for batch in DataLoader(Flipped(rows), batch_size=8, num_workers=workers):
        print(batch)
""",
    ),
    also_good=(
        """
import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Noisy(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.rng = np.random.default_rng(0)
        self.dice = np.random.RandomState(0)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index] + self.rng.normal() + self.dice.rand()


def its_own(worker_id):
    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)
    info.dataset.dice.seed(info.seed % 2**32)


def main(rows):
    for batch in DataLoader(Noisy(rows), batch_size=8, num_workers=4, worker_init_fn=its_own):
        print(batch)
""",
    ),
    find=find,
    follows=True,
)
