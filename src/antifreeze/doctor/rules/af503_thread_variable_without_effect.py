"""A variable of the environment that limits threads, set where nobody reads it any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.view import View
from .base import LIKELY, POSSIBLE, SLOW, Hit, Rule

# The variables, and the packages that read them once, when they are imported.
VARIABLES = {
    "OMP_NUM_THREADS": ("torch", "numpy", "scipy", "sklearn", "cv2"),
    "MKL_NUM_THREADS": ("torch", "numpy", "scipy"),
    "OPENBLAS_NUM_THREADS": ("numpy", "scipy"),
    "NUMEXPR_NUM_THREADS": ("numexpr", "pandas"),
    "VECLIB_MAXIMUM_THREADS": ("numpy", "scipy"),
}
UNREAL = {"OPENCV_OPENMP_NUM_THREADS": "`cv2.setNumThreads(0)`"}
# Who starts other programs or processes sets it for them.
_STARTERS = (
    "subprocess",
    "multiprocessing",
    "torch.multiprocessing",
    "concurrent",
    "joblib",
    "ray",
)


def find(view: View) -> Iterator[Hit]:
    for node, name in _settings(view):
        if name in UNREAL:
            yield Hit(node, f"OpenCV has no variable `{name}`: setting it changes nothing")
        elif name in VARIABLES and not view.imports(*_STARTERS):
            first = _imported_before(node, VARIABLES[name], view)
            if first:
                top = view.function_around(node) is None
                yield Hit(
                    node,
                    f"`{name}` is set after `{first}` was imported, which has read it by then:"
                    " setting it changes nothing in this process",
                    LIKELY if top else POSSIBLE,
                )


def _settings(view: View) -> Iterator[tuple[ast.AST, str]]:
    """Give where variables are set: `os.environ["X"] = ...`, `.setdefault`, `putenv`."""
    for assigned in view.module.nodes(ast.Assign):
        for target in assigned.targets:
            if isinstance(target, ast.Subscript) and view.resolve(target.value) == "os.environ":
                name = view.constant(target.slice)
                if isinstance(name, str):
                    yield assigned, name
    for call in view.calls("os.environ.setdefault", "os.putenv"):
        name = view.constant(call.args[0]) if call.args else None
        if isinstance(name, str):
            yield call, name
    for call in view.calls("os.environ.update"):
        for each in call.args:
            for key in each.keys if isinstance(each, ast.Dict) else ():
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield call, key.value


def _imported_before(node: ast.AST, packages: tuple[str, ...], view: View) -> str:
    """Give the package that is imported above, at the top of the file; or ''."""
    for statement in view.module.tree.body:
        if statement.lineno >= getattr(node, "lineno", 0):
            return ""
        match statement:
            case ast.Import(names=names):
                tops = [each.name.partition(".")[0] for each in names]
            case ast.ImportFrom(module=str() as module, level=0):
                tops = [module.partition(".")[0]]
            case _:
                continue
        for top in tops:
            if top in packages:
                return top
    return ""


RULE = Rule(
    code="AF503",
    name="thread-variable-without-effect",
    severity=SLOW,
    confidence=LIKELY,
    title="A thread limit in the environment comes too late",
    what="""
    `os.environ["OMP_NUM_THREADS"]`, `MKL_NUM_THREADS`, `OPENBLAS_NUM_THREADS` and the like set
    below the import of torch, numpy or OpenCV; and `OPENCV_OPENMP_NUM_THREADS`,
    which does not exist.
    """,
    why="""
    These libraries read the environment once, when they are loaded. Measured with torch 2.13 and
    numpy 2: set before the import all three bring the number of threads to 1; set after it, none
    does. Workers then start as many threads each as the machine has cores, and slow each other down
    ([pytorch#82219](https://github.com/pytorch/pytorch/issues/82219); 94 s became 14 s in
    [OpenSceneFlow#33](https://github.com/KTH-RPL/OpenSceneFlow/pull/33)).
    """,
    instead="""
    Set it above the first import, or in the shell: `OMP_NUM_THREADS=1 python train.py`. From
    within: `torch.set_num_threads(1)`, `cv2.setNumThreads(0)`,
    `threadpoolctl.threadpool_limits(1)`. antifreeze's loader limits the threads of
    its workers by itself.
    """,
    not_flagged="""
    Variables set above the imports, and files that start other processes, which inherit them.
    """,
    bad="""
import os

import numpy as np
import torch

os.environ["OMP_NUM_THREADS"] = "1"


def mean(rows):
    return torch.from_numpy(np.asarray(rows)).mean()
""",
    good="""
import os

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch


def mean(rows):
    return torch.from_numpy(np.asarray(rows)).mean()
""",
    also_bad=(
        """
import os

import cv2
from torch.utils.data import DataLoader, Dataset

os.environ["OPENCV_OPENMP_NUM_THREADS"] = "1"


class Pictures(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return cv2.imread(self.paths[index])


def load(paths):
    return DataLoader(Pictures(paths), num_workers=4)
""",
        """
from os import environ

from numpy import linalg

if __name__ == "__main__":
    environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    environ.update({"MKL_NUM_THREADS": "1"})
    print(linalg.norm([1.0, 2.0]))
""",
    ),
    also_good=(
        """
import os
import subprocess

import torch


def launch(script):
    os.environ["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    subprocess.run(["python", script], check=True)
""",
        """
import os

import torch

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def threads():
    return torch.get_num_threads()
""",
    ),
    find=find,
)
