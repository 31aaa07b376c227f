"""Whether what one statement binds can be what a name means at another place of its function."""

from __future__ import annotations

import ast

from .module import Module

_LEAVE = (ast.Return, ast.Raise)
_BLOCKS = ("body", "orelse", "finalbody")


def can_reach(binding: ast.AST, use: ast.AST, module: Module) -> bool:
    """Say whether a value that is bound in a branch gets out of it to where the name is used: not
    if the branch ends with `return` or `raise`. What loops and `try` do is not looked into."""
    function = module.function_around(binding)
    if function is None or module.function_around(use) is not function:
        return True
    around = set(module.ancestors(use))
    inner = binding
    for outer in module.ancestors(binding):
        if isinstance(outer, ast.Try):
            return True  # `raise` is caught, perhaps
        if isinstance(outer, (ast.If, ast.With, ast.For, ast.While)):
            block = next(
                (b for name in _BLOCKS if inner in (b := getattr(outer, name, []))), [inner]
            )
            left = isinstance(block[-1], _LEAVE)
            if left and use not in block and around.isdisjoint(block):
                return False
        if outer is function:
            break
        inner = outer
    return True
