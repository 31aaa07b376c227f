"""Processes that a worker would start."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.summary import Workers
from ..source.view import View
from ..source.worker_code import WorkerCode
from .base import CERTAIN, CRASH, LIKELY, POSSIBLE, Hit, Rule

_STARTS = frozenset(
    {"multiprocessing.Pool", "multiprocessing.Process", "multiprocessing.pool.Pool"}
    | {"multiprocessing.process.Process", "multiprocessing.Manager", "multiprocessing.spawn"}
    | {"concurrent.futures.ProcessPoolExecutor", "concurrent.futures.process.ProcessPoolExecutor"}
)
_OF_A_CONTEXT = ("Pool", "Process", "Manager")


def find(view: View) -> Iterator[Hit]:
    loaders = {each.node: each for each in view.loaders}
    for code in view.worker_code:
        for call in code.function.calls():
            loader = loaders.get(call)
            if loader is not None and loader.workers.any:
                sure = code.workers is Workers.SOME and loader.workers is Workers.SOME
                yield _hit(call, "a loader with workers", code, sure=sure)
            elif (name := _starts(call, view)) != "":
                yield _hit(call, f"`{name}`", code, sure=code.workers is Workers.SOME)


def _hit(call: ast.Call, what: str, code: WorkerCode, *, sure: bool) -> Hit:
    words = f"{what} in `{code.function.name}`, which runs in workers: they may start no processes"
    confidence = CERTAIN if sure and code.role != "sample" else LIKELY
    return Hit(call, words, confidence if code.workers is not None else POSSIBLE)


def _starts(call: ast.Call, view: View) -> str:
    name = view.resolve(call.func) or ""
    if name in _STARTS:
        return name
    match call.func:
        case ast.Attribute(attr=attr, value=ast.expr() as context) if attr in _OF_A_CONTEXT:
            if view.type_of(context) == "multiprocessing.get_context":
                return f"multiprocessing.{attr}"
        case _:
            pass
    return ""


RULE = Rule(
    code="AF108",
    name="workers-inside-workers",
    severity=CRASH,
    confidence=LIKELY,
    title="A worker starts processes of its own",
    what="""
    A pool, a process, or a loader with workers that is made in what runs in workers: `__getitem__`
    or `__iter__` and what they call, the collate function, `worker_init_fn`.
    """,
    why="""
    Workers are daemonic processes, and Python lets those start none: `AssertionError: daemonic
    processes are not allowed to have children`. Measured with torch 2.13 for `Pool`, `Process`,
    `ProcessPoolExecutor` and a `DataLoader` with one worker; antifreeze's workers are daemonic,
    too.
    """,
    instead="""
    Let the loader's own workers do the work: give it more of them, and let each load one sample.
    Inside a worker use threads (`ThreadPoolExecutor`), `subprocess.run`, or a loader with
    `num_workers=0`.
    """,
    not_flagged="""
    Threads, `subprocess`, joblib (which falls back to one process), and loaders with
    `num_workers=0`. Pools that `__init__` uses in the main process. Datasets whose loaders have no
    workers.
    """,
    bad="""
from multiprocessing import Pool

from torch.utils.data import DataLoader, Dataset


def read(path):
    with open(path, "rb") as file:
        return len(file.read())


class Clips(Dataset):
    def __init__(self, clips):
        self.clips = clips

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        with Pool(4) as pool:
            return pool.map(read, self.clips[index])


def load(clips):
    return DataLoader(Clips(clips), num_workers=4)
""",
    good="""
from concurrent.futures import ThreadPoolExecutor

from torch.utils.data import DataLoader, Dataset


def read(path):
    with open(path, "rb") as file:
        return len(file.read())


class Clips(Dataset):
    def __init__(self, clips):
        self.clips = clips

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(read, self.clips[index]))


def load(clips):
    return DataLoader(Clips(clips), num_workers=4)
""",
    also_bad=(
        """
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Mixed(IterableDataset):
    def __init__(self, parts, cfg):
        self.parts = parts
        self.cfg = cfg

    def __iter__(self):
        worker = get_worker_info()
        mine = self.parts[worker.id :: worker.num_workers] if worker else self.parts
        for part in mine:
            yield from DataLoader(part, batch_size=None, num_workers=self.cfg.inner_workers)


def load(parts, cfg):
    return DataLoader(Mixed(parts, cfg), batch_size=32, num_workers=cfg.num_workers)
""",
        """
import concurrent.futures as futures

import torch
from torch.utils.data import DataLoader


def decode(data):
    return torch.frombuffer(data, dtype=torch.uint8).float().mean()


class Collator:
    def __init__(self, processes):
        self.processes = processes

    def __call__(self, samples):
        with futures.ProcessPoolExecutor(max_workers=self.processes) as pool:
            return torch.stack(list(pool.map(decode, samples)))


def main(dataset, args):
    collate = Collator(processes=4)
    return DataLoader(dataset, args.batch, num_workers=args.workers, collate_fn=collate)
""",
        """
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset


class Games(Dataset):
    def __init__(self, play, count):
        self.play, self.count = play, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.simulate(index)

    def simulate(self, seed):
        context = mp.get_context("fork")
        game = context.Process(target=self.play, args=(seed,))
        game.start()
        game.join()
        return seed


loader = DataLoader(Games(print, 100), num_workers=2)
""",
    ),
    also_good=(
        """
from multiprocessing import Pool

from torch.utils.data import DataLoader, Dataset


def length(path):
    with open(path, "rb") as file:
        return len(file.read())


class Files(Dataset):
    def __init__(self, paths):
        self.paths = paths
        with Pool() as pool:
            self.lengths = pool.map(length, paths)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.lengths[index]


def load(paths):
    return DataLoader(Files(paths), num_workers=4)
""",
        """
import subprocess

from torch.utils.data import DataLoader, Dataset


class Films(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        done = subprocess.run(["ffprobe", self.paths[index]], capture_output=True, check=True)
        return len(done.stdout)


def load(paths):
    return DataLoader(Films(paths), num_workers=4)
""",
    ),
    find=find,
    follows=True,
)
