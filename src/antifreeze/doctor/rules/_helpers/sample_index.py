"""The parameters that carry the index of the sample, from `__getitem__` to what it calls."""

from __future__ import annotations

import ast

from ...source.definitions import Dataset


def sample_index_parameters(dataset: Dataset) -> dict[ast.AST, set[str]]:
    """Return the parameters that are the number of the sample, as `__getitem__` has it and passes
    it on: `self.read(index)`. Others may be that of a shard or a class."""
    starts = [each for each in dataset.loading if each.name in ("__getitem__", "__getitems__")]
    found: dict[ast.AST, set[str]] = {each.node: set(each.parameters[1:2]) for each in starts}
    for _ in range(3):
        for function in dataset.loading:
            mine = found.get(function.node, set())
            for call in function.calls() if mine else ():
                match call:
                    case ast.Call(func=ast.Attribute(attr=name, value=me), args=arguments):
                        method = dataset.method(name)
                        if method is None or not dataset.owns(me, function.module):
                            continue
                        for parameter, value in zip(method.parameters[1:], arguments, strict=False):
                            if isinstance(value, ast.Name) and value.id in mine:
                                found.setdefault(method.node, set()).add(parameter)
                    case _:
                        pass
    return found
