"""A random split that each rank draws for itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

# Who splits, and the argument that makes the split the same everywhere.
_SPLITS = {
    "torch.utils.data.random_split": "generator",
    "sklearn.model_selection.train_test_split": "random_state",
}
_SEEDED_BY = {
    "torch.utils.data.random_split": frozenset(
        {"torch.manual_seed", "torch.random.manual_seed", "torch.seed"}
    ),
    "sklearn.model_selection.train_test_split": frozenset({"numpy.random.seed"}),
}


def find(view: View) -> Iterator[Hit]:
    if not view.distributed:
        return
    for name, argument in _SPLITS.items():
        for call in view.calls(name):
            given = view.call_arguments(call, ("dataset", "lengths", "generator"))
            if name.endswith("train_test_split"):
                given = view.call_arguments(call)
                if given["shuffle"].is_(False):
                    continue
            if given.open_ended and not name.endswith("train_test_split"):
                continue
            if given[argument].given and not given[argument].is_(None):
                continue
            if _is_seeded(name, view):
                continue
            yield Hit(
                call,
                f"each rank draws this split for itself, without a seed: samples that one rank"
                f" validates with are in another's training; pass `{argument}`",
                LIKELY if not view.project.importers(view.path) else POSSIBLE,
            )


def _is_seeded(name: str, view: View) -> bool:
    """Whether a seed is set for the whole program, under whatever name."""
    for call in view.module.nodes(ast.Call):
        called = view.resolve(call.func) or text_of(call.func)
        if called in _SEEDED_BY[name] or "seed" in called.rpartition(".")[2].lower():
            return True
    return False


RULE = Rule(
    code="AF610",
    name="split-of-each-rank",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
