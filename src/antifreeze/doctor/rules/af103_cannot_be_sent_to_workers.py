"""A dataset holds what pickle refuses, and its workers are not forked."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset
from ..source.module import Given
from ..source.view import View
from .base import CRASH, LIKELY, POSSIBLE, Hit, Rule
from .handles import HANDLES, MAY_BE_SENT, opened

# Tried with Python 3.11: each of these is a TypeError of pickle's, or the like.
_REFUSED = frozenset(
    {"threading.Lock", "threading.RLock", "threading.Condition", "threading.Event"}
    | {"threading.Semaphore", "threading.BoundedSemaphore", "threading.Barrier"}
    | {"threading.local", "threading.Thread", "threading.Timer", "_thread.allocate_lock"}
    | {"queue.Queue", "queue.LifoQueue", "queue.PriorityQueue", "queue.SimpleQueue"}
    | {"concurrent.futures.ThreadPoolExecutor", "concurrent.futures.ProcessPoolExecutor"}
    | {"multiprocessing.Pool", "multiprocessing.pool.ThreadPool", "multiprocessing.dummy.Pool"}
    | {"asyncio.new_event_loop", "mmap.mmap", "subprocess.Popen", "weakref.ref"}
    | {"ctypes.pointer", "ctypes.CDLL", "ctypes.cdll.LoadLibrary"}
)


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.sends_itself or dataset.only_ours or dataset.is_forked:
            continue
        if dataset.workers is not None and not dataset.workers.any:
            continue
        for attribute, places in dataset.attributes.items():
            prepared = {function.node for function in dataset.preparing}
            kept = [each for each in places if each.method in prepared]
            if kept and not _is_none(kept[-1].value):
                yield from _hits(view, dataset, attribute, kept)


def _is_none(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _hits(view: View, dataset: Dataset, attribute: str, kept: list[Given]) -> Iterator[Hit]:
    method = view.sent_by(dataset)
    started = f"started by {method}" if method else "that are not forked"
    for place in kept:
        what = _refused(place.value, view) if place.value is not None else ""
        if what and (method or what not in HANDLES):  # forked: AF201 has the handles
            yield Hit(
                view.here(place.node, dataset.node),
                f"`self.{attribute}` of `{dataset.name}` ({what}) cannot be pickled: workers"
                f" {started} cannot be given the dataset",
                LIKELY if method else POSSIBLE,
            )


def _refused(node: ast.expr, view: View) -> str:
    for value in view.origins(node):
        match value:
            case ast.GeneratorExp():
                return "a generator"
            case ast.Call():
                name = view.resolve(value.func)
                if name in _REFUSED:
                    return name or ""
                function = view.function_of(value.func)
                if function is not None and function.is_generator:
                    return f"the generator `{function.name}`"
            case _:
                pass
    handle = opened(node, view)
    return handle[0] if handle is not None and handle[0] not in MAY_BE_SENT else ""


RULE = Rule(
    code="AF103",
    name="cannot-be-sent-to-workers",
    severity=CRASH,
    confidence=LIKELY,
    title="The dataset holds what cannot be sent to workers",
    what="""
    A dataset with an attribute that pickle refuses (a thread's lock, event or queue, a thread pool,
    a generator, an open file, archive or database, a socket, `ctypes`), in a program whose workers
    are started by spawn or forkserver.
    """,
    why="""
    Such workers get the dataset by pickle, and the first `iter(loader)` raises `cannot pickle
    '_thread.lock' object`, or the like, without the name of the attribute
    ([pytorch#22585](https://github.com/pytorch/pytorch/issues/22585),
    [vision#689](https://github.com/pytorch/vision/issues/689)). With fork the same program starts,
    so it breaks when it comes to macOS, Windows, or Python 3.14, where forkserver is the default
    on Linux.
    """,
    instead="""
    Make it in the worker, at first use: `self.lock = None` in `__init__`. Or leave it out of what
    is sent with `__getstate__`. Or load with `antifreeze.DataLoader` and keep
    `antifreeze.per_worker(make)`, which is made anew in each worker.
    """,
    not_flagged="""
    Programs that say nothing about how workers start are shown with `--confidence possible`; what
    forked workers do with a shared handle is AF201. Datasets with `__getstate__` or `__reduce__`.
    Locks and queues of `multiprocessing`, which may be given to a worker. antifreeze's loader,
    which names what it cannot send.
    """,
    bad="""
import threading

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __init__(self, count):
        self.count = count
        self.lock = threading.Lock()
        self.known = {}

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with self.lock:
            return torch.tensor(index)


def load():
    return DataLoader(Numbers(100), num_workers=2, multiprocessing_context="spawn")
""",
    good="""
import threading

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __init__(self, count):
        self.count = count
        self.lock = threading.Lock()

    def __getstate__(self):
        return {"count": self.count}

    def __setstate__(self, state):
        self.__init__(state["count"])

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with self.lock:
            return torch.tensor(index)


def load():
    return DataLoader(Numbers(100), num_workers=2, multiprocessing_context="spawn")
""",
    also_bad=(
        """
import lmdb
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset


class Store(Dataset):
    def __init__(self, args):
        super().__init__()
        env = lmdb.open(args.store, readonly=True, lock=False, readahead=False)
        self.env = env
        with env.begin() as reading:
            self.length = int(reading.get(b"length"))

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        with self.env.begin() as reading:
            return reading.get(str(index).encode())


def main(args):
    mp.set_start_method("forkserver")
    dataset = Store(args)
    for batch in DataLoader(dataset, batch_size=args.batch_size, num_workers=args.workers):
        print(len(batch))
""",
        """
import json
import multiprocessing

from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path
        self.lines = (json.loads(line) for line in open(path))

    def __iter__(self):
        worker = get_worker_info()
        for number, line in enumerate(self.lines):
            if number % worker.num_workers == worker.id:
                yield line


def load(path):
    context = multiprocessing.get_context("spawn")
    return DataLoader(Lines(path), num_workers=4, multiprocessing_context=context)
""",
    ),
    also_good=(
        """
import threading

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __init__(self, count):
        lock = threading.Lock()
        with lock:
            self.count = count
        self.lock = None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.lock is None:
            self.lock = threading.Lock()
        with self.lock:
            return torch.tensor(index)


def load():
    return DataLoader(Numbers(100), num_workers=2, multiprocessing_context="spawn")
""",
        """
import json

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.lengths = torch.tensor(list(len(json.loads(line)["text"]) for line in file))
        self.seen = mp.Value("i", 0)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return self.lengths[index]


def load(path):
    mp.set_start_method("spawn")
    return DataLoader(Lines(path), num_workers=4)
""",
    ),
    find=find,
)
