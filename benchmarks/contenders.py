"""The loaders that the benchmarks compare, as data: who, of what kind, how to make one."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import peers
from bound import Bound
from torch.utils.data import Dataset
from workloads import Workload

NUM_WORKERS = 2

# base: what the others are divided by. inline: no workers. process, thread: where a peer fetches.
Kind = Literal["base", "torch", "own", "inline", "process", "thread", "bound"]
Make = Callable[[Dataset[Any], Workload], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Contender:
    """One loader with one setting. Epochs come from `iter` of what `make` returns.

    `module` is imported before any clock starts; `package` is what to install where it is missing.
    `restarts`: an epoch that was left early is followed by a new one, from its beginning.
    """

    key: str
    name: str
    kind: Kind
    make: Make
    module: str = "torch.utils.data"
    package: str = "torch"
    restarts: bool = True

    @property
    def installed(self) -> bool:
        """Say whether its package is there, without importing more than its parents."""
        try:
            return importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False

    def load(self) -> None:
        """Import what a program imports at its top: the package, and its `DataLoader` if any.

        (Some packages import no module of theirs before a name of it is asked for.)
        """
        getattr(importlib.import_module(self.module), "DataLoader", None)


def _drop_in(module: str, workers: int, persistent: bool) -> Make:
    """Make torch's class, or ours: the same arguments."""

    def make(dataset: Dataset[Any], workload: Workload) -> Iterable[Any]:
        loader: Iterable[Any] = importlib.import_module(module).DataLoader(
            dataset,
            workload.batch_size,
            num_workers=workers,
            collate_fn=workload.collate,
            persistent_workers=persistent,
        )
        return loader

    return make


def _peer(make: Callable[[Dataset[Any], Workload, int], Iterable[Any]]) -> Make:
    return lambda dataset, workload: make(dataset, workload, NUM_WORKERS)


_TORCH, _OURS = "torch.utils.data", "antifreeze"
_DATA, _SPDL = "torchdata", "spdl-core"

CONTENDERS = (
    Contender("torch", "torch, persistent", "base", _drop_in(_TORCH, NUM_WORKERS, True)),
    Contender("torch-plain", "torch, as written", "torch", _drop_in(_TORCH, NUM_WORKERS, False)),
    Contender("torch-0", "torch, 0 workers", "inline", _drop_in(_TORCH, 0, False)),
    Contender(
        "antifreeze",
        "antifreeze, persistent",
        "own",
        _drop_in(_OURS, NUM_WORKERS, True),
        _OURS,
        _OURS,
    ),
    Contender(
        "antifreeze-plain",
        "antifreeze, as written",
        "own",
        _drop_in(_OURS, NUM_WORKERS, False),
        _OURS,
        _OURS,
    ),
    Contender(
        "antifreeze-0", "antifreeze, 0 workers", "inline", _drop_in(_OURS, 0, False), _OURS, _OURS
    ),
    Contender(
        "stateful",
        "StatefulDataLoader",
        "process",
        _peer(peers.stateful),
        "torchdata.stateful_dataloader",
        _DATA,
    ),
    Contender(
        "nodes-process",
        "torchdata.nodes, process",
        "process",
        _peer(functools.partial(peers.nodes, "process")),
        "torchdata.nodes",
        _DATA,
    ),
    Contender(
        "nodes-thread",
        "torchdata.nodes, thread",
        "thread",
        _peer(functools.partial(peers.nodes, "thread")),
        "torchdata.nodes",
        _DATA,
    ),
    Contender(
        "spdl-thread",
        "SPDL, threads",
        "thread",
        _peer(peers.spdl_threads),
        "spdl.pipeline",
        _SPDL,
        restarts=False,
    ),
    Contender(
        "spdl-subprocess",
        "SPDL, a subprocess",
        "process",
        _peer(peers.spdl_subprocess),
        "spdl.pipeline",
        _SPDL,
        restarts=False,
    ),
    Contender(
        "spdl-process",
        "SPDL, processes",
        "process",
        _peer(peers.spdl_processes),
        "spdl.pipeline",
        _SPDL,
        restarts=False,
    ),
    Contender(
        "grain", "Grain, processes", "process", _peer(peers.grain), "grain", "grain", restarts=False
    ),
    Contender("bound", "bound", "bound", lambda dataset, load: Bound(dataset, load, NUM_WORKERS)),
)
BY_KEY = {contender.key: contender for contender in CONTENDERS}
