"""The functions of a file that run in worker processes."""

from __future__ import annotations

import ast
import dataclasses
from typing import TYPE_CHECKING

from .definitions import Dataset, Function, reached_from
from .loaders import Loader
from .summary import Workers
from .trainers import collators_of_trainers
from .transforms import transforms_of

if TYPE_CHECKING:
    from .view import View


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WorkerCode:
    """A function that runs in worker processes."""

    function: Function
    role: str  # sample, transform, collate or init
    workers: Workers | None  # None: no loader of its dataset was found
    dataset: Dataset | None = None
    loader: Loader | None = None  # of all but samples
    called: bool = False  # by a collate, init or transform function, which uses what it returns

    @property
    def only_ours(self) -> bool:
        """Say whether only antifreeze's loaders run it."""
        if self.loader is not None:
            return self.loader.ours
        return self.dataset is not None and self.dataset.only_ours


def find_worker_code(view: View) -> list[WorkerCode]:
    """Give what loads samples, transforms, collates and starts workers, each with what it calls."""
    found: dict[ast.AST, WorkerCode] = {}
    for dataset in view.datasets:
        if dataset.workers is None or dataset.workers.any:
            for function in dataset.loading:
                found.setdefault(
                    function.node, WorkerCode(function, "sample", dataset.workers, dataset)
                )
    for loader in view.loaders:
        for role, start in (("collate", loader.collate), ("init", loader.worker_init)):
            if start is not None and loader.workers.any:
                for each in reached_from([start], view.project):
                    code = WorkerCode(
                        each, role, loader.workers, loader.dataset, loader, each is not start
                    )
                    found.setdefault(each.node, code)
        if loader.workers.any:
            for each in reached_from(transforms_of(loader, view), view.project):
                code = WorkerCode(each, "transform", loader.workers, loader.dataset, loader)
                found.setdefault(each.node, code)
    for start in collators_of_trainers(view):
        for each in reached_from([start], view.project):
            code = WorkerCode(each, "collate", Workers.LIKELY, called=each is not start)
            found.setdefault(each.node, code)
    return [each for each in found.values() if each.function.module is view.module]
