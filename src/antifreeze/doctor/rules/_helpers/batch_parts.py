"""Names of a batch and its parts in the body of a loop over a loader."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ...source.loader_loops import LoaderLoop, LoopNode


@dataclass(frozen=True, slots=True)
class BatchNames:
    """The names of the batch in the body of a loop, and those of its parts."""

    whole: set[str]
    parts: set[str]
    anew: dict[str, int]  # names that are given something else: from which line on

    def has(self, call: ast.Call) -> bool:
        """Whether what is copied is the batch or a part of it, and nothing computed from it."""
        if not isinstance(call.func, ast.Attribute):
            return False
        node = call.func.value
        if not _is_part(node, self.whole | self.parts):
            return False
        while isinstance(node, (ast.Subscript, ast.Attribute)):
            node = node.value
        assert isinstance(node, ast.Name)
        return call.lineno <= self.anew.get(node.id, call.lineno)

    def is_part(self, call: ast.Call) -> bool:
        """Whether it is a part of a batch as collate functions make them: `batch[0]`."""
        assert isinstance(call.func, ast.Attribute)
        node = call.func.value
        if isinstance(node, ast.Name):
            return node.id in self.parts
        while isinstance(node, ast.Subscript):
            node = node.value
        return isinstance(node, ast.Name)


def batch_names_in(loop: LoaderLoop) -> BatchNames:
    """Return the names of the batch and its parts: the loop's own, and what they are unpacked
    to."""
    whole, parts = _names_of_target(loop.node)
    anew: dict[str, int] = {}
    for statement in loop.body:
        for node in ast.walk(statement):
            match node:
                case ast.Assign(targets=[target], value=value):
                    names = {e.id for e in ast.walk(target) if isinstance(e, ast.Name)}
                    if not _is_part(value, whole | parts):
                        for name in names if not isinstance(target, ast.Subscript) else ():
                            anew[name] = min(node.lineno, anew.get(name, node.lineno))
                    elif isinstance(value, ast.Name) and isinstance(target, ast.Name):
                        (whole if value.id in whole else parts).update(names)
                    else:
                        parts |= names
                case ast.comprehension(target=target, iter=source) if _goes_over(
                    source, whole | parts
                ):
                    parts |= {e.id for e in ast.walk(target) if isinstance(e, ast.Name)}
                case _:
                    pass
    return BatchNames(whole, parts, anew)


def _names_of_target(loop: LoopNode) -> tuple[set[str], set[str]]:
    """Return the names a loop has for the batch, and for its parts: `for i, (x, y) in
    enumerate(`."""
    target = loop.target
    around = {each.id for each in ast.walk(loop.iter) if isinstance(each, ast.Name)}
    whole = [target]
    if isinstance(target, ast.Tuple) and not around.isdisjoint({"enumerate", "zip"}):
        whole = target.elts[1:] if "zip" not in around else target.elts
    parts = [each for each in whole if not isinstance(each, ast.Name)]
    return (
        {each.id for each in whole if isinstance(each, ast.Name)},
        {e.id for each in parts for e in ast.walk(each) if isinstance(e, ast.Name)},
    )


def _is_part(node: ast.expr, names: set[str]) -> bool:
    """Whether a value is of the batch as it came: `batch[0]`, `batch["x"], batch["y"]`."""
    if isinstance(node, ast.Tuple):
        return all(_is_part(each, names) for each in node.elts)
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return isinstance(node, ast.Name) and node.id in names


def _goes_over(node: ast.expr, names: set[str]) -> bool:
    """Whether a comprehension goes over the batch: `batch`, `batch.items()`."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id in names
