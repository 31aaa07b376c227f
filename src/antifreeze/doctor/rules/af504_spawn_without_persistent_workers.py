"""Workers that are slow to start, and are started anew in every epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import PICKLING
from ..source.loops import LoaderLoop
from ..source.view import View
from .base import LIKELY, SLOW, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    told = set[ast.Call]()
    for loop in view.loops:
        loader = loop.loader
        if loader is None or loader.ours or not loader.workers.any or loader.node in told:
            continue
        kept = loader["persistent_workers"]
        if not (kept.absent or kept.is_(False)) or loader.start_method not in PICKLING:
            continue
        if loader.in_loop is None and _in_epochs(loop, view):
            told.add(loader.node)
            yield Hit(
                loader.node,
                f"workers start by {loader.start_method}, and this loader starts them anew in every"
                " epoch: each imports everything again and gets the dataset sent again",
            )


def _in_epochs(loop: LoaderLoop, view: View) -> bool:
    """Say whether a loop over a loader runs more than once: it, or the call of its function, is in
    a loop. A loop that is left in its first round does not count."""
    around = loop.epochs
    if around is None:
        function = view.function_around(loop.node)
        for call in view.calls_of(function) if function is not None else ():
            around = around or view.loop_around(call)
    if around is None or isinstance(around, ast.While):
        return around is not None
    return not (isinstance(around.iter, ast.Call) and _is_one(around.iter, view))


def _is_one(call: ast.Call, view: View) -> bool:
    return (
        view.resolve(call.func) == "range"
        and len(call.args) == 1
        and view.constant(call.args[0]) in (0, 1)
    )


RULE = Rule(
    code="AF504",
    name="spawn-without-persistent-workers",
    severity=SLOW,
    confidence=LIKELY,
    title="Spawned workers are started anew in every epoch",
    what="""
    A loader whose workers start by spawn or forkserver, without `persistent_workers=True`, in a
    loop over epochs.
    """,
    why="""
    A spawned worker is a new Python: it imports torch and your modules, and gets the dataset
    through a pipe. That takes seconds a worker, one after the other, at the start of every epoch:
    50 s for 16 workers in
    [pytorch#153594](https://github.com/pytorch/pytorch/issues/153594).
    """,
    instead="""
    `persistent_workers=True`. Then the workers keep their copy of the dataset: what you change in
    it between epochs does not reach them; antifreeze's loader warns when that happens.
    """,
    not_flagged="""
    Loaders that are iterated once, programs that fork, and antifreeze's loader.
    """,
    bad="""
from torch.utils.data import DataLoader


def train(dataset, step):
    loader = DataLoader(dataset, batch_size=32, num_workers=4, multiprocessing_context="spawn")
    for epoch in range(10):
        for batch in loader:
            step(batch)
""",
    good="""
from torch.utils.data import DataLoader


def train(dataset, step):
    loader = DataLoader(
        dataset,
        batch_size=32,
        num_workers=4,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    for epoch in range(10):
        for batch in loader:
            step(batch)
""",
    also_bad=(
        """
import torch.multiprocessing as mp
from torch.utils.data import DataLoader
from tqdm import tqdm


def train_one_epoch(loader, step):
    for i, batch in enumerate(tqdm(loader)):
        step(i, batch)


def main(dataset, cfg, step):
    train_loader = DataLoader(dataset, batch_size=cfg.batch_size, num_workers=cfg.num_workers)
    for epoch in range(cfg.epochs):
        train_one_epoch(train_loader, step)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    from project import config, dataset, step

    main(dataset, config, step)
""",
        """
import multiprocessing

from torch.utils import data


class Trainer:
    def __init__(self, dataset, options):
        context = multiprocessing.get_context("forkserver")
        self.loader = data.DataLoader(
            dataset, num_workers=8, multiprocessing_context=context, persistent_workers=False
        )
        self.epochs = options.epochs

    def fit(self, step):
        epoch = 0
        while epoch < self.epochs:
            for batch in self.loader:
                step(batch)
            epoch += 1
""",
    ),
    also_good=(
        """
from torch.utils.data import DataLoader


def evaluate(dataset, step):
    loader = DataLoader(dataset, batch_size=32, num_workers=4, multiprocessing_context="spawn")
    for batch in loader:
        step(batch)
""",
        """
from torch.utils.data import DataLoader


def train(dataset, step, **options):
    loader = DataLoader(dataset, num_workers=4, multiprocessing_context="spawn", **options)
    for epoch in range(10):
        for batch in loader:
            step(batch)
""",
    ),
    find=find,
)
