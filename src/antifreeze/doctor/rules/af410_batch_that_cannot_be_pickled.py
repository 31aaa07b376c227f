"""A batch with something in it that cannot be sent between processes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ..findings import Confidence
from ..source.definitions import Function
from ..source.step_budget import cached_walk
from ..source.syntax.node_text import text_of
from ..source.view import View
from ..source.worker_code import WorkerCode
from .rule import FREEZE, LIKELY, POSSIBLE, Hit, Rule

# What makes something that cannot be pickled, and what it is.
MAKERS = {
    "open": "an open file",
    "io.open": "an open file",
    "gzip.open": "an open file",
    "h5py.File": "an open file",
    "zipfile.ZipFile": "an open file",
    "threading.Lock": "a lock",
    "threading.RLock": "a lock",
    "socket.socket": "a socket",
    "sqlite3.connect": "a connection",
}
_VIEWS = {"keys": "dict_keys", "values": "dict_values", "items": "dict_items"}


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if (
            code.called
            or code.role in ("init", "transform")
            or (code.role == "sample" and not _is_last(code))
        ):
            continue
        for value in _given(code.function):
            for part, path in _parts(value, view, "", 0):
                what = _what(part, view)
                if what and view.module.holds(part):
                    yield Hit(part, _words(code, path, what), _confidence(code))


def _is_last(code: WorkerCode) -> bool:
    """Whether what a function returns is the sample: it is `__getitem__` or `__iter__`."""
    return code.function.name in ("__getitem__", "__getitems__", "__iter__", "__next__")


def _confidence(code: WorkerCode) -> Confidence:
    if code.role == "collate":
        return LIKELY
    found = code.dataset.loaders if code.dataset is not None else ()
    return LIKELY if found and not any(each.has_collate for each in found) else POSSIBLE


def _words(code: WorkerCode, path: str, what: str) -> str:
    where = (
        f"`{path}` of what `{code.function.name}` returns"
        if path
        else (f"what `{code.function.name}` returns")
    )
    if code.role == "sample":
        return f"{where} is {what}: it cannot be made part of a batch, nor sent from a worker"
    if code.only_ours:
        return f"{where} is {what}, which cannot be sent from a worker: it is an error"
    return (
        f"{where} is {what}, which cannot be pickled: the worker prints a traceback and drops the"
        " batch, and the loop waits for it for ever"
    )


def _given(function: Function) -> Iterator[ast.expr]:
    if function.is_generator:
        for node in function.nodes():
            if isinstance(node, ast.Yield) and node.value is not None:
                yield node.value
    elif function.name != "__iter__":
        yield from (each for each in function.returns if each is not None)


@cached_walk
def _parts(node: ast.expr, view: View, path: str, depth: int) -> Iterable[tuple[ast.expr, str]]:
    """Yield an expression and what is in it, each with its place: `["later"]`."""
    values = view.values(node) if isinstance(node, ast.Name) else (node,)
    for value in values if depth < 4 else ():
        match value:
            case ast.Dict():
                for key, each in zip(value.keys, value.values, strict=True):
                    name = f"[{text_of(key)}]" if key is not None else ""
                    yield from _parts(each, view, path + name, depth + 1)
            case ast.Tuple() | ast.List():
                for place, each in enumerate(value.elts):
                    yield from _parts(each, view, f"{path}[{place}]", depth + 1)
            case ast.ListComp(elt=each) | ast.DictComp(value=each):
                yield from _parts(each, view, f"{path}[...]", depth + 1)
            case ast.Call(func=ast.Name(id="dict")):
                for keyword in value.keywords:
                    if keyword.arg is not None:
                        yield from _parts(
                            keyword.value, view, f"{path}['{keyword.arg}']", depth + 1
                        )
            case _:
                yield value, path


def _what(node: ast.expr, view: View) -> str:
    match node:
        case ast.Lambda():
            return "a lambda"
        case ast.GeneratorExp():
            return "a generator"
        case ast.Call(func=ast.Attribute(attr=name, value=ast.expr() as owner), args=[]) if (
            name in _VIEWS and not node.keywords
        ):
            held = view.values(owner)
            return _VIEWS[name] if held and all(isinstance(e, ast.Dict) for e in held) else ""
        case ast.Call():
            called = view.resolve(node.func)
            if called in MAKERS:
                return MAKERS[called]
            function = view.function_of(node.func)
            if function is not None and function.is_generator and _is_plain(function):
                return "a generator"
            return ""
        case _:
            return ""


def _is_plain(function: Function) -> bool:
    return isinstance(function.node, ast.FunctionDef) and not function.node.decorator_list


RULE = Rule(
    code="AF410",
    name="batch-that-cannot-be-pickled",
    severity=FREEZE,
    confidence=LIKELY,
    find=find,
    follows=True,
)
