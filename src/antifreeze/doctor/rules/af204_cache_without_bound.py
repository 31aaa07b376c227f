"""A cache that loading fills and nothing empties: one in every worker, each up to the dataset."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..findings import Confidence
from ..source.definitions import Dataset, Function
from ..source.file_summary import Workers
from ..source.syntax.node_text import last_name, text_of
from ..source.view import View
from ._helpers.open_handles import HANDLES
from .rule import LIKELY, POSSIBLE, SLOW, Hit, Rule

_TABLES = frozenset({"dict", "collections.defaultdict", "collections.OrderedDict", "list"})
_TAKES_OUT = frozenset({"pop", "popitem", "popleft", "clear", "remove", "move_to_end"})
_ENTRIES = frozenset({"__getitem__", "__getitems__"})
_FEW = frozenset({"device", "dtype", "shape", "ndim", "size", "mode", "suffix"})


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.workers is Workers.NONE:
            continue
        seen = LIKELY if dataset.workers is not None else POSSIBLE
        for function in dataset.loading:
            yield from _stored(function, dataset, view, seen)
            if function.owner is not None:
                yield from _remembered(function, dataset, view, seen)


def _stored(
    function: Function, dataset: Dataset, view: View, confidence: Confidence
) -> Iterator[Hit]:
    for node in function.nodes():
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
            continue
        target = node.targets[0]
        kept = _kept(target.value, function, dataset, view)
        if not kept or _is_small(node.value, view):
            continue
        if not _of_the_sample(target.slice, function, dataset, view):
            continue  # the same few keys each time
        if _is_bounded(kept, dataset):
            continue
        yield Hit(
            view.here(node, dataset.node),
            f"`{kept}` grows with every new sample, in each worker by itself: up to the whole"
            " dataset in every one of them, and it is lost when they end",
            POSSIBLE if _asked_for(node, kept, function) else confidence,
        )


def _of_the_sample(
    node: ast.expr, function: Function, dataset: Dataset, view: View, depth: int = 0
) -> bool:
    """Whether a key is another one for each sample: made of the index, through the functions
    that it is passed to. A shape, type or device is not."""
    value = view.value(node) or node
    if any(isinstance(each, ast.Attribute) and each.attr in _FEW for each in ast.walk(value)):
        return False
    parameters = view.dependencies(node, function).parameters
    if function.name in _ENTRIES:
        return bool(parameters)
    if depth > 3 or isinstance(function.node, ast.Lambda):
        return False
    for caller in dataset.loading:
        for call in caller.calls():
            name = last_name(call.func)
            if name != function.name:
                continue
            given = view.arguments(call, function.node)
            for parameter in parameters:
                passed = given[parameter].node
                if passed is not None and _of_the_sample(passed, caller, dataset, view, depth + 1):
                    return True
    return False


def _kept(node: ast.expr, function: Function, dataset: Dataset, view: View) -> str:
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


def _is_small(value: ast.expr, view: View) -> bool:
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


def _is_bounded(kept: str, dataset: Dataset) -> bool:
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


def _asked_for(node: ast.AST, kept: str, function: Function) -> bool:
    """Whether an option decides on it: `if self.use_cache:`."""
    for each in function.module.ancestors(node):
        if each is function.node:
            return False
        if isinstance(each, ast.If) and kept not in text_of(each.test):
            options = (e.value for e in ast.walk(each.test) if isinstance(e, ast.Attribute))
            if any(function.module.class_of_self(e) is not None for e in options):
                return True
    return False


def _remembered(
    function: Function, dataset: Dataset, view: View, confidence: Confidence
) -> Iterator[Hit]:
    """Find `functools.cache` on a function that is called with something of the sample."""
    for call in function.calls():
        called: Function | None = None
        if isinstance(call.func, ast.Attribute):
            if function.module.class_of_self(call.func.value) is not None:
                called = dataset.method(call.func.attr)
        else:
            called = view.function_of(call.func)
        if called is None or isinstance(called.node, ast.Lambda):
            continue
        memo = next((d for d in called.node.decorator_list if _without_bound(d, view)), None)
        if memo is None or not any(_of_the_sample(a, function, dataset, view) for a in call.args):
            continue
        yield Hit(
            view.here(memo, call),
            f"`{called.name}` remembers all it ever gave, in each worker by itself: up to (workers)"
            " times the dataset; it is lost when the workers end",
            confidence,
        )


def _without_bound(decorator: ast.expr, view: View) -> bool:
    name = view.resolve(decorator.func if isinstance(decorator, ast.Call) else decorator)
    if name == "functools.cache":
        return True
    if name != "functools.lru_cache" or not isinstance(decorator, ast.Call):
        return False
    size = view.call_arguments(decorator, ("maxsize",))["maxsize"]
    return size.given and size.value is None


RULE = Rule(
    code="AF204",
    name="cache-without-bound",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
