"""A shuffled order that no seed decides."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import LIKELY, WRONG_DATA, Hit, Rule

_SEEDS = ("manual_seed", "seed_everything", "set_seed", "set_determinism", "seed_all")


def find(view: View) -> Iterator[Hit]:
    if _is_seeded(view):
        return
    for loader in view.loaders:
        if loader["shuffle"].is_(True) and loader["generator"].absent:
            yield Hit(
                loader.node,
                "the order is shuffled and nothing seeds it: no run can be repeated",
            )


def _is_seeded(view: View) -> bool:
    """Whether the program has a seed: a call with the word in its name, here or elsewhere."""
    if any(view.project.any_file_calls(name) for name in _SEEDS):
        return True
    return any(
        "seed" in text_of(call.func).lower() or "determinis" in text_of(call.func).lower()
        for call in view.module.nodes(ast.Call)
        if isinstance(call.func, (ast.Name, ast.Attribute))
    )


RULE = Rule(
    code="AF902",
    name="order-not-seeded",
    severity=WRONG_DATA,
    confidence=LIKELY,
    opinion=True,
    find=find,
)
