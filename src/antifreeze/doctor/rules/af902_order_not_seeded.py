"""A shuffled order that no seed decides."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, WRONG_DATA, Hit, Rule

_SEEDS = ("manual_seed", "seed_everything", "set_seed", "set_determinism", "seed_all")


def find(view: View) -> Iterator[Hit]:
    if _is_seeded(view):
        return
    for loader in view.loaders:
        if loader["shuffle"].is_(True) and loader["generator"].absent:
            yield Hit(
                loader.node,
                "the order is shuffled and nothing seeds it: no run can be repeated",
            )


def _is_seeded(view: View) -> bool:
    """Say whether the program has a seed: a call with the word in its name, here or elsewhere."""
    if any(view.project.anyone_calls(name) for name in _SEEDS):
        return True
    return any(
        "seed" in text_of(call.func).lower() or "determinis" in text_of(call.func).lower()
        for call in view.module.nodes(ast.Call)
        if isinstance(call.func, (ast.Name, ast.Attribute))
    )


RULE = Rule(
    code="AF902",
    name="order-not-seeded",
    severity=WRONG_DATA,
    confidence=LIKELY,
    opinion=True,
    title="The shuffled order has no seed",
    what="`shuffle=True` without a `generator`, in a program that never seeds torch.",
    why="""
    The order of the samples is another one in each run, and with it the result: a failure cannot be
    seen again, and two runs cannot be compared. dslinter (W5512) asks for the same.
    """,
    instead="`torch.manual_seed(seed)` at the start; or `generator=` with a generator of its own.",
    not_flagged="""
    Programs with a seed anywhere: `manual_seed`, `seed_everything`, `set_seed`, or a function of
    this file with "seed" in its name. Loaders that do not shuffle.
    """,
    bad="""
from torch.utils.data import DataLoader


def load(dataset):
    return DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4)
""",
    good="""
import torch
from torch.utils.data import DataLoader


def load(dataset, seed):
    order = torch.Generator().manual_seed(seed)
    return DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4, generator=order)
""",
    also_bad=(
        """
import torch.utils.data as data


class Module:
    def __init__(self, dataset, cfg):
        self.dataset = dataset
        self.options = cfg

    def train_loader(self):
        return data.DataLoader(self.dataset, 16, True, num_workers=2)
""",
        """
from torch.utils.data import DataLoader

OPTIONS = {"batch_size": 32, "shuffle": True, "num_workers": 2}


def load(dataset):
    return DataLoader(dataset, **OPTIONS)
""",
    ),
    also_good=(
        """
import torch
from torch.utils.data import DataLoader


def main(dataset):
    torch.manual_seed(0)
    return DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4)
""",
        """
from torch.utils.data import DataLoader


def main(dataset):
    return DataLoader(dataset, batch_size=32, shuffle=False, num_workers=4)
""",
    ),
    find=find,
)
