"""A worker asks for several threads of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.view import View
from ..source.wording import text_of
from .base import FREEZE, LIKELY, POSSIBLE, Hit, Rule

_SETTERS = frozenset(
    {"torch.set_num_threads", "cv2.setNumThreads", "mkl.set_num_threads"}
    | {"numexpr.set_num_threads", "pyarrow.set_cpu_count", "numba.set_num_threads"}
)
_COUNTS = frozenset(
    {"os.cpu_count", "multiprocessing.cpu_count", "os.process_cpu_count", "psutil.cpu_count"}
)


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        for call in code.function.calls():
            name = view.resolve(call.func)
            if name in _SETTERS and call.args and _is_several(call.args[0], view):
                yield Hit(
                    call,
                    f"`{text_of(call)}` runs in every worker: workers times threads fight for"
                    " the cores, and a forked worker may wait for threads that it does not have",
                    LIKELY if code.workers is not None else POSSIBLE,
                )


def _is_several(node: ast.expr, view: View) -> bool:
    for value in view.origins(node):
        if isinstance(value, ast.Call) and view.resolve(value.func) in _COUNTS:
            return True
        number = view.constant(value)
        if isinstance(number, int) and number > 1:
            return True
    return False


RULE = Rule(
    code="AF109",
    name="threads-raised-in-a-worker",
    severity=FREEZE,
    confidence=LIKELY,
    title="A worker asks for several threads",
    what="""
    `torch.set_num_threads(n)`, `cv2.setNumThreads(n)` or the like, with more than one, in what runs
    in workers: `worker_init_fn`, `__getitem__`, transforms, the collate function.
    """,
    why="""
    torch gives each worker one thread on purpose. GNU OpenMP cannot be used in a forked process
    once its parent has started a team of threads: the first large operation of the worker waits
    for ever ([pytorch#17199](https://github.com/pytorch/pytorch/issues/17199), measured with torch
    2.13: a silent hang). Where it does not hang, eight workers with eight threads each are 64
    threads for the cores of one machine.
    """,
    instead="""
    Leave it at one thread in each worker, and take more workers. `torch.set_num_threads` in the
    main process is for the model's own work, and is fine.
    """,
    not_flagged="""
    0 and 1 threads; numbers that only the running program knows; calls in the main process;
    loaders without workers.
    """,
    bad="""
import torch
from torch.utils.data import DataLoader


def start(worker_id):
    torch.set_num_threads(8)


def load(dataset):
    return DataLoader(dataset, batch_size=32, num_workers=8, worker_init_fn=start)
""",
    good="""
import torch
from torch.utils.data import DataLoader

torch.set_num_threads(8)


def start(worker_id):
    torch.set_num_threads(1)


def load(dataset):
    return DataLoader(dataset, batch_size=32, num_workers=8, worker_init_fn=start)
""",
    also_bad=(
        """
import os

import cv2
import torch
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        cv2.setNumThreads(os.cpu_count())
        return torch.from_numpy(cv2.imread(self.paths[index]))


def load(paths):
    return DataLoader(Pictures(paths), batch_size=32, num_workers=4)
""",
    ),
    find=find,
    follows=True,
)
