"""Which library a worker crashed in, as far as its Python stack and the source tell.

Native code has no line of its own in a Python stack: the innermost line is the one that called it.
That is a line of a library's, or of the user's; of the latter, the modules are read whose functions
it calls. Nothing is imported, and nothing of the user's runs.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import PurePath

from .._core.health.stall_detection import StackLine

LARGEST = 512 * 1024  # bytes of a file: reading a larger one takes too long for a few words
LONGEST = 80  # characters of a line
NAMED = 3  # libraries that one line may call
_PACKAGES = ("site-packages", "dist-packages")


def crashed_in(stack: tuple[StackLine, ...]) -> str:
    """Name the library whose native code crashed, and the line that called it; nothing if that
    cannot be told. The stack is innermost first. Never raises."""
    with contextlib.suppress(Exception):
        if not stack or not (names := _named(stack[0])):
            return ""
        users = next((frame for frame in stack if not _library(frame.file)), None)
        return " or ".join(names[:NAMED]) + ("" if users is None else _called_at(users))
    return ""


def _named(frame: StackLine) -> list[str]:
    if library := _library(frame.file):
        return [] if library == "antifreeze" else [library]
    source = _read(frame.file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in the user's strings
        tree = ast.parse(source)
    return _called(tree, frame.line, _imports(tree))


def _library(file: str) -> str:
    """Give the library that a file is part of; nothing if it is the user's."""
    path = PurePath(file)
    for place, part in enumerate(path.parts[:-1]):
        if part in _PACKAGES:
            return PurePath(path.parts[place + 1]).stem
    for folder in _standard():
        if path.is_relative_to(folder):
            return PurePath(path.relative_to(folder).parts[0]).stem
    return ""


@functools.cache
def _standard() -> tuple[str, ...]:
    import sysconfig  # 5 ms, which nobody needs before something crashes

    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})


def _read(file: str) -> bytes:
    """Read a file of source; nothing if it is none, or too large."""
    found = os.stat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
        return b""
    with open(file, "rb") as source:
        return source.read(LARGEST)


def _imports(tree: ast.Module) -> dict[str, str]:
    """Give the libraries that names of a file stand for, wherever in it they are imported."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                found[alias.asname or root] = root
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = node.module.partition(".")[0]
    return found


def _called(tree: ast.Module, line: int, imports: dict[str, str]) -> list[str]:
    """Give the libraries that a line calls: those whose call is at that very line, if there are
    any, or else those whose call it is part of."""
    at, around = dict[str, None](), dict[str, None]()  # in order, each once
    for call in _calls(tree):
        if call.lineno <= line <= (call.end_lineno or call.lineno):
            root = _root(call.func)
            if root in imports:
                exact = line in (call.lineno, call.func.end_lineno)
                (at if exact else around)[imports[root]] = None
    return list(at or around)


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _root(func: ast.expr) -> str:
    while isinstance(func, ast.Attribute):
        func = func.value
    return func.id if isinstance(func, ast.Name) else ""


def _called_at(frame: StackLine) -> str:
    where = f"{PurePath(frame.file).name}:{frame.line}"
    lines = []
    with contextlib.suppress(OSError):
        lines = _read(frame.file).decode(errors="replace").splitlines()
    text = lines[frame.line - 1].strip() if 0 < frame.line <= len(lines) else ""
    short = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    return f" (called at {where}{': ' if short else ''}{short})"
