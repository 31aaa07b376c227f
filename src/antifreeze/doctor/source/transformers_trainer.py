"""The loaders that transformers' Trainer makes: their workers and their datasets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .definitions import Function
from .file_summary import LoaderFact, Workers
from .loaders import dataset_name

if TYPE_CHECKING:
    from .view import View

_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
_DATASETS = ("train_dataset", "eval_dataset")


def workers_of_trainers(view: View) -> Workers:
    """Whether the Trainers of a file start workers: by the arguments that the file makes."""
    for call in view.training_arguments:
        number = view.call_arguments(call, ("output_dir",))["dataloader_num_workers"]
        if isinstance(number.value, int) and number.value > 0:
            return Workers.SOME
        if number.given and number.value not in (0, None):
            return Workers.LIKELY
    return Workers.NONE


def collators_of_trainers(view: View) -> Iterator[Function]:
    """Yield the project's functions that Trainers with workers collate with."""
    if workers_of_trainers(view).any:
        for call in view.calls(*_TRAINERS):
            node = view.call_arguments(call, ("model", "args", "data_collator"))[
                "data_collator"
            ].node
            found = view.function_of(node) if node is not None else None
            if found is not None:
                yield found


def facts_of_trainers(view: View) -> Iterator[LoaderFact]:
    """Yield what the files of a Trainer's datasets should know of its loaders."""
    workers = workers_of_trainers(view) if view.training_arguments else Workers.NONE
    for call in view.calls(*_TRAINERS) if workers.any else ():
        arguments = view.call_arguments(call, ("model", "args", "data_collator", *_DATASETS))
        for each in _DATASETS:
            node = arguments[each].node
            name = dataset_name(node, view) if node is not None else None
            if name is not None and not isinstance(node, ast.Constant):
                yield LoaderFact(name, workers, ours=False, has_collate=True, has_worker_init=True)
