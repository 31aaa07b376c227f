"""Find the functions of a file that run in worker processes."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .definitions import Dataset, Function, called_functions, reached_from
from .file_summary import Workers
from .loaders import Loader
from .transformers_trainer import collators_of_trainers
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
    entry_point: ast.AST | None = None  # of another file's code: the place here that leads to it

    @property
    def only_ours(self) -> bool:
        """Whether only antifreeze's loaders run it."""
        if self.loader is not None:
            return self.loader.ours
        return self.dataset is not None and self.dataset.only_ours


def find_worker_code(view: View) -> list[WorkerCode]:
    """Return what loads samples, transforms, collates and starts workers, each with what it calls;
    of other files, what this one leads to."""
    found: dict[ast.AST, WorkerCode] = {}
    for dataset in view.datasets:
        if dataset.workers is None or dataset.workers.any:
            entry_points = _entry_points(dataset.loading, view, dataset)
            for function in dataset.loading:
                place = entry_points.get(function.node)
                code = WorkerCode(function, "sample", dataset.workers, dataset, entry_point=place)
                found.setdefault(function.node, code)
    for loader in view.loaders:
        if not loader.workers.any:
            continue
        for role, start in (("collate", loader.collate), ("init", loader.worker_init)):
            if start is not None:
                _add(found, role, [start], loader, view)
        _add(found, "transform", list(transforms_of(loader, view)), loader, view)
    for start in collators_of_trainers(view):
        for each in reached_from([start], view.project):
            code = WorkerCode(each, "collate", Workers.LIKELY, called=each is not start)
            found.setdefault(each.node, code)
    return [
        each
        for each in found.values()
        if each.function.module is view.module or each.entry_point is not None
    ]


def _add(
    found: dict[ast.AST, WorkerCode], role: str, starts: list[Function], loader: Loader, view: View
) -> None:
    reached = reached_from(starts, view.project)
    entry_points = _entry_points(reached, view)
    for each in reached:
        called = role != "transform" and each is not starts[0]
        place = entry_points.get(each.node, loader.node) if each.module is not view.module else None
        code = WorkerCode(each, role, loader.workers, loader.dataset, loader, called, place)
        found.setdefault(each.node, code)


def _entry_points(
    reached: Iterable[Function], view: View, dataset: Dataset | None = None
) -> dict[ast.AST, ast.AST]:
    """Return the places of this file that lead to functions of others. What a dataset inherits is
    left to the file of the base class."""
    mine = {each.node for each in dataset.lineage} if dataset is not None else set()
    entry_points: dict[ast.AST, ast.AST] = {}
    for function in reached:
        if function.module is not view.module:
            continue
        for place, called in called_functions(function, function.owner, view.project):
            inherited = called.owner is not None and called.owner.node in mine
            if called.module is view.module or called.node in entry_points or inherited:
                continue
            for each in reached_from([called], view.project):
                if each.module is not view.module:
                    entry_points.setdefault(each.node, place)
    return entry_points
