"""What a value depends on within one function: parameters, calls, attributes."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .definitions import Function
from .syntax.scopes import Kind

if TYPE_CHECKING:
    from .view import View

_ALIKE = ("dtype", "device", "ndim")  # the same for all tensors that come to a place
_MOST_NODES = 200  # nodes that are looked at for one value


@dataclass(slots=True)
class ValueDependencies:
    """All that an expression depends on. Names of the module and of enclosing functions are left
    out: they are the same for every call."""

    parameters: set[str] = field(default_factory=set)  # of the function, `self` left out
    calls: set[str] = field(default_factory=set)  # by qualified name; "?": of what is not known
    attributes: set[str] = field(default_factory=set)  # of `self`
    complete: bool = True  # False: a loop's variable, something unpacked: anything may be in it

    @property
    def fixed(self) -> bool:
        """Whether it is the same in every call, if the attributes of `self` are."""
        return self.complete and not self.parameters and not self.calls


def value_dependencies(node: ast.expr, function: Function, view: View) -> ValueDependencies:
    """Return what an expression in a function depends on, through the function's own variables."""
    found = ValueDependencies()
    queue: list[ast.AST] = [node]
    seen: set[ast.AST] = set()
    while queue:
        here = queue.pop()
        if here in seen:
            continue
        seen.add(here)
        if len(seen) > _MOST_NODES:
            found.complete = False
            break
        match here:
            case ast.Attribute() if function.module.class_of_self(here.value) is not None:
                found.attributes.add(here.attr)
            case ast.Attribute() if here.attr in _ALIKE:
                pass
            case ast.Name():
                _add_name(here, function, found, queue)
            case ast.Call():
                name = view.resolve(here.func)
                found.calls.add(name or "?")
                queue += [*here.args, *(each.value for each in here.keywords)]
                if name is None and isinstance(here.func, ast.Attribute):
                    queue.append(here.func.value)
            case ast.Lambda() | ast.GeneratorExp() | ast.ListComp() | ast.Await() | ast.Yield():
                found.complete = False
            case _:
                queue += ast.iter_child_nodes(here)
    return found


def _add_name(
    node: ast.Name, function: Function, found: ValueDependencies, queue: list[ast.AST]
) -> None:
    place = function.module.scopes.lookup(node.id, node)
    if place is None or place[0].node is not function.node:
        return
    for binding in place[1]:
        if binding.kind is Kind.PARAMETER:
            if function.module.class_of_self(node) is None:
                found.parameters.add(node.id)
        elif binding.value is not None:
            queue.append(binding.value)
        elif isinstance(binding.node, (ast.AugAssign, ast.Assign, ast.For)):
            queue.append(
                binding.node.iter if isinstance(binding.node, ast.For) else binding.node.value
            )
            found.complete = found.complete and not isinstance(binding.node, ast.For)
        elif binding.kind is not Kind.IMPORT:
            found.complete = False


__all__ = ["ValueDependencies", "value_dependencies"]
