"""A lock between processes, held while samples are loaded."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Function
from ..source.view import View
from ..source.wording import text_of
from ..source.worker_code import WorkerCode
from .base import FREEZE, LIKELY, POSSIBLE, Hit, Rule
from .catching import own_nodes
from .processes import primitive

LOCKS = frozenset({"Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition"})
_THREADS = frozenset({"threading.Lock", "threading.RLock", "threading.Semaphore"})
# Calls that are over at once: a lock around them holds nobody up.
_BRIEF = frozenset({"print", "len", "int", "float", "str", "max", "min", "sum", "isinstance"})
_BRIEF_METHODS = frozenset(
    {"append", "add", "update", "get", "pop", "popleft", "put", "get_nowait", "put_nowait"}
    | {"write", "flush", "item", "info", "debug", "warning", "acquire", "release", "set"}
)


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        for place, lock in _held(code.function):
            kind = primitive(lock, view)
            if kind in LOCKS:
                yield Hit(place, _words(code, lock))  # who has such a lock has workers
            elif view.type_of(lock) in _THREADS:
                yield Hit(
                    place,
                    f"`{text_of(lock)}` is a lock of threads: each worker has its own copy, so"
                    " it keeps no other worker out",
                    POSSIBLE,
                )


def _words(code: WorkerCode, lock: ast.expr) -> str:
    slow = (
        f"`{code.function.name}` holds `{text_of(lock)}` while it works: only one worker does"
        " so at a time"
    )
    if code.only_ours:
        return slow
    return f"{slow}, and one that is killed meanwhile stops all the others for ever"


def _held(function: Function) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Give the locks under which a function does more than count, each with its place."""
    for node in function.nodes():
        match node:
            case ast.With():
                for item in node.items:
                    if isinstance(item.context_expr, (ast.Name, ast.Attribute)) and _works(
                        node.body
                    ):
                        yield node, item.context_expr
            case ast.Call(func=ast.Attribute(attr="acquire", value=ast.expr() as lock)):
                body = function.node.body if isinstance(function.node.body, list) else []
                if _works(body):
                    yield node, lock
            case _:
                pass


def _works(body: list[ast.stmt]) -> bool:
    for statement in body:
        for node in own_nodes(statement):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in _BRIEF:
                    pass
                case ast.Call(func=ast.Attribute(attr=name)) if name in _BRIEF_METHODS:
                    pass
                case ast.Call() | ast.Yield():
                    return True
                case ast.Subscript(value=ast.Attribute() | ast.Subscript(), ctx=ast.Load()):
                    return True  # self.file[index]
                case _:
                    pass
    return False


RULE = Rule(
    code="AF402",
    name="lock-around-loading",
    severity=FREEZE,
    confidence=LIKELY,
    title="Samples are loaded under a lock that all workers share",
    what="""
    Code that loads samples in workers does so while it holds a lock or semaphore of
    `multiprocessing`.
    """,
    why="""
    All other workers wait meanwhile: sixteen of them are as fast as one. And such a lock is not
    freed when its owner dies. If a worker is killed while it holds it (out of memory, a crash in a
    decoder), the others wait for it for ever; see [lock-of-the-dead](../hangs/lock-of-the-dead.md).
    """,
    instead="""
    Take the lock away. Each worker may open and read the same file at the same time: every `open`
    has its own position. What cannot be shared (a connection, an HDF5 file) each worker opens for
    itself: `antifreeze.per_worker`. If something must not happen twice, do it before the loader
    starts.
    """,
    not_flagged="""
    A lock around a counter or a log line only. With `--confidence possible` also locks of
    `threading`, which keep no other worker out.
    """,
    bad="""
import multiprocessing

from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.lock = multiprocessing.Lock()

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with self.lock:
            with open(self.paths[index]) as file:
                return file.read()


def load(paths):
    return DataLoader(Texts(paths), batch_size=8, num_workers=4)
""",
    good="""
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index]) as file:
            return file.read()


def load(paths):
    return DataLoader(Texts(paths), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
import h5py
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

lock = mp.Lock()


class Volumes(Dataset):
    def __init__(self, path, length):
        self.path = path
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, idx):
        lock.acquire()
        try:
            return self._read(idx)
        finally:
            lock.release()

    def _read(self, idx):
        with h5py.File(self.path, "r") as file:
            return file["volume"][idx]


def get_loader(cfg):
    return DataLoader(Volumes(cfg.path, cfg.length), num_workers=cfg.num_workers)
""",
        """
from multiprocessing import Manager

from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, paths, lock, transform=None):
        self.paths = paths
        self.lock = lock
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with self.lock:
            image = Image.open(self.paths[index]).convert("RGB")
        return self.transform(image)


def main(paths, transform):
    manager = Manager()
    dataset = Pictures(paths, manager.Lock(), transform)
    for batch in DataLoader(dataset, 32, num_workers=8):
        print(batch.shape)
""",
    ),
    also_good=(
        """
from multiprocessing import Lock, Value

from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.lock = Lock()
        self.seen = Value("i", 0, lock=False)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index]) as file:
            text = file.read()
        with self.lock:
            self.seen.value += 1
        return text


def load(paths):
    return DataLoader(Texts(paths), batch_size=8, num_workers=4)
""",
        """
from multiprocessing import Lock

from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, folder, download):
        lock = Lock()
        with lock:
            self.paths = download(folder)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index]) as file:
            return file.read()


def load(folder, download):
    return DataLoader(Texts(folder, download), batch_size=8, num_workers=4)
""",
    ),
    find=find,
    follows=True,
)
