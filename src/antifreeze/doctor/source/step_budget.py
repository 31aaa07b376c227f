"""Bound the steps that rules may take for one file, whatever it contains."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Hashable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from .view import View

Walk = TypeVar("Walk", bound=Callable[..., Any])
# Questions about one file, of all rules together: some ten seconds. torch's largest file that
# speaks of loading (110,738 nodes) takes 40,563.
MOST_STEPS_PER_FILE = 1_000_000


class StepBudgetExceeded(Exception):
    """A file takes more steps than any that a person writes: its rest is not looked at."""


class Budget:
    """The steps that are left for a file. No clock: the answer is the same each time."""

    def __init__(self, steps: int = MOST_STEPS_PER_FILE) -> None:
        self.steps = steps
        self.left = steps

    def __repr__(self) -> str:
        return f"Budget({self.left:,} of {self.steps:,} steps left)"

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StepBudgetExceeded(f"not answered after {self.steps:,} steps")


def cached_walk(walk: Walk) -> Walk:
    """Cache a walk of `view.origins` by node and depth; of one that yields, keep each value once.

    Its first arguments are the node and the view.

    Where a list holds another twenty times, and that one a third, such a walk would take as many
    steps as there are ways through them, not as there are lists.
    """

    @functools.wraps(walk)
    def ask(node: ast.expr, view: View, *rest: Hashable) -> Any:
        key = (walk, node, *rest)
        if key not in view.answers:
            found = walk(node, view, *rest)
            if isinstance(found, GeneratorType):
                found = tuple(dict.fromkeys(found))
            view.answers[key] = found
        return view.answers[key]

    return cast(Walk, ask)
