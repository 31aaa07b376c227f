"""Loops over loaders: the training and evaluation loops of a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .loaders import Loader
from .syntax.node_text import last_name, text_of

if TYPE_CHECKING:
    from .view import View

LoopNode = ast.For | ast.AsyncFor | ast.comprehension
_AROUND = frozenset(
    {"enumerate", "iter", "list", "tqdm.tqdm", "itertools.islice", "tqdm.trange", "zip"}
    | {"rich.progress.track", "itertools.cycle", "reversed", "itertools.chain"}
)
_LOADERISH = re.compile(r"(data_?)?loader$|^dl$|_dl$|loaders?\[", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class LoaderLoop:
    """`for batch in loader`, whatever is wrapped around the loader."""

    node: LoopNode
    iterable: ast.expr  # the loader, without enumerate, tqdm and the like
    loader: Loader | None  # None: it is called a loader, but where it comes from is not seen
    view: View

    @property
    def place(self) -> ast.AST:
        """Return a node with a line."""
        return self.node if not isinstance(self.node, ast.comprehension) else self.node.iter

    @property
    def epochs(self) -> ast.For | ast.While | ast.AsyncFor | None:
        """Return the loop around it in the same function: that over epochs, most likely."""
        return self.view.loop_around(self.node)

    @property
    def body(self) -> list[ast.stmt]:
        return [] if isinstance(self.node, ast.comprehension) else self.node.body


def find_loops(view: View) -> Iterator[LoaderLoop]:
    """Yield the loops over loaders, in the order of the text."""
    made = {each.node: each for each in view.loaders}
    for node in view.module.scopes.nodes:
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            inside = without_wrappers(node.iter, view)
            loader = loader_of(inside, view, made) if made else None
            if loader is not None or _LOADERISH.search(_end_of(inside)):
                yield LoaderLoop(node, inside, loader, view)


def _end_of(node: ast.expr) -> str:
    """Return the last letters of an expression; most are plain names, and `unparse` is slow."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name(id="range" | "zip" | "enumerate" | "sorted")):
            return ""
        case _:
            return text_of(node)[-60:]


def without_wrappers(node: ast.expr, view: View) -> ast.expr:
    """Strip `enumerate`, `tqdm`, `loader.progress()` and the like."""
    for _ in range(5):
        if not isinstance(node, ast.Call):
            return node
        if isinstance(node.func, ast.Attribute) and node.func.attr == "progress":
            node = node.func.value
        elif node.args and (
            view.resolve(node.func) in _AROUND
            or last_name(node.func) in ("tqdm", "track", "prepare")
        ):
            node = node.args[0]
        else:
            return node
    return node


def loader_of(
    node: ast.expr, view: View, made: dict[ast.Call, Loader], depth: int = 0
) -> Loader | None:
    """Return the loader that an expression stands for, if it is made in this file; also by a
    function that returns it."""
    for value in view.origins(node):
        inside = without_wrappers(value, view)
        if isinstance(inside, ast.Call) and inside in made:
            return made[inside]
        inner = [inside] if inside is not value else view.returned(inside)  # bar = tqdm(loader)
        for each in inner if depth < 3 else ():
            found = loader_of(each, view, made, depth + 1)
            if found is not None:
                return found
    return None
