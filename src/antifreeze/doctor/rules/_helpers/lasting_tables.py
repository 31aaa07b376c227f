"""Tables of a dataset or a module that outlive a sample, and whether they stay small."""

from __future__ import annotations

import ast

from ...source.definitions import Dataset, Function
from ...source.syntax.node_text import last_name, text_of
from ...source.view import View
from .open_handles import HANDLES

_TABLES = frozenset({"dict", "collections.defaultdict", "collections.OrderedDict", "list"})

_TAKES_OUT = frozenset({"pop", "popitem", "popleft", "clear", "remove", "move_to_end"})


def lasting_table(node: ast.expr, function: Function, dataset: Dataset, view: View) -> str:
    """Return the name of a table that outlives the sample: `self.cache`, or one of the module."""
    match node:
        case ast.Attribute() if function.module.class_of_self(node.value) is not None:
            if dataset.sets_anew(node.attr):
                return ""  # emptied, or made for this sample
            places = [each.value for each in dataset.assignments(node.attr)]
        case ast.Name():
            found = function.module.scopes.lookup(node.id, node)
            if found is None or found[0] is not function.module.scopes.top:
                return ""
            places = [each.value for each in found[1]]
        case _:
            return ""
    tables = [each for each in places if each is not None and _is_table(each, view)]
    return text_of(node) if tables and len(tables) == len(places) else ""


def _is_table(value: ast.expr, view: View) -> bool:
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]):
            return True
        case ast.Call(args=[] | [ast.Name()]):
            return view.resolve(value.func) in _TABLES
        case ast.BinOp(op=ast.Mult(), left=ast.List(elts=[ast.Constant(value=None)])):
            return True
        case ast.ListComp(elt=ast.Constant(value=None)):
            return True
        case _:
            return False


def is_small_value(value: ast.expr, view: View) -> bool:
    """Whether what is kept is a number or a handle, of which thousands do no harm."""
    for each in view.origins(value):
        match each:
            case ast.Constant() | ast.BinOp() | ast.Compare():
                return True
            case ast.Call():
                name = view.resolve(each.func) or ""
                last = last_name(each.func).lower()
                if name in HANDLES or name in ("len", "int", "float", "bool"):
                    return True
                if any(word in last for word in ("open", "connect", "reader", "file", "client")):
                    return name != "PIL.Image.open"
            case _:
                pass
    return False


def is_bounded(kept: str, dataset: Dataset) -> bool:
    """Whether something takes entries out again, or looks at how many there are."""
    modules = {each.module for each in dataset.lineage}
    for module in modules:
        for node in module.nodes(ast.Call):
            match node:
                case ast.Call(func=ast.Attribute(attr=name, value=owner)) if name in _TAKES_OUT:
                    if text_of(owner) == kept:
                        return True
                case ast.Call(func=ast.Name(id="len"), args=[inner]) if text_of(inner) == kept:
                    if any(isinstance(each, ast.Compare) for each in module.ancestors(node)):
                        return True
                case _:
                    pass
        for delete in module.nodes(ast.Delete):
            if any(text_of(each).startswith(kept) for each in delete.targets):
                return True
    return False
