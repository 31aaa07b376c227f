"""Workers that import the program's modules anew: what they lack of what the program has set.

Where the user wants spawn or forkserver, and something cannot be sent, modules are imported in
workers, as torch's workers do. What the program has set in them since is not there: that is said,
as far as the sources show it. A name counts as set by the program

1. if the source gives it a literal, once, and it has another plain value now, or
2. if it is there, and no line of the source mentions it.

What the source computes (`CACHE = load()`) is not compared: it may be the same after an import. Nor
is what an import may change: what a module uses outside of functions, or in a function that is
called there (`@register`).
"""

from __future__ import annotations

import ast
import functools
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from logging import INFO, WARNING
from typing import Any

from ..._core.limits import LIMITS
from ..._linux.clock import monotonic
from ..._loading.raw_attributes import instance_dict, namespace
from ..._reporting.log import logger
from ..replication import module_state, user_code

_Values = dict[str, str]  # names, and the literal that each begins with, as `_written` has it
_logged: set[tuple[str, bool]] = set()


def log(refusal: str) -> None:
    """Log that workers import modules anew, and what of the program's state they lack: once a
    program for each refusal, and once more if they lack something later."""
    lost = set_by_program()
    if (refusal, bool(lost)) in _logged:
        return
    _logged.add((refusal, bool(lost)))
    most = LIMITS.sending.named_globals
    names = ", ".join(lost[:most]) + (f" and {len(lost) - most} more" if len(lost) > most else "")
    logger.log(
        WARNING if lost else INFO,
        "antifreeze: %s. So workers import the program's modules anew, as torch's do under spawn%s",
        refusal,
        f": what the program has set in them is not there ({names})." if lost else ".",
    )


def log_left_out(refusal: str) -> None:
    """Log, once a program for each refusal, that workers are not told all that the program has
    told libraries."""
    if (refusal, True) not in _logged:
        _logged.add((refusal, True))
        logger.warning(
            "antifreeze: %s. So handlers of logging, and functions and classes that the program has"
            " put into libraries, are not there in workers.",
            refusal,
        )


def set_by_program() -> list[str]:
    """Return the paths of what the program has set in its modules since they were imported."""
    give_up = monotonic() + LIMITS.sending.compared_s
    sources: dict[str, _Source] = {}
    for name in list(sys.modules):
        if monotonic() < give_up and user_code.is_own(name) and (read := _source_of(name)):
            sources[name] = read
    called = {word for source in sources.values() for word in source.called}
    found = []
    for name, source in sources.items():
        here = instance_dict(sys.modules[name]).copy()
        for path in _set_since(name, here, source):
            if called.isdisjoint(source.users[path.rpartition(".")[2]]):
                found.append(f"{name}.{path}")
    return sorted(found)


def _source_of(name: str) -> _Source | None:
    path = instance_dict(sys.modules[name]).get("__file__")
    return _read(path) if type(path) is str and path.endswith(".py") else None


@functools.lru_cache(maxsize=256)
def _read(path: str) -> _Source | None:
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were shown when it was imported
            return _Source(ast.parse(file.read()))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):  # none of ours
        return None


def _set_since(name: str, here: dict[str, Any], source: _Source) -> Iterator[str]:
    for each, value in here.items():
        if each in source.values:
            if _is_another(value, source.values[each]):
                yield each
        elif source.mentions_all and each not in source.mentioned and each[:2] != "__":
            if module_state.is_plain(value):
                yield each
        elif isinstance(value, type) and namespace(value).get("__module__") == name:
            literals, inside = source.of_classes.get(each, {}), namespace(value)
            for inner in literals.keys() & inside.keys():
                if _is_another(inside[inner], literals[inner]):
                    yield f"{each}.{inner}"


def _is_another(value: Any, literal: str) -> bool:
    return module_state.is_plain(value) and _written(value) != literal


class _Source:
    """What the text of a module says of its names."""

    def __init__(self, tree: ast.Module) -> None:
        outside = list(_outside_of_functions(tree.body))
        uses = Counter(each.id for each in outside if isinstance(each, ast.Name))
        self.values = _literals(tree.body, uses)
        classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
        self.of_classes = {each.name: _literals(each.body, _uses(each)) for each in classes}
        self.called = {word for each in outside for word in _called_by(each)}
        self.users: defaultdict[str, set[str]] = defaultdict(set)  # what has code that names it
        _note_users(tree.body, (), self.users)
        everything = list(ast.walk(tree))
        self.mentioned = {word for each in everything for word in _words(each)}
        # Else names may be set without being written there.
        self.mentions_all = self.mentioned.isdisjoint(
            {"*", "globals", "vars", "exec", "setattr", "modules", "__dict__", "locals"}
        )


def _uses(kind: ast.ClassDef) -> Counter[str]:
    outside = _outside_of_functions(kind.body)
    return Counter(each.id for each in outside if isinstance(each, ast.Name))


def _called_by(node: ast.AST) -> Iterator[str]:
    """Yield the names of what runs where this stands."""
    calls = [node.func] if isinstance(node, ast.Call) else []
    for each in (*calls, *getattr(node, "decorator_list", ())):
        match each:
            case ast.Name(id=word) | ast.Attribute(attr=word):
                yield word


def _note_users(
    body: Iterable[ast.AST], around: tuple[str, ...], users: defaultdict[str, set[str]]
) -> None:
    for each in body:
        for word in _words(each):
            users[word].update(around)
        inner = around
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*around, each.name)
        _note_users(ast.iter_child_nodes(each), inner, users)


def _outside_of_functions(body: list[ast.stmt]) -> Iterator[ast.AST]:
    left: list[ast.AST] = list(body)
    while left:
        node = left.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            left += node.decorator_list
        elif not (isinstance(node, ast.Lambda) or _is_guard(node)):
            left += ast.iter_child_nodes(node)


def _is_guard(node: ast.AST) -> bool:
    """Whether this is what only the program runs, and no process that imports it."""
    match node:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__")), orelse=[]):
            return True
    return False


def _literals(body: list[ast.stmt], uses: Counter[str]) -> _Values:
    """Return the names that a body gives a literal, and that it uses nowhere else."""
    found = {}
    for each in body:
        match each:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if uses[name] == 1:
            try:
                found[name] = _written(ast.literal_eval(value))
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
    return found


def _words(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word) | ast.FunctionDef(name=word):
            return (word,)
        case ast.ClassDef(name=word) | ast.AsyncFunctionDef(name=word):
            return (word,)
        case ast.alias(name=name, asname=other):
            return (other or name.partition(".")[0],)
        case ast.ExceptHandler(name=str(word)) | ast.MatchAs(name=str(word)):
            return (word,)
        case ast.MatchStar(name=str(word)):
            return (word,)
        case ast.Global(names=words):
            return tuple(words)
    return ()


def _written(value: Any) -> str:
    """Return a text that is equal for equal values, whatever the order of sets."""
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({sorted(map(_written, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_written(k)}: {_written(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(_written, value))})"
    return repr(value)
