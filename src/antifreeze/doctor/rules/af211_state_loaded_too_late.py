"""A loader's state is loaded when its iterator already runs, which takes no notice."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.loaders import Loader
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import LIKELY, WRONG_DATA, Hit, Rule

_STATEFUL = "torchdata.stateful_dataloader.StatefulDataLoader"


def find(view: View) -> Iterator[Hit]:
    for call in view.method_calls("load_state_dict"):
        assert isinstance(call.func, ast.Attribute)
        loader = view.loader_of(call.func.value)
        if loader is None or loader.kind != _STATEFUL:
            continue
        if any(
            loop.loader is loader and _is_inside(call, loop.node, view)
            for loop in view.loops
            if not isinstance(loop.node, ast.comprehension)
        ):
            yield _hit(call, "the loop that runs", "goes on where it is")
        elif (name := _iterator_before(call, loader, view)) is not None:
            yield _hit(call, f"`{name}`, which is made before", "starts from the beginning")


def _hit(call: ast.Call, who: str, what: str) -> Hit:
    return Hit(
        call,
        f"a state is taken by the next iterator: {who}, {what}, and samples come twice",
    )


def _is_inside(node: ast.AST, loop: ast.AST, view: View) -> bool:
    return any(each is loop for each in view.module.ancestors(node))


def _iterator_before(call: ast.Call, loader: Loader, view: View) -> str | None:
    """Return the name of an iterator of the loader that is made before and used after."""
    function = view.function_around(call)
    for made in view.calls("iter"):
        if view.function_around(made) is not function or made.lineno >= call.lineno:
            continue
        name = view.variable_of(made)
        if not name or not made.args or view.loader_of(made.args[0]) is not loader:
            continue
        named: list[ast.Name | ast.Attribute] = [*view.module.nodes(ast.Name)]
        named += view.module.nodes(ast.Attribute)
        uses = [
            node
            for node in named
            if node.lineno > call.lineno
            and view.function_around(node) is function
            and text_of(node) == name
        ]
        if uses and isinstance(uses[0].ctx, ast.Load):
            return name
    return None


RULE = Rule(
    code="AF211",
    name="state-loaded-too-late",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
