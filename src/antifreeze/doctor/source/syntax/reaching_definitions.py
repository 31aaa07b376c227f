"""Decide whether the value that one statement binds can reach a use of the name or attribute."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .node_text import last_name

if TYPE_CHECKING:
    from .module import AttributeAssignment, Module
    from .scopes import Binding

_LEAVE = (ast.Return, ast.Raise)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = ("body", "orelse", "finalbody")
# What these return is a number of its own, not their argument with a wrapper around it.
_NUMBERS = frozenset({"abs", "float", "int", "len", "max", "min", "round", "sum"})


def can_reach(binding: Binding, use: ast.Name, others: Iterable[Binding], module: Module) -> bool:
    """Whether a value gets from where it is bound to where the name is used.

    It does not if it is bound in a branch that ends with `return` or `raise`, or if on every way
    the name is bound anew. What loops and `try` do is not looked into: they may bring it anywhere.
    A function is taken to run after the block that it is in, unless that block calls it before.
    """
    here = module.function_around(binding.node)
    around = {use, *module.ancestors(use)}
    if module.function_around(use) is not here:
        if here is not None and here in around:
            return True  # a function inside this one: it may run at any moment
        return here is not None or not _is_overwritten(binding.node, use.id, None, module)
    if isinstance(binding.node, ast.arg):
        return not _is_overwritten(binding.node, use.id, around, module)
    if here is not None and _is_left(binding.node, around, here, module):
        return False
    return not _is_overwritten(binding.node, use.id, around, module)


def attribute_can_reach(given: AttributeAssignment, use: ast.Attribute, module: Module) -> bool:
    """Whether what one statement gives an attribute of `self` can be what it is at another place.
    Other methods see what a method leaves behind."""
    around: set[ast.AST] | None = {use, *module.ancestors(use)}
    if given.method is None or module.function_around(use) is not given.method:
        around = None
    name = use.attr if given.method is None else f".{use.attr}"
    return not _is_overwritten(given.node, name, around, module)


def survives_method(given: AttributeAssignment, module: Module) -> bool:
    """Whether an attribute still has what one statement gives it when the method is over."""
    name = given.name if given.method is None else f".{given.name}"
    return not _is_overwritten(given.node, name, None, module)


def always_runs_before(statement: ast.AST, use: ast.AST, module: Module) -> bool:
    """Whether a statement has run, on every way, when a place of the same function is reached."""
    parent = module.scopes.parents.get(statement)
    block = _block(statement, parent) if parent is not None else []
    around = {use, *module.ancestors(use)}
    return not around.isdisjoint(block[block.index(statement) + 1 :]) if block else False


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


def _is_overwritten(node: ast.AST, name: str, around: set[ast.AST] | None, module: Module) -> bool:
    """Whether a name (".name": an attribute of `self`) is bound anew on every way from a statement
    that binds it to its use. `around`: the use and what it is in; None: it is in another function.
    """
    if _may_be_caught(node, around, module):
        return False
    for block, outer in _following(node, module):
        for place, statement in enumerate(block):
            if around is not None and statement in around:
                return _binds_for_its_body(statement, name, around)
            if _always_binds(statement, name):
                between = block[:place]
                if any(_jumps(each) for each in between):
                    return False
                return around is not None or not _calls_own(between, module)
        if isinstance(outer, (*_LOOPS, ast.Try)) and (around is None or outer in around):
            return False  # the next turn, or a handler, may see it
        if isinstance(outer, _LOOPS) or any(_jumps(each) for each in block):
            return False
    return False


def _may_be_caught(node: ast.AST, around: set[ast.AST] | None, module: Module) -> bool:
    """Whether an error right after a statement may lead to the use."""
    for each in module.ancestors(node):
        if not isinstance(each, ast.Try):
            continue
        if around is None or not around.isdisjoint([*each.handlers, *each.finalbody]):
            return True
    return False


def _following(node: ast.AST, module: Module) -> Iterator[tuple[list[ast.AST], ast.AST]]:
    """Yield what follows a statement in its block, and in each block around that, with the
    statement that has the block; up to the function or module."""
    inner = node
    for outer in module.ancestors(node):
        if isinstance(node, ast.arg) and isinstance(outer, _FUNCTIONS):
            yield list(outer.body), outer
            return
        block = _block(inner, outer)
        if block:
            yield block[block.index(inner) + 1 :], outer
        if isinstance(outer, (*_FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module)):
            return
        inner = outer


def _always_binds(statement: ast.AST, name: str) -> bool:
    """Whether a statement gives a name something of its own, whichever way it goes."""
    match statement:
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            return _makes_anew(statement, name)
        case ast.If():
            return all(_ends_bound(each, name) for each in (statement.body, statement.orelse))
        case ast.With() | ast.AsyncWith():
            return _ends_bound(statement.body, name)
        case ast.Try():
            ways = [[*statement.body, *statement.orelse], *(h.body for h in statement.handlers)]
            return all(_ends_bound(each, name) for each in ways)
        case _:
            return False


def _ends_bound(block: list[ast.stmt], name: str) -> bool:
    bound = any(_always_binds(each, name) for each in block)
    return bound or bool(block and isinstance(block[-1], _LEAVE))


def _binds_for_its_body(statement: ast.AST, name: str, around: set[ast.AST]) -> bool:
    """Whether the use is in the body of a loop over this name, or of a statement before whose end
    it is bound anew, ahead of the use."""
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return False
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        turns = any(_means(each, name) for each in _flat(statement.target))
        if turns and not around.isdisjoint(statement.body):
            return True
    handlers = [each.body for each in getattr(statement, "handlers", [])]
    for block in [*(getattr(statement, each, None) for each in _BLOCKS), *handlers]:
        if not isinstance(block, list) or around.isdisjoint(block):
            continue
        for each in block:
            if each in around:
                return _binds_for_its_body(each, name, around)
            if _always_binds(each, name):
                return True
    return False


def _makes_anew(statement: ast.Assign | ast.AnnAssign | ast.AugAssign, name: str) -> bool:
    """Whether it gives a name something else than what it had, or that with a wrapper around it:
    `loader = tqdm(loader)`, but not `data = Windows(data)`, which is of another class."""
    if isinstance(statement, ast.AugAssign):
        transparent = isinstance(statement.op, ast.Add | ast.Sub | ast.Mult)
        return _means(statement.target, name) and not transparent
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if not any(_means(each, name) for target in targets for each in _flat(target)):
        return False
    value = statement.value
    if value is None:
        return False  # `workers: int`
    match value:
        case ast.Call(func=ast.Name(id=made)) if made in _NUMBERS:
            return True
        case ast.Call(func=ast.Name(id=made) | ast.Attribute(attr=made)) if made[:1].isupper():
            return True
        case _:
            pass
    owners = {each.value for each in ast.walk(value) if isinstance(each, ast.Attribute)}
    return not any(_means(each, name) and each not in owners for each in ast.walk(value))


def _means(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Name(id=found):
            return found == name
        case ast.Attribute(value=ast.Name(), attr=found):
            return f".{found}" == name
        case _:
            return False


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _flat(each)
    else:
        yield target


def _jumps(statement: ast.AST) -> bool:
    return any(isinstance(each, ast.Continue | ast.Break) for each in ast.walk(statement))


def _calls_own(statements: list[ast.AST], module: Module) -> bool:
    """Whether a function or class of this file is called on the way: it may be the one that uses
    the name."""
    own = {each.name for each in module.nodes(ast.FunctionDef)}
    own |= {each.name for each in module.nodes(ast.AsyncFunctionDef)}
    own |= {each.name for each in module.nodes(ast.ClassDef)}
    return any(
        isinstance(call, ast.Call) and last_name(call.func) in own
        for statement in statements
        if not isinstance(statement, (*_FUNCTIONS, ast.ClassDef))
        for call in ast.walk(statement)
    )


def _block(statement: ast.AST, parent: ast.AST) -> list[ast.AST]:
    """Return the statements of which one is, with it; those of a handler are not asked for."""
    for name in _BLOCKS:
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            return block
    return []
