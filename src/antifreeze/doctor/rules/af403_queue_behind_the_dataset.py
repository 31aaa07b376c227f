"""Samples that workers take from a queue."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import DatasetKind
from ..source.view import View
from ..source.wording import text_of
from ..source.worker_code import WorkerCode
from .base import FREEZE, LIKELY, Hit, Rule
from .catching import catches, handlers, is_broad, own_nodes
from .processes import primitive

QUEUES = frozenset({"Queue", "JoinableQueue", "SimpleQueue"})


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if code.role != "sample":
            continue
        for call in code.function.calls():
            match call.func:
                case ast.Attribute(attr="get" | "get_nowait", value=ast.expr() as queue):
                    if primitive(queue, view) in QUEUES and not _fails_loudly(call, code):
                        yield Hit(call, _words(call, queue, code))  # who has one has workers
                case _:
                    pass


def _words(call: ast.Call, queue: ast.expr, code: WorkerCode) -> str:
    name = f"`{code.function.name}` takes samples from the queue `{text_of(queue)}`"
    if _waits_for_ever(call):
        return f"{name}: when its producer has died or has no more, the workers wait for ever"
    if code.dataset is not None and code.dataset.kind is DatasetKind.MAP:
        return f"{name}: whenever it is empty at that moment, a sample fails or is left out"
    return f"{name}: an empty queue is taken for the end, also if its producer is only slow"


def _fails_loudly(call: ast.Call, code: WorkerCode) -> bool:
    """Say whether a stream that waits in vain ends with an error: nothing takes the empty queue for
    the end. A map-style dataset has no such way: its samples are counted before."""
    limited = any(each.arg == "timeout" for each in call.keywords) or len(call.args) > 1
    if not limited or code.dataset is None or code.dataset.kind is DatasetKind.MAP:
        return False
    around = [
        handler
        for attempt, handler in handlers(code.function)
        if any(node is call for each in attempt.body for node in ast.walk(each))
        and (is_broad(handler) or catches(handler, "Empty"))
    ]
    return all(any(isinstance(n, ast.Raise) for n in own_nodes(each)) for each in around)


def _waits_for_ever(call: ast.Call) -> bool:
    plain = isinstance(call.func, ast.Attribute) and call.func.attr == "get"
    return plain and not call.args and not call.keywords


RULE = Rule(
    code="AF403",
    name="queue-behind-the-dataset",
    severity=FREEZE,
    confidence=LIKELY,
    title="Workers take their samples from a queue",
    what="""
    A dataset whose loading takes from a queue of `multiprocessing`, that something else fills.
    """,
    why="""
    A queue does not know its end. Without a time limit, workers wait for ever once the producer has
    died, or has put fewer ends than there are workers. With one, an empty queue is taken for the
    end, or becomes a None in a batch, whenever the producer is slow. At exit producer and workers
    can wait for each other: a process that has put something does not end before it is taken
    ([documented](https://docs.python.org/3/library/multiprocessing.html#programming-guidelines)).
    And what `__getitem__` gives has nothing to do with the index it was asked for.
    """,
    instead="""
    Let each worker produce its own part of the data: an `IterableDataset` that asks
    `get_worker_info()`. For what truly comes from elsewhere: `get(timeout=...)`, an item that
    means the end, put once for each worker, and an error when the time is over.
    """,
    not_flagged="""
    `queue.Queue` made inside the worker, streams that wait with a time limit and fail when it is
    over, queues that are only put to (logs, counters), and loaders
    without workers.
    """,
    bad="""
import multiprocessing
import queue

from torch.utils.data import DataLoader, Dataset


class Queued(Dataset):
    def __init__(self, length):
        self.queue = multiprocessing.Queue()
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        try:
            return self.queue.get(timeout=5)
        except queue.Empty as empty:
            raise RuntimeError("no more samples") from empty


def load():
    return DataLoader(Queued(1000), batch_size=8, num_workers=4)
""",
    good="""
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Rows(IterableDataset):
    def __init__(self, read):
        self.read = read

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for number, row in enumerate(self.read()):
            if number % step == first:
                yield row


def load(read):
    return DataLoader(Rows(read), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Simulated(IterableDataset):
    def __init__(self, results):
        super().__init__()
        self.results = results

    def __iter__(self):
        assert get_worker_info() is not None
        while True:
            sample = self.results.get()
            if sample is None:
                return
            yield sample


def train(simulate, args):
    results = mp.Queue(maxsize=64)
    mp.Process(target=simulate, args=(results,)).start()
    for batch in DataLoader(Simulated(results), batch_size=32, num_workers=args.workers):
        print(batch)
""",
        """
from multiprocessing import Manager

from torch.utils import data


class Buffer(data.Dataset):
    def __init__(self, size):
        self.manager = Manager()
        self.pending = self.manager.Queue(maxsize=size)
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, idx):
        return self.take()

    def take(self):
        return self.pending.get_nowait()


def loader(size):
    options = dict(batch_size=4, num_workers=2)
    return data.DataLoader(Buffer(size), **options)
""",
    ),
    also_good=(
        """
import multiprocessing
import queue

from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Simulated(IterableDataset):
    def __init__(self, results):
        self.results = results

    def __iter__(self):
        worker = get_worker_info()
        while True:
            try:
                sample = self.results.get(timeout=30)
            except queue.Empty:
                raise RuntimeError(f"worker {worker.id}: no sample for 30 s") from None
            if sample is None:
                return
            yield sample


def load(simulate):
    results = multiprocessing.Queue(maxsize=64)
    multiprocessing.Process(target=simulate, args=(results,), daemon=True).start()
    return DataLoader(Simulated(results), batch_size=8, num_workers=4)
""",
        """
import multiprocessing

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.log = multiprocessing.Queue()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.log.put(index)
        return self.rows[index]


def load(rows):
    return DataLoader(Rows(rows), batch_size=8, num_workers=4)
""",
        """
import queue
import threading

from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Ahead(IterableDataset):
    def __init__(self, read):
        self.read = read

    def __iter__(self):
        worker = get_worker_info()
        ready = queue.Queue(maxsize=8)
        thread = threading.Thread(target=self.fill, args=(ready, worker), daemon=True)
        thread.start()
        while (sample := ready.get()) is not None:
            yield sample

    def fill(self, ready, worker):
        for sample in self.read(worker):
            ready.put(sample)
        ready.put(None)


def load(read):
    return DataLoader(Ahead(read), batch_size=8, num_workers=4)
""",
    ),
    find=find,
    follows=True,
)
