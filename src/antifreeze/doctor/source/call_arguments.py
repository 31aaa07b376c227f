"""Arguments of a call by parameter name, with their values where the source shows them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .syntax.constants import UNKNOWN
from .syntax.module import Module
from .syntax.reaching_definitions import always_runs_before

Constant = Callable[[ast.expr], Any]
MOST_DICTIONARIES = 40  # in one another: `{**base, **more}`
_Entries = tuple[dict[str, ast.expr] | None, bool]


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """One argument. Exactly one of `given`, `absent`, `hidden` is true."""

    name: str
    node: ast.expr | None = None  # as written
    value: Any = UNKNOWN  # if it is a constant, through variables; else UNKNOWN
    hidden: bool = False  # perhaps in `*args` or `**kwargs` that cannot be seen into

    @property
    def given(self) -> bool:
        return self.node is not None

    @property
    def absent(self) -> bool:
        """Whether it is certainly not given."""
        return self.node is None and not self.hidden

    def is_(self, value: object) -> bool:
        """Whether it is certainly this constant."""
        return self.node is not None and type(self.value) is type(value) and self.value == value


class Arguments:
    """All arguments of a call. `arguments["num_workers"]` always gives an `Argument`."""

    def __init__(self, found: dict[str, Argument], *, open_ended: bool) -> None:
        self._found = found
        self.open_ended = open_ended  # something was passed on that we cannot see into

    def __getitem__(self, name: str) -> Argument:
        return self._found.get(name) or Argument(name, hidden=self.open_ended)

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def __iter__(self) -> Any:
        return iter(self._found.values())

    def __repr__(self) -> str:
        return f"Arguments({', '.join(self._found)}{', ...' if self.open_ended else ''})"


def read_arguments(
    call: ast.Call,
    parameters: Sequence[str],
    module: Module,
    constant: Constant,
    base: Arguments | None = None,
) -> Arguments:
    """Read a call's arguments. `base`: those of a `functools.partial` around it."""
    found: dict[str, Argument] = {each.name: each for each in base} if base is not None else {}
    open_ended = base is not None and base.open_ended
    free = [each for each in parameters if each not in found]
    for place, node in enumerate(call.args):
        if isinstance(node, ast.Starred) or place >= len(free):
            open_ended = True
            break
        found[free[place]] = Argument(free[place], node, constant(node))
    for keyword in call.keywords:
        if keyword.arg is not None:
            found[keyword.arg] = Argument(keyword.arg, keyword.value, constant(keyword.value))
            continue
        inside, complete = entries(keyword.value, module)
        for name, value in inside.items():
            found.setdefault(name, Argument(name, value, constant(value)))
        open_ended = open_ended or not complete
    return Arguments(found, open_ended=open_ended)


def entries(
    node: ast.expr, module: Module, seen: dict[ast.expr, _Entries] | None = None
) -> tuple[dict[str, ast.expr], bool]:
    """Return the entries of a dictionary that is passed with `**`, and whether these are all.
    `seen`: what was found for the dictionaries around it, and in them."""
    seen = {} if seen is None else seen
    values = module.values(node)
    if len(values) != 1 or len(seen) > MOST_DICTIONARIES:
        return {}, False
    if values[0] not in seen:
        seen[values[0]] = (None, False)  # if it is in itself
        seen[values[0]] = _literal(values[0], module, seen)
    found, complete = seen[values[0]]
    found = dict(found) if found is not None else None
    if isinstance(node, ast.Name) and found is not None:
        complete = _set_later(node, module, found) and complete
    return found or {}, complete


def _literal(node: ast.expr, module: Module, seen: dict[ast.expr, _Entries]) -> _Entries:
    found: dict[str, ast.expr] = {}
    complete = True
    match node:
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found[key.value] = value
                elif key is None:
                    inside, whole = entries(value, module, seen)
                    found |= inside
                    complete = complete and whole
                else:
                    complete = False
        case ast.Call() if module.resolve(node.func) == "dict" and not node.args:
            for keyword in node.keywords:
                if keyword.arg is not None:
                    found[keyword.arg] = keyword.value
                else:
                    inside, whole = entries(keyword.value, module, seen)
                    found |= inside
                    complete = complete and whole
        case _:
            return None, False
    return found, complete


def _forget_changed(call: ast.Call, found: dict[str, ast.expr]) -> None:
    """Leave out what `update` or `pop` may have changed."""
    keys: set[Any] = {each.arg for each in call.keywords}
    for each in call.args:
        match each:
            case ast.Constant(value=str() as key):
                keys.add(key)
            case ast.Dict():
                keys |= {k.value if isinstance(k, ast.Constant) else None for k in each.keys}
            case _:
                keys.add(None)
    for name in list(found):
        if None in keys or name in keys:
            del found[name]


def _set_later(name: ast.Name, module: Module, found: dict[str, ast.expr]) -> bool:
    """Add `name["key"] = value`, and return whether nothing else may change the dictionary."""
    complete = True
    scope = module.scopes.lookup(name.id, name)
    for node in module.nodes(ast.Name):
        if node.id != name.id or node is name or module.scopes.lookup(node.id, node) != scope:
            continue
        parent = module.scopes.parents.get(node)
        above = module.scopes.parents.get(parent) if parent is not None else None
        match parent, above:
            case ast.Subscript(slice=ast.Constant(value=str() as key)), ast.Assign() if (
                parent in above.targets
            ):
                value = above.value
                if key in found and not always_runs_before(above, name, module):  # one or the other
                    either = ast.IfExp(ast.Constant(True), found[key], value)
                    value = module.adopt(ast.copy_location(either, value), value)
                found[key] = value
            case ast.Attribute(attr="update" | "setdefault" | "pop" as how), ast.Call():
                complete = False
                if how != "setdefault":
                    _forget_changed(above, found)
            case _:
                pass
    return complete
