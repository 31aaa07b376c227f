"""A worker_init_fn that gives every worker the same seed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..source.definitions import Function
from ..source.loaders import Loader
from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, WRONG_DATA, Hit, Rule
from .seeding import Seeding, seedings

# Calls that give the same in every worker.
_SAME = frozenset(
    {"int", "str", "abs", "hash", "os.getenv", "os.environ.get"}
    | {"torch.distributed.get_rank", "torch.distributed.get_world_size"}
)
_INIT_NAME = re.compile(r"worker_?(init|seed)|(init|seed)_?worker", re.IGNORECASE)

_EVALUATES = re.compile(r"(^|_)(val|valid|validation|eval|evaluation|test|infer|predict)(_|$)")


def find(view: View) -> Iterator[Hit]:
    given: set[ast.AST] = set()
    for loader in view.loaders:
        function = loader.worker_init
        if function is None or function.node in given:
            continue
        evaluates = loader.for_evaluation or _EVALUATES.search(function.name)
        if loader.workers.any and not loader.ours and not evaluates:
            given.add(function.node)
            yield from _hits(function, _worker_id(loader, function), view, loader.node)
    seen = {each.worker_init.node for each in view.loaders if each.worker_init is not None}
    for node in view.module.nodes(ast.FunctionDef):  # passed on to somebody we do not see
        if node in seen or _EVALUATES.search(node.name):
            continue
        if _INIT_NAME.search(node.name) and _takes_one(node):
            function = Function(node, view.module)
            yield from _hits(function, function.parameters[:1], view, node)


def _takes_one(node: ast.FunctionDef) -> bool:
    plain = [*node.args.posonlyargs, *node.args.args]
    return len(plain) - len(node.args.defaults) == 1 and plain[0].arg != "self"


def _hits(
    function: Function, worker_id: list[str], view: View, otherwise: ast.AST
) -> Iterator[Hit]:
    every = [s for s in seedings(function, view) if _same_for_all(s, function, worker_id, view)]
    for each in every[:1]:
        yield Hit(
            view.here(each.call, otherwise),
            f"`{function.name}` gives every worker the same seed (`{text_of(each.call)}`):"
            " all of them draw the same numbers, and with new workers the same again in the next"
            " epoch",
        )


def _same_for_all(seeding: Seeding, function: Function, worker_id: list[str], view: View) -> bool:
    parts = view.made_of(seeding.seed, seeding.function)
    if not parts.complete or parts.calls - _SAME:
        return False
    owner = seeding.function.owner
    if parts.attributes and not (owner and all(owner.given(each) for each in parts.attributes)):
        return False  # a property, or of a base that is not seen
    if seeding.function.node is not function.node:
        return not parts.parameters
    return parts.parameters.isdisjoint(worker_id)


def _worker_id(loader: Loader, function: Function) -> list[str]:
    """Give the parameter that the worker's number is passed for: the first that a `partial` leaves
    free."""
    names = function.parameters
    if function.owner is not None:
        names = names[1:]
    node = loader["worker_init_fn"].node
    for value in loader.view.values(node) if node is not None else ():
        if isinstance(value, ast.Call) and loader.view.resolve(value.func) == "functools.partial":
            bound = {each.arg for each in value.keywords}
            names = [each for each in names[len(value.args) - 1 :] if each not in bound]
    return names[:1]


RULE = Rule(
    code="AF302",
    name="same-seed-in-every-worker",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="`worker_init_fn` gives every worker the same seed",
    what="""
    A `worker_init_fn` that seeds `random`, numpy or torch with a number that does not depend on the
    worker: a constant, or the seed of the run.
    """,
    why="""
    All workers then draw the same numbers: with four workers every crop, flip and noise comes four
    times, and again in every epoch. Measured with torch 2.13: four workers, `np.random.seed(42)` in
    `worker_init_fn`, 16 samples: 4 different numbers. Without any `worker_init_fn`: 16. torch has
    seeded `random`, numpy and torch for each worker and epoch since 1.9
    ([pytorch#56488](https://github.com/pytorch/pytorch/pull/56488)), so such a function makes worse
    what it was meant to mend.
    """,
    instead="""
    Leave it out, and seed the program once (`torch.manual_seed(seed)`): workers derive theirs from
    it. Where a function is needed, for a library of its own: `torch.initial_seed() % 2**32`, which
    is different in each worker and epoch.
    """,
    not_flagged="""
    Seeds with the worker's number, `torch.initial_seed()`, `get_worker_info()` or a call that we do
    not know in it. Seeds without an argument. Loaders without workers, or antifreeze's, which seeds
    each sample. Loaders and functions for validation and tests by their name, where every run is
    meant to draw the same.
    """,
    bad="""
import numpy as np
from torch.utils.data import DataLoader


def init(worker_id):
    np.random.seed(42)


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

import numpy as np
import torch
from torch.utils.data import DataLoader


def set_seed(seed=1234):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def main(args, dataset):
    set_seed(args.seed)
    options = dict(num_workers=args.workers, worker_init_fn=lambda _: set_seed(args.seed))
    return DataLoader(dataset, batch_size=args.batch_size, **options)
""",
        """
from functools import partial

import numpy as np
import torch.utils.data as data


def worker_init_fn(worker_id, rank, seed):
    worker_seed = rank * 1000 + seed
    np.random.seed(worker_seed)


class Loaders:
    def __init__(self, cfg):
        self.cfg = cfg

    def train(self, dataset, rank):
        init_fn = partial(worker_init_fn, rank=rank, seed=self.cfg.seed)
        return data.DataLoader(dataset, num_workers=self.cfg.workers, worker_init_fn=init_fn)
""",
        """
import random

SEED = 3


def seed_worker(worker_id):
    random.seed(SEED)


def loader_options(workers):
    return {"num_workers": workers, "worker_init_fn": seed_worker}
""",
    ),
    also_good=(
        """
import random

from torch.utils.data import DataLoader


def validation_worker_init_fn(worker_id):
    random.seed(42)


def seed_worker(worker_id):
    random.seed(7)


def val_dataloader(dataset):
    return DataLoader(dataset, num_workers=4, worker_init_fn=seed_worker)


def loaders(dataset):
    loader = DataLoader(dataset, num_workers=4, worker_init_fn=validation_worker_init_fn)
    return loader
""",
        """
import numpy as np
from torch.utils.data import DataLoader


class Seeds:
    def __init__(self, seed):
        self.seed = seed

    def __call__(self, worker_id):
        np.random.seed(self.seed + worker_id)


def load(dataset):
    return DataLoader(dataset, num_workers=4, worker_init_fn=Seeds(1))
""",
        """
from functools import partial

import numpy as np
from torch.utils.data import DataLoader


def worker_init_fn(worker_id, num_workers, rank, seed):
    worker_seed = num_workers * rank + worker_id + seed
    np.random.seed(worker_seed)


def load(dataset, rank, seed):
    init_fn = partial(worker_init_fn, num_workers=4, rank=rank, seed=seed)
    return DataLoader(dataset, num_workers=4, worker_init_fn=init_fn)
""",
        """
import random

import numpy as np
import torch
from torch.utils.data import DataLoader, get_worker_info


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)


def seed_worker(_):
    info = get_worker_info()
    seed_all(info.id + 17)


def load(dataset):
    torch.manual_seed(0)
    return DataLoader(dataset, num_workers=2, worker_init_fn=seed_worker)
""",
    ),
    find=find,
)
