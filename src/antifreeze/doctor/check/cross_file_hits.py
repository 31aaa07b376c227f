"""Hits in functions of other files that run in workers because the checked file leads to them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ..rules import Rule
from ..rules.rule import Hit
from ..source.syntax.module import Module
from ..source.view import View
from ..source.worker_code import WorkerCode
from .files.source_reader import Source


@dataclass(frozen=True, slots=True)
class CrossFileHit:
    """A hit in another file, and the place of the one looked at that leads there."""

    hit: Hit
    module: Module  # that has the hit
    entry_point: ast.AST

    @property
    def source(self) -> Source:
        return Source(self.module.path, "\n".join(self.module.lines))


def find_cross_file_hits(rule: Rule, view: View) -> Iterator[CrossFileHit]:
    """Return a rule's hits in such functions, where they are. The other file by itself does not
    show that it runs in workers, so the words say by way of what it does."""
    for code in view.worker_code_in_other_files:
        assert code.entry_point is not None
        module = code.function.module
        for hit in rule.find(view.view_of_worker_code(code)):
            if module.holds(hit.node) and not _is_found_there(code, view):
                line = getattr(code.entry_point, "lineno", 1)
                words = f"{hit.words} (it runs in workers by way of {view.path.name}, line {line})"
                yield CrossFileHit(Hit(hit.node, words, hit.confidence), module, code.entry_point)


def _is_found_there(code: WorkerCode, view: View) -> bool:
    """Whether the other file shows it by itself: one of its own loaders has it run."""
    node: ast.AST = code.function.node
    own = view.beside(code.function.module).worker_code
    return any(each.function.node is node and each.workers is not None for each in own)
