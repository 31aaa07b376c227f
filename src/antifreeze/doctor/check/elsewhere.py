"""What is wrong in functions of other files that run in workers by way of the one looked at."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..rules import Rule
from ..rules.base import Hit
from ..source.view import View
from ..source.worker_code import WorkerCode


def find_elsewhere(rule: Rule, view: View) -> Iterator[Hit]:
    """Give a rule's hits in such functions, at the place of this file that leads there: the other
    file by itself does not show that it runs in workers."""
    for code in view.code_elsewhere:
        assert code.way is not None
        module = code.function.module
        for hit in rule.find(view.elsewhere(code)):
            if module.holds(hit.node) and not _is_told_there(code, view):
                line = getattr(hit.node, "lineno", 1)
                words = f"{hit.words} ({module.path.name}, line {line})"
                yield Hit(code.way, words, hit.confidence)


def _is_told_there(code: WorkerCode, view: View) -> bool:
    """Say whether the other file shows it by itself: one of its own loaders has it run."""
    node: ast.AST = code.function.node
    own = view.beside(code.function.module).worker_code
    return any(each.function.node is node and each.workers is not None for each in own)
