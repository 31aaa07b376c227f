"""A sample that carries the graph of a model's gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Function
from ..source.syntax.node_text import text_of
from ..source.view import View
from ..source.worker_code import WorkerCode
from ._helpers.tensor_graphs import GRAPH_CUTS, call_of_model, leaf_tensor
from .rule import FREEZE, LIKELY, POSSIBLE, Hit, Rule

# What is read off a tensor, and has no graph; `torch.autograd.grad` has none but if asked to.
_READ_OFF = frozenset(
    {"grad", "shape", "size", "dtype", "device", "ndim", "len", "float", "int", "bool", "str"}
    | {"backward", "print", "isinstance", "type"}
)
_STEPS = 4  # from variable to variable


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if code.called or code.role in ("init", "transform"):
            continue
        for node in code.function.nodes():
            what = leaf_tensor(node) or call_of_model(node, code.function, view)
            if what and _gets_out(node, code.function):
                yield Hit(node, _words(what, code), LIKELY if code.workers else POSSIBLE)


def _gets_out(node: ast.AST, function: Function) -> bool:
    """Whether a value is in what the function returns or yields: at once, or through variables
    it is put into. What is computed from it counts, what is only read off it does not."""
    assert isinstance(node, ast.Call)
    names = set[str]()
    match node:
        case ast.Call(func=ast.Attribute(attr="requires_grad_", value=changed)):
            names.add(text_of(changed))  # in place
        case _:
            pass
    nodes = list(function.nodes())
    for _ in range(_STEPS):
        before = len(names)
        for each in nodes:
            match each:
                case ast.Assign(targets=targets, value=value) if _in(value, node, names):
                    names |= {name for target in targets for name in _owners(target)}
                case (
                    ast.AnnAssign(target=target, value=ast.expr() as value)
                    | ast.AugAssign(target=target, value=value)
                    | ast.For(target=target, iter=value)
                    | ast.NamedExpr(target=target, value=value)
                ) if _in(value, node, names):
                    names |= _owners(target)
                case ast.Call(
                    func=ast.Attribute(attr="append" | "extend" | "add" | "update", value=owner),
                    args=[value, *_],
                ) if _in(value, node, names):
                    names |= _owners(owner)
                case _:
                    pass
        if len(names) == before:
            break
    given = [each for each in function.returns if each is not None]
    given += [e.value for e in nodes if isinstance(e, (ast.Yield, ast.YieldFrom)) and e.value]
    return any(_in(each, node, names) for each in given)


def _owners(target: ast.expr) -> set[str]:
    """Return the names that an assignment changes: `a, b`, `sample` of `sample["x"]`, `self.x`."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return {name for each in target.elts for name in _owners(each)}
    while isinstance(target, (ast.Subscript, ast.Starred)):
        target = target.value
    return {text_of(target)}


def _in(value: ast.expr, node: ast.AST, names: set[str]) -> bool:
    """Whether a value is, holds or is computed from a tensor, with its graph."""
    if value is node:
        return True
    if isinstance(value, (ast.Name, ast.Attribute)) and text_of(value) in names:
        return True
    match value:
        case ast.Attribute(attr=name) if name in GRAPH_CUTS | _READ_OFF:
            return False
        case ast.Call(func=ast.Name(id=name)) if name in _READ_OFF:
            return False
        case ast.Call(func=ast.Attribute(attr=name)) if name in GRAPH_CUTS | _READ_OFF:
            return name == "requires_grad_" and _in(value.func, node, names)
        case ast.Compare():
            return False
        case _:
            pass
    return any(
        _in(each.value if isinstance(each, ast.keyword) else each, node, names)
        for each in _expressions(value)
    )


def _expressions(node: ast.AST) -> Iterator[ast.expr | ast.keyword]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.expr, ast.keyword)):
            yield each
        elif isinstance(each, ast.comprehension):
            yield each.iter


def _words(what: str, code: WorkerCode) -> str:
    place = f"{what} in `{code.function.name}`"
    if code.only_ours:
        return f"{place} gives a tensor with a graph, which cannot be sent from a worker"
    return (
        f"{place} gives a tensor with a graph: it cannot be sent from a worker. The default collate"
        " function fails; with another one, the loop waits for ever"
    )


RULE = Rule(
    code="AF411",
    name="tensor-with-a-graph",
    severity=FREEZE,
    confidence=LIKELY,
    find=find,
    follows=True,
)
