"""A loader without a word about workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source import library_names
from ..source.view import View
from .rule import LIKELY, SLOW, Hit, Rule

_IN_MEMORY = frozenset({"torch.utils.data.TensorDataset", "range", "list", "torch.arange"})


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        if loader.kind != library_names.DATALOADER or not loader["num_workers"].absent:
            continue
        made = loader.dataset_expression
        if isinstance(made, (ast.List, ast.Tuple, ast.ListComp)):
            continue
        if isinstance(made, ast.Call) and view.resolve(made.func) in _IN_MEMORY:
            continue
        yield Hit(
            loader.node,
            "`num_workers` is not given: samples are loaded in the main process, while the model"
            " waits",
        )


RULE = Rule(
    code="AF901",
    name="workers-not-chosen",
    severity=SLOW,
    confidence=LIKELY,
    opinion=True,
    find=find,
)
