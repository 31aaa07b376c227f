"""A worker's seed of 64 bits given to numpy, which takes 32."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.budget import asked_once
from ..source.view import View
from ..source.wording import text_of
from .base import CERTAIN, CRASH, LIKELY, Fix, Hit, Rule, Wrap
from .seeding import Seeding, seedings

_TAKES_32_BITS = frozenset(
    {
        "numpy.random.seed",
        "numpy.random.RandomState",
        "transformers.set_seed",
        "accelerate.utils.set_seed",
    }
)
_LARGE = frozenset({"torch.initial_seed", "torch.random.initial_seed", "torch.seed"})
_WORKER_INFO = "torch.utils.data.get_worker_info"


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        for each in seedings(code.function, view, _TAKES_32_BITS):
            large = _large(each.seed, view)
            if large:
                yield Hit(
                    view.here(each.call, code.function.node),
                    f"`{large}` has 63 bits in a worker, and `{each.what}` takes 32: ValueError,"
                    " before the first sample",
                    CERTAIN if code.workers is not None and code.role == "init" else LIKELY,
                    _fix(each, view),
                )


@asked_once
def _large(node: ast.expr, view: View, depth: int = 0) -> str:
    """Give the part of a seed that makes it too large; '' if nothing does."""
    value = view.value(node) or node
    match value:
        case ast.Call() if view.resolve(value.func) in _LARGE:
            return text_of(value)
        case ast.Call(args=[inner]) if view.resolve(value.func) == "int" and depth < 4:
            return _large(inner, view, depth + 1)
        case ast.BinOp(op=ast.Add() | ast.Sub()) if depth < 4:
            return _large(value.left, view, depth + 1) or _large(value.right, view, depth + 1)
        case ast.Attribute(attr="seed"):
            made = view.value(value.value) or value.value
            if isinstance(made, ast.Call) and view.resolve(made.func) == _WORKER_INFO:
                return text_of(value)
            return ""
        case _:
            return ""


def _fix(seeding: Seeding, view: View) -> Fix | None:
    if not view.module.holds(seeding.seed):
        return None
    plain = isinstance(seeding.seed, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    before, after = ("", " % 2**32") if plain else ("(", ") % 2**32")
    return Fix("take it modulo 2**32", (Wrap(seeding.seed, before, after),))


RULE = Rule(
    code="AF305",
    name="seed-too-large-for-numpy",
    severity=CRASH,
    confidence=LIKELY,
    title="A worker's seed is too large for numpy",
    what="""
    `np.random.seed(torch.initial_seed())`, or `get_worker_info().seed`, in a `worker_init_fn` or
    while a sample is loaded, without `% 2**32`.
    """,
    why="""
    In a worker, torch's seed is a random number of 63 bits plus the worker's number, also after
    `torch.manual_seed(0)` in the main process. `np.random.seed` and `np.random.RandomState` take 32
    bits: `ValueError: Seed must be between 0 and 2**32 - 1`. Measured with torch 2.13 and numpy 2.
    In the main process, where the seed is the one you gave, the same line works.
    """,
    instead="""
    `np.random.seed(torch.initial_seed() % 2**32)`; or nothing at all: since torch 1.9 workers have
    numpy seeded.
    """,
    not_flagged="`% 2**32`, `& 0xFFFFFFFF` and the like; `default_rng` and `random.seed`.",
    bad="""
import numpy as np
import torch
from torch.utils.data import DataLoader


def init(worker_id):
    np.random.seed(torch.initial_seed())


def load(dataset):
    return DataLoader(dataset, batch_size=8, num_workers=4, worker_init_fn=init)
""",
    good="""
import numpy as np
import torch
from torch.utils.data import DataLoader


def init(worker_id):
    np.random.seed(torch.initial_seed() % 2**32)


def load(dataset):
    return DataLoader(dataset, batch_size=8, num_workers=4, worker_init_fn=init)
""",
    also_bad=(
        """
import random

import numpy
from torch.utils.data import DataLoader, get_worker_info


def worker_init_fn(worker_id):
    info = get_worker_info()
    seed = info.seed + worker_id
    random.seed(seed)
    numpy.random.seed(seed)


def load(dataset, args):
    return DataLoader(dataset, num_workers=args.workers, worker_init_fn=worker_init_fn)
""",
        """
import numpy as np
import torch
import torch.utils.data


class Setup:
    def __init__(self, dataset):
        self.dataset = dataset

    def seed(self, worker_id):
        worker_seed = torch.initial_seed()
        np.random.seed(worker_seed + worker_id)

    def loader(self):
        return torch.utils.data.DataLoader(
            self.dataset, num_workers=2, worker_init_fn=self.seed
        )
""",
    ),
    also_good=(
        """
import random

import numpy as np
import torch
from torch.utils.data import DataLoader, get_worker_info


def init(worker_id):
    random.seed(torch.initial_seed())
    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)
    np.random.seed((torch.initial_seed() + worker_id) & 0xFFFFFFFF)


def load(dataset):
    return DataLoader(dataset, batch_size=8, num_workers=4, worker_init_fn=init)
""",
        """
import numpy as np
import torch
from torch.utils.data import DataLoader


def main(dataset):
    torch.manual_seed(3)
    np.random.seed(torch.initial_seed())
    return DataLoader(dataset, batch_size=8, num_workers=4)
""",
    ),
    find=find,
    follows=True,
)
