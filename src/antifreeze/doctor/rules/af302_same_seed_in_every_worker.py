"""A worker_init_fn that gives every worker the same seed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..source.definitions import Function
from ..source.loaders import Loader
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.generator_seeding import SeedingCall, seeding_calls
from .rule import LIKELY, WRONG_DATA, Hit, Rule

# Calls that give the same in every worker.
_SAME = frozenset(
    {"int", "str", "abs", "hash", "os.getenv", "os.environ.get"}
    | {"torch.distributed.get_rank", "torch.distributed.get_world_size"}
)
_INIT_NAME = re.compile(r"worker_?(init|seed)|(init|seed)_?worker", re.IGNORECASE)

_EVALUATES = re.compile(r"(^|_)(val|valid|validation|eval|evaluation|test|infer|predict)(_|$)")


def find(view: View) -> Iterator[Hit]:
    given: set[ast.AST] = set()
    for loader in view.loaders:
        function = loader.worker_init
        if function is None or function.node in given:
            continue
        evaluates = loader.for_evaluation or _EVALUATES.search(function.name)
        if loader.workers.any and not loader.ours and not evaluates:
            given.add(function.node)
            yield from _hits(function, _worker_id(loader, function), view, loader.node)
    seen = {each.worker_init.node for each in view.loaders if each.worker_init is not None}
    for node in view.module.nodes(ast.FunctionDef):  # passed on to somebody we do not see
        if node in seen or _EVALUATES.search(node.name):
            continue
        if _INIT_NAME.search(node.name) and _takes_one(node):
            function = Function(node, view.module)
            yield from _hits(function, function.parameters[:1], view, node)


def _takes_one(node: ast.FunctionDef) -> bool:
    plain = [*node.args.posonlyargs, *node.args.args]
    return len(plain) - len(node.args.defaults) == 1 and plain[0].arg != "self"


def _hits(
    function: Function, worker_id: list[str], view: View, otherwise: ast.AST
) -> Iterator[Hit]:
    every = [
        s for s in seeding_calls(function, view) if _same_for_all(s, function, worker_id, view)
    ]
    for each in every[:1]:
        yield Hit(
            view.here(each.call, otherwise),
            f"`{function.name}` gives every worker the same seed (`{text_of(each.call)}`):"
            " all of them draw the same numbers, and with new workers the same again in the next"
            " epoch",
        )


def _same_for_all(
    seeding: SeedingCall, function: Function, worker_id: list[str], view: View
) -> bool:
    parts = view.dependencies(seeding.seed, seeding.function)
    if not parts.complete or parts.calls - _SAME:
        return False
    owner = seeding.function.owner
    if parts.attributes and not (
        owner and all(owner.assignments(each) for each in parts.attributes)
    ):
        return False  # a property, or of a base that is not seen
    if seeding.function.node is not function.node:
        return not parts.parameters
    return parts.parameters.isdisjoint(worker_id)


def _worker_id(loader: Loader, function: Function) -> list[str]:
    """Return the parameter that the worker's number is passed for: the first that a `partial`
    leaves free."""
    names = function.parameters
    if function.owner is not None:
        names = names[1:]
    node = loader["worker_init_fn"].node
    for value in loader.view.values(node) if node is not None else ():
        if isinstance(value, ast.Call) and loader.view.resolve(value.func) == "functools.partial":
            bound = {each.arg for each in value.keywords}
            names = [each for each in names[len(value.args) - 1 :] if each not in bound]
    return names[:1]


RULE = Rule(
    code="AF302",
    name="same-seed-in-every-worker",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
