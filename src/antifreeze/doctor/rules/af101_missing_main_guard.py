"""Workers that import the script start it again."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.definitions import PICKLING
from ..source.view import View
from .base import CERTAIN, CRASH, LIKELY, POSSIBLE, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    if view.module.is_notebook:
        return  # there is no script that a worker could import
    loops = {loop.loader: loop for loop in view.loops if loop.loader is not None}
    for loader in view.loaders:
        if loader.ours or not loader.workers.any or loader not in loops:
            continue
        loop = loops[loader]
        if not view.runs_on_import(loop.place) or loader.start_method == "fork":
            continue
        if loader.start_method in PICKLING:
            how = f"workers are started by {loader.start_method}, import this file and"
            confidence = CERTAIN if loader.workers.value == "some" else LIKELY
        else:
            how = "workers that are not forked (macOS, Windows, Python 3.14) import this file and"
            confidence = POSSIBLE
        yield Hit(
            loop.place,
            f'{how} come to this loop again: it is not under `if __name__ == "__main__":`',
            confidence,
        )


RULE = Rule(
    code="AF101",
    name="missing-main-guard",
    severity=CRASH,
    confidence=LIKELY,
    title="Workers that import the script run it again",
    what="""
    A loop over a loader with workers that runs when the file is imported, in a program whose
    workers are started by spawn or forkserver: that is the default on macOS and Windows, and on
    Linux from Python 3.14 on (`python-version` in the settings, or `requires-python`).
    """,
    why="""
    Such a worker imports the script to find its classes. Without the guard it comes to the loop,
    wants workers of its own, and Python stops it: `DataLoader worker (pid(s) ...) exited
    unexpectedly` ([pytorch#59438](https://github.com/pytorch/pytorch/issues/59438)).
    """,
    instead="""
    Put what the script does into a function, and call it under `if __name__ == "__main__":`.
    """,
    not_flagged="""
    Scripts that say nothing about how workers start are shown with `--confidence possible`.
    Notebooks. antifreeze's own loader, whose workers do not import the script.
    """,
    bad="""
import torch
from torch.utils.data import DataLoader, TensorDataset

dataset = TensorDataset(torch.arange(10))
loader = DataLoader(dataset, num_workers=2, multiprocessing_context="spawn")
for batch in loader:
    print(batch)
""",
    good="""
import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    dataset = TensorDataset(torch.arange(10))
    loader = DataLoader(dataset, num_workers=2, multiprocessing_context="spawn")
    for batch in loader:
        print(batch)


if __name__ == "__main__":
    main()
""",
    find=find,
)
