"""Whether what one statement binds can be what a name means at another place of its function."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from .module import Module
from .scopes import Binding

_LEAVE = (ast.Return, ast.Raise)
_BLOCKS = ("body", "orelse", "finalbody")


def can_reach(binding: Binding, use: ast.Name, others: Iterable[Binding], module: Module) -> bool:
    """Say whether a value gets from where it is bound to where the name is used.

    It does not if it is bound in a branch that ends with `return` or `raise`, or if on every way
    the name is bound anew. What loops and `try` do is not looked into: they may bring it anywhere.
    """
    function = module.function_around(binding.node)
    if isinstance(binding.node, ast.arg) or module.function_around(use) is not function:
        return True
    around = {use, *module.ancestors(use)}
    if function is not None and _is_left(binding.node, around, function, module):
        return False
    return not any(
        _is_between(each.node, binding.node, around, use.id, module)
        for each in others
        if each is not binding
    )


def _is_left(node: ast.AST, around: set[ast.AST], function: ast.AST, module: Module) -> bool:
    inner = node
    for outer in module.ancestors(node):
        if isinstance(outer, ast.Try) or outer is function:
            return False  # `raise` is caught, perhaps
        if isinstance(outer, (ast.If, ast.With, ast.For, ast.While)):
            block = _block(inner, outer)
            if block and isinstance(block[-1], _LEAVE) and around.isdisjoint(block):
                return True
        inner = outer
    return False


def _is_between(
    anew: ast.AST, node: ast.AST, around: set[ast.AST], name: str, module: Module
) -> bool:
    """Say whether a statement is in the same block as two others, after the first, which binds, and
    before the second, which uses."""
    parent = module.scopes.parents.get(anew)
    if not isinstance(anew, ast.Assign) or parent is None or not _makes_anew(anew, name):
        return False
    block = _block(anew, parent)
    if not block:
        return False
    before, after = block[: block.index(anew)], block[block.index(anew) + 1 :]
    bound = {node, *module.ancestors(node)}
    return not around.isdisjoint(after) and not bound.isdisjoint(before)


def _makes_anew(statement: ast.Assign, name: str) -> bool:
    """Say whether it gives a name something else than what it had, or that with a wrapper around
    it: `loader = tqdm(loader)`, but not `data = Windows(data)`, which is of another class."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=bound)], value=value) if bound == name:
            pass
        case _:
            return False
    match value:
        case ast.Call(func=ast.Name(id=made) | ast.Attribute(attr=made)) if made[:1].isupper():
            return True
        case _:
            pass
    owners = {each.value for each in ast.walk(value) if isinstance(each, ast.Attribute)}
    return not any(
        isinstance(each, ast.Name) and each.id == name and each not in owners
        for each in ast.walk(value)
    )


def _block(statement: ast.AST, parent: ast.AST) -> list[ast.AST]:
    """Give the statements of which one is, with it; those of a handler are not asked for."""
    for name in _BLOCKS:
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            return block
    return []
