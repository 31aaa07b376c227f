"""A lambda, or what is defined inside a function, cannot be sent to workers that are not forked."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ..findings import Confidence
from ..source import library_names
from ..source.definitions import PICKLING, Dataset
from ..source.file_summary import Workers
from ..source.loaders import Loader
from ..source.step_budget import cached_walk
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import CERTAIN, CRASH, LIKELY, POSSIBLE, Hit, Rule

_DEEPEST = 5  # Compose([Lambda(...)]) in a list in a partial
_SENT = ("collate_fn", "worker_init_fn")
# Arguments that datasets of other packages keep as they are.
_KEPT_BY_DATASETS = ("transform", "target_transform", "transforms", "loader", "pre_transform")
# What keeps its arguments as they are, and so cannot be pickled if one of them cannot.
_KEEP = frozenset({"functools.partial", "collections.defaultdict", "list", "dict", "tuple"})


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        if loader.workers.any and not loader.ours and loader.start_method != "fork":
            yield from _of_loader(loader, view)
            yield from _of_notebook(loader, view)
    for dataset in view.datasets:
        if dataset.sends_itself or dataset.only_ours or dataset.is_forked:
            continue
        if dataset.workers is None or dataset.workers.any:
            yield from _of_dataset(dataset, view)


def _of_notebook(loader: Loader, view: View) -> Iterator[Hit]:
    """Find what a notebook defines itself: new processes cannot import a notebook."""
    if not view.module.is_notebook or loader.start_method not in PICKLING:
        return
    named = [("dataset", loader.dataset), ("collate_fn", loader.collate)]
    for name, found in (*named, ("worker_init_fn", loader.worker_init)):
        if found is not None and found.module is view.module and found.name != "<lambda>":
            words = (
                f"`{name}` is `{found.name}` of this notebook, which a worker started by"
                f" {loader.start_method} cannot import: move it to a file"
            )
            yield Hit(loader.node, words, LIKELY)


def _of_loader(loader: Loader, view: View) -> Iterator[Hit]:
    confidence: Confidence = POSSIBLE
    if loader.start_method in PICKLING:
        confidence = CERTAIN if loader.workers is Workers.SOME else LIKELY
    for name in _SENT:
        argument = loader[name].node
        if argument is None:
            continue
        for node, what in _local(argument, view):
            words = f"`{name}` is {what}, {_cannot(loader.start_method)}"
            yield Hit(view.here(node, argument), words, confidence)
    made = loader.dataset_expression
    if isinstance(made, ast.Call) and loader.dataset is None:  # torchvision's, say
        for keyword in made.keywords:
            if keyword.arg not in _KEPT_BY_DATASETS:
                continue
            for node, what in _local(keyword.value, view):
                words = f"the dataset's `{keyword.arg}` is {what}, {_cannot(loader.start_method)}"
                yield Hit(view.here(node, made), words, min(confidence, LIKELY, key=_doubt))


def _doubt(confidence: Confidence) -> int:
    return -confidence.rank


def _of_dataset(dataset: Dataset, view: View) -> Iterator[Hit]:
    method = view.sent_by(dataset)
    confidence = LIKELY if method else POSSIBLE
    around = dataset.module.function_around(dataset.node)
    if around is not None:
        words = f"dataset `{dataset.name}` is defined inside `{around.name}`, {_cannot(method)}"
        yield Hit(dataset.node, words, confidence)
    prepared = {function.node for function in dataset.preparing}
    for attribute, places in dataset.attributes.items():
        for place in places:
            if place.value is None or place.method not in prepared:
                continue
            for node, what in _local(place.value, view):
                words = f"`self.{attribute}` of `{dataset.name}` is {what}, {_cannot(method)}"
                yield Hit(view.here(node, view.here(place.node, dataset.node)), words, confidence)


def _cannot(method: str) -> str:
    started = f"started by {method}" if method else "that are not forked"
    return f"which cannot be pickled: workers {started} cannot be given it"


@cached_walk
def _local(node: ast.expr, view: View, depth: int = 0) -> Iterable[tuple[ast.AST, str]]:
    """Yield what pickle finds no name for, in an expression: each with words for it."""
    if depth > _DEEPEST:
        return
    named = view.function_of(node) if isinstance(node, ast.Name) else None
    if named is not None and not isinstance(named.node, ast.Lambda):
        around = named.module.function_around(named.node)
        if around is not None:
            yield node, f"`{named.name}`, defined inside `{around.name}`"
    for value in view.origins(node):
        match value:
            case ast.Lambda():
                yield value, "a lambda"
            case ast.List() | ast.Tuple():
                for each in value.elts:
                    yield from _local(each, view, depth + 1)
            case ast.Dict():
                for each in value.values:
                    yield from _local(each, view, depth + 1)
            case ast.Call():
                yield from _of_call(value, view, depth)
            case _:
                pass


def _of_call(call: ast.Call, view: View, depth: int) -> Iterator[tuple[ast.AST, str]]:
    name = view.resolve(call.func) or ""
    if name in _KEEP or name.startswith(library_names.TRANSFORMS):
        for each in (*call.args, *(keyword.value for keyword in call.keywords)):
            yield from _local(each, view, depth + 1)
        return
    owner = view.class_of(call.func)
    if owner is not None:
        around = owner.module.function_around(owner.node)
        if around is not None and not any(map(owner.method, ("__reduce__", "__reduce_ex__"))):
            yield call, f"made of `{owner.name}`, a class defined inside `{around.name}`"
        return
    function = view.function_of(call.func)
    if function is not None and function.owner is None:  # a function that makes one
        for value in function.returns:
            inside = isinstance(value, ast.Name) and any(
                isinstance(each.node, ast.FunctionDef)
                and function.module.function_around(each.node) is function.node
                for each in function.module.bindings(value)
            )
            if inside or isinstance(value, ast.Lambda):
                what = text_of(value) if isinstance(value, ast.Name) else "lambda"
                yield call, f"the `{what}` inside `{function.name}`"


RULE = Rule(
    code="AF102",
    name="lambda-for-workers",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
)
