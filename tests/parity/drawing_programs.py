"""Random programs whose samples draw: what they receive, train and draw depends on every seed.

A program is a list of parts, chosen by a number. It runs the same way with any loader class, so
that two classes can be compared: all batches, losses, weights, and the generators at the end.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import pickle
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)
from torch.utils.data.datapipes.iter import IterableWrapper

from .loop_shapes import SHAPES, plain

WIDTH = 6  # of a row
MODULE_RNG = np.random.default_rng(5)  # as programs have them, at the top of a module


def drawn(index: int, kinds: str) -> torch.Tensor:
    """Return a row of the generators named: p(ython), n(umpy), t(orch), m(odule's own)."""
    row = [float(index)]
    for kind in kinds:
        match kind:
            case "p":
                row += [random.random(), random.gauss(0, 1)]
            case "n":
                row += [np.random.rand(), np.random.randn()]
            case "t":
                row += torch.rand(2).tolist()
            case "m":
                row += [MODULE_RNG.random()]
    return torch.tensor((row + [0.0] * WIDTH)[:WIDTH], dtype=torch.float64)


class Rows:
    """Samples that draw."""

    def __init__(self, length: int, kinds: str, bad: int = -1) -> None:
        self.length, self.kinds, self.bad = length, kinds, bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        row = drawn(index, self.kinds)
        if index == self.bad:
            raise ValueError(f"sample {index} is bad")
        return row, index % 3


class ManyRows(Rows):
    """The same, asked for many at a time."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        scale = random.random()
        return [(self[index][0] * scale, index) for index in indices]


class Sometimes(Rows):
    """Few samples draw, as most augmentations have a probability; a late one is the first."""

    def __getitem__(self, index: int) -> Any:
        row = drawn(index, self.kinds) if index % 7 == 3 else drawn(index, "")
        return row, index


class OwnGenerators(Rows):
    """Draws from generators that the dataset has itself."""

    def __init__(self, length: int, kinds: str, bad: int = -1) -> None:
        super().__init__(length, kinds, bad)
        self.python, self.numpy = random.Random(1), np.random.default_rng(2)
        self.torch = torch.Generator().manual_seed(3)
        self.deep = {"legacy": np.random.RandomState(4)}

    def __getitem__(self, index: int) -> Any:
        row, label = super().__getitem__(index)
        row[-4:] = torch.tensor(
            [
                self.python.random(),
                self.numpy.random(),
                float(torch.rand((), generator=self.torch)),
                self.deep["legacy"].rand(),
            ]
        )
        return row, label


class Remembers(Rows):
    """Each sample depends on the one before it in the same process."""

    last = 0.0

    def __getitem__(self, index: int) -> Any:
        row, label = super().__getitem__(index)
        row[-1] = self.last
        self.last = 0.5 * self.last + float(row.sum())
        return row, label


class Computes(Rows):
    """Computes with what it drew, where the number of threads shows in the last bits."""

    def __getitem__(self, index: int) -> Any:
        noise = torch.randn(96, 96)
        row = drawn(index, self.kinds)
        row[-1] = float((noise @ noise).exp().clamp(max=1e6).sum())
        return nn.functional.dropout(row, 0.3), index


class Streams(IterableDataset[Any]):
    """A stream for each worker, with draws."""

    def __init__(self, length: int, kinds: str, bad: int = -1) -> None:
        self.length, self.kinds = length, kinds

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, self.length, step):
            yield drawn(index, self.kinds), index


def subset(length: int, kinds: str, bad: int = -1) -> Any:
    return Subset(Rows(2 * length, kinds, bad), range(0, 2 * length, 2))


def concatenated(length: int, kinds: str, bad: int = -1) -> Any:
    first = length // 3
    return ConcatDataset([Rows(first, kinds, bad), OwnGenerators(length - first, kinds)])


def part(length: int, kinds: str, bad: int = -1) -> Any:
    return random_split(Rows(length + 5, kinds, bad), [length, 5])[0]


def tensors(length: int, kinds: str, bad: int = -1) -> Any:
    return TensorDataset(torch.rand(length, WIDTH, dtype=torch.float64), torch.arange(length))


def piped(length: int, kinds: str, bad: int = -1) -> Any:
    return IterableWrapper(range(length)).shuffle().sharding_filter().map(_as_row)


def _as_row(index: int) -> Any:
    return drawn(index, "pnt"), index


DATASETS = {
    each.__name__: each
    for each in (
        *(Rows, Rows, ManyRows, Sometimes, OwnGenerators, Remembers, Computes, Streams),
        *(subset, concatenated, part, tensors, piped),
    )
}
STREAMS = ("Streams", "piped")
# From Python 3.14 on a fork is not the default, and what is takes seconds: a few programs have it.
_USUAL = (
    [None] * 12 if multiprocessing.get_all_start_methods()[0] == "fork" else [*["fork"] * 11, None]
)
_SENT_BY_TORCH = [*{*DATASETS} - {"OwnGenerators", "concatenated"}]  # not with a torch.Generator


class Eager(Sampler[int]):
    """Draws its whole order when it is asked for an iterator."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.length).tolist())

    def __len__(self) -> int:
        return self.length


class Lazy(Eager):
    """Draws each index when it is asked for it."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.length):
            yield random.randrange(self.length)


class EagerBatches(Eager):
    """A batch sampler of the program's own."""

    def __iter__(self) -> Iterator[Any]:
        order = torch.randperm(self.length).tolist()
        return iter([order[at : at + 3] for at in range(0, self.length, 3)])

    def __len__(self) -> int:
        return -(-self.length // 3)


def drawing_collate(samples: list[Any]) -> Any:
    """Mix samples, as mixup does in a collate function."""
    share = random.betavariate(1, 1) + float(torch.rand(()))
    rows, labels = default_collate(samples)
    return rows * share, labels


def seeds_as_the_docs_say(worker: int) -> None:
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def seeds_by_number(worker: int) -> None:
    np.random.seed(100 + worker)
    torch.manual_seed(worker)


def draws_in_init(worker: int) -> None:
    np.random.rand(worker + 1)
    info = get_worker_info()
    assert info is not None
    random.seed(info.seed + random.randrange(10))


def seeds_by_process(worker: int) -> None:
    random.seed(multiprocessing.current_process()._identity[0])


def arguments_of(chance: random.Random) -> dict[str, Any]:
    """Choose the parts of a program."""
    workers = chance.choice([0, 1, 2, 2, 3])
    name = chance.choice([*DATASETS])
    streams = name in STREAMS
    sent = name in _SENT_BY_TORCH
    chosen: dict[str, Any] = {
        "dataset": name,
        "length": chance.choice([0, 1, 5, 12, 23, 40]),
        "kinds": "".join(chance.sample("pntm", chance.randint(1, 4))),
        "bad": chance.choice([-1, -1, -1, 4]),
        "batch": chance.choice([1, 2, 3, 5, None]),
        "sampler": None if streams else chance.choice([None, "shuffle", "shuffle", *_SAMPLERS]),
        "workers": workers,
        "persistent": workers > 0 and chance.random() < 0.5,
        "prefetch": chance.choice([None, None, 1, 3]) if workers else None,
        "drop_last": chance.random() < 0.2,
        "collate": chance.random() < 0.3,
        "init": chance.choice([None, *_INITS]) if workers else None,
        "own_generator": chance.random() < 0.25,
        "loops": [chance.choice([*_LOOPS, *SHAPES]) for _ in range(chance.randint(1, 3))],
        "context": chance.choice([*_USUAL, "spawn"]) if workers and sent else _USUAL[0],
        "thread": chance.random() < 0.1,
    }
    if chosen["context"] == "spawn":  # every worker of every epoch imports torch
        chosen["workers"] = min(2, workers)
        chosen["loops"] = chosen["loops"][: 3 if chosen["persistent"] else 1]
    if streams and chosen["persistent"]:
        # How much torch asks of several streams depends on when it learns of an end: it would not
        # even equal itself on a busy machine.
        chosen["workers"] = 1
    return chosen


_SAMPLERS = {
    "replaced": lambda n: RandomSampler(range(max(1, n)), replacement=True, num_samples=n + 3),
    "weighted": lambda n: WeightedRandomSampler([1.0 + i for i in range(max(1, n))], n + 2),
    "subset": lambda n: SubsetRandomSampler(range(0, n, 2)),
    "eager": Eager,
    "lazy": Lazy,
}
_BATCH_SAMPLERS = {"batches": EagerBatches, "wrapped": lambda n: BatchSampler(Eager(n), 3, False)}
_INITS = {
    each.__name__: each
    for each in (seeds_as_the_docs_say, seeds_by_number, draws_in_init, seeds_by_process)
}


def make_loader(loader_class: Any, chosen: dict[str, Any], **more: Any) -> Any:
    length = chosen["length"]
    dataset = DATASETS[chosen["dataset"]](length, chosen["kinds"], chosen["bad"])
    options: dict[str, Any] = {"batch_size": chosen["batch"], "drop_last": chosen["drop_last"]}
    if chosen["batch"] is None:
        del options["drop_last"]
    sampler = chosen["sampler"]
    if sampler == "shuffle":
        options["shuffle"] = length > 0
    elif sampler is not None:
        options["sampler"] = _SAMPLERS[sampler](length)
    if chosen["batch"] == 5 and chosen["dataset"] not in STREAMS:
        kind = "batches" if chosen["collate"] else "wrapped"
        options = {"batch_sampler": _BATCH_SAMPLERS[kind](length)}
    if chosen["collate"] and chosen["batch"] is not None:
        options["collate_fn"] = drawing_collate
    if chosen["own_generator"]:
        options["generator"] = torch.Generator().manual_seed(11)
    if chosen["workers"]:
        options |= {
            "num_workers": chosen["workers"],
            "persistent_workers": chosen["persistent"],
            "prefetch_factor": chosen["prefetch"],
            "worker_init_fn": _INITS.get(chosen["init"]),
            "multiprocessing_context": chosen["context"],
        }
    return loader_class(dataset, **options, **more)


# ---- what a program does with its loader ---------------------------------------------------------


class Training:
    """A small model with dropout: its loss depends on every draw."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(WIDTH, 4), nn.Dropout(0.2), nn.Linear(4, 1)).double()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.losses: list[float] = []

    def step(self, batch: Any) -> None:
        rows = batch[0] if isinstance(batch, list | tuple) else batch
        rows = torch.as_tensor(rows, dtype=torch.float64).reshape(-1, WIDTH)
        loss = self.model(rows).pow(2).mean()
        if not torch.isfinite(loss):
            return
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def result(self) -> Any:
        return self.losses, plain([each.detach() for each in self.model.parameters()])


def trains(loader: Any, training: Training) -> Any:
    seen = []
    for batch in loader:
        seen.append(plain(batch))
        training.step(batch)
    return seen


def trains_and_leaves(loader: Any, training: Training) -> Any:
    for number, batch in enumerate(loader):
        training.step(batch)
        if number == 2:
            break
    return training.losses[-1:]


def goes_on_after_errors(loader: Any, training: Training) -> Any:
    seen: list[Any] = []
    iterator = iter(loader)
    while True:
        try:
            seen.append(plain(next(iterator)))
        except StopIteration:
            return seen
        except ValueError:
            seen.append("an error")


def changes_the_dataset(loader: Any, training: Training) -> Any:
    seen = plain(list(loader))
    if isinstance(loader.dataset, Rows):
        loader.dataset.kinds = loader.dataset.kinds[::-1] + "p"
    return seen


_LOOPS = {
    each.__name__: each
    for each in (trains, trains_and_leaves, goes_on_after_errors, changes_the_dataset)
}


def perform(loader_class: Any, chosen: dict[str, Any], **more: Any) -> list[Any]:
    """Run a program with a loader class. Return all that can be seen of it."""
    global MODULE_RNG
    MODULE_RNG = np.random.default_rng(5)
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    done = threading.Event()
    if chosen["thread"]:
        threading.Thread(target=done.wait, daemon=True).start()
    loader, training = make_loader(loader_class, chosen, **more), Training()
    seen: list[Any] = []
    kept: dict[str, Any] = {}
    try:
        for name in chosen["loops"]:
            try:
                if name in _LOOPS:
                    seen.append(_LOOPS[name](loader, training))
                else:
                    seen.append(plain(SHAPES[name](loader, kept)))
            except Exception as error:  # of the program itself, and the same with both
                seen.append(type(error).__name__)
            seen.append((random.random(), np.random.rand(), float(torch.rand(()))))
    finally:
        done.set()
    return [*seen, training.result(), _generators()]


def _generators() -> str:
    """Return what all generators of this process are like, in brief."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state().tolist()
    return hashlib.sha256(pickle.dumps((states, MODULE_RNG.bit_generator.state))).hexdigest()
