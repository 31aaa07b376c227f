"""Which line of a stack has already taken the lock that its thread waits for, as the source says.

From outside, a plain lock that its own thread has taken looks like one that another thread has.
The source tells them apart: if a line further out stands in the body of `with X`, and the innermost
one is about to take `X`, it is the same lock. Files are read, and nothing of them is kept but which
line it was. All bounds are small: what cannot be told soon is not told.

`X` is the same only where it cannot well be another thing: a name of the module, or something of
`self` where each line in between calls a method of the same `self`.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any

from ...._linux.bounded_reads import path_seen_by
from ...._linux.regular_files import read_regular
from ...._linux.syscalls import Syscall
from ...source.syntax.safe_compile import compile_quietly
from ..analyse.library_files import SYNCHRONIZE
from ..facts import Frame, Process, Thread
from .isolated_call import run_isolated

READ_S = 4.0  # for all files: one on a server that is gone never answers
_MOST_BYTES = 400_000  # of a file: longer ones are not written by hand, and take long to read
_MOST_FILES = 8
_MOST_THREADS = 16
_MOST_LINES = 100  # of a stack, the innermost
# Python's own code below a line of the script that takes a lock: `Lock.__enter__` and the like.
_BELOW = ("threading.py", SYNCHRONIZE)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Code = _Function | ast.Module  # what a line of a stack is in


def with_acquire_lines(processes: Iterable[Process]) -> tuple[Process, ...]:
    """Add to threads that wait for a lock the lines which have taken it. Bounded: `READ_S`."""
    processes = tuple(processes)
    asked = [
        (each.pid, thread)
        for each in processes
        for thread in each.threads
        if thread.call[:1] == (Syscall.FUTEX,) and _theirs(thread)
    ][:_MOST_THREADS]
    if not asked:
        return processes
    question = [
        [pid, thread.tid, [astuple(each) for each in _theirs(thread)[:_MOST_LINES]]]
        for pid, thread in asked
    ]
    answer = run_isolated(find_acquire_lines, question, READ_S) or []
    found = {tid: tuple(Frame(*each) for each in frames) for tid, frames in answer}
    return tuple(
        replace(
            each,
            threads=tuple(
                replace(thread, taken_at=found.get(thread.tid, ())) for thread in each.threads
            ),
        )
        for each in processes
    )


def find_acquire_lines(question: list[Any]) -> list[Any]:
    """Find the lines that have taken the lock, for each thread; called in a process of its own."""
    files: dict[tuple[int, str], _File | None] = {}
    found = []
    for pid, tid, lines in question:
        # Their source is as deep as they like; one that is too deep tells nothing.
        with contextlib.suppress(RecursionError, MemoryError):
            taken = _taken_at(pid, tuple(Frame(*each) for each in lines), files)
            found.append([tid, [astuple(each) for each in taken]])
    return found


def _theirs(thread: Thread) -> tuple[Frame, ...]:
    """Return the lines of the script, the innermost first, without Python's own below them."""
    frames = [each for each in thread.frames if not each.native]
    while frames and frames[0].file in _BELOW:
        frames.pop(0)
    return tuple(frames)


def _taken_at(
    pid: int, frames: tuple[Frame, ...], files: dict[tuple[int, str], _File | None]
) -> tuple[Frame, ...]:
    """Return the lines that have taken what the innermost one wants."""
    inner = frames[0]
    file = _file(pid, inner.file, files)
    function = file.function(inner) if file is not None else None
    if file is None or function is None:
        return ()
    found = []
    for wanted in _wanted(function, inner.line):
        for depth, outer in enumerate(frames):
            over = file.function(outer) if outer.file == inner.file else None
            if over is None or not _has(over.body, outer.line, ast.unparse(wanted)):
                continue
            if file.is_shared(wanted) or _same_self(file, wanted, frames[: depth + 1]):
                found.append(outer)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class _File:
    """A file of the script, as far as it is asked about."""

    module: ast.Module
    functions: tuple[_Function, ...]  # the outermost first
    names: frozenset[str]  # of the module: functions that bind one do not mean it

    def function(self, frame: Frame) -> _Code | None:
        """Return the innermost function that a line is in, if it is the one of that name."""
        inside = [each for each in self.functions if _spans(each, frame.line)]
        if frame.name == "<module>":
            return None if inside else self.module
        name = frame.name.rpartition(".")[2]
        return inside[-1] if inside and inside[-1].name == name else None

    def is_shared(self, expression: ast.expr) -> bool:
        """Whether it is a name of the module, or something of one, wherever it is used."""
        root = _root(expression)
        return root in self.names and not any(root in _bound(each) for each in self.functions)


def _file(pid: int, path: str, known: dict[tuple[int, str], _File | None]) -> _File | None:
    """Read a file as a process sees it, once; None if that cannot be."""
    key = (pid, path)
    if key not in known:
        same = [file for (_, name), file in known.items() if name == path]
        may = path.startswith("/") and len(known) < _MOST_FILES
        known[key] = same[0] if same else _parsed(path_seen_by(pid, path)) if may else None
    return known[key]


def _parsed(path: str) -> _File | None:
    data = read_regular(path, _MOST_BYTES + 1, follow=True)
    if data is None or len(data) > _MOST_BYTES:
        return None
    try:
        tree: ast.Module = compile_quietly(data.decode(errors="replace"), ast.PyCF_ONLY_AST)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions = [each for each in ast.walk(tree) if isinstance(each, _Function)]
    functions.sort(key=lambda each: (each.lineno, -(each.end_lineno or 0)))
    names = frozenset(_targets(tree.body))
    return _File(tree, tuple(functions), names)


def _targets(body: list[ast.stmt]) -> Iterator[str]:
    """Return the names that statements of a module bind, classes included."""
    for statement in body:
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            yield from _targets(statement.body)
        elif isinstance(statement, ast.ClassDef):
            yield statement.name
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (each.id for each in targets if isinstance(each, ast.Name))


def _bound(function: _Function) -> set[str]:
    """Return the names that a function binds itself, and not the module's where it says so."""
    nodes = list(ast.walk(function))
    said = {name for each in nodes if isinstance(each, ast.Global) for name in each.names}
    arguments = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    stored = {
        each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    return arguments | (stored - said)


def _nodes(code: _Code) -> Iterator[ast.AST]:
    """Return what a function is made of, without the functions and classes in it."""
    todo: list[ast.AST] = list(ast.iter_child_nodes(code))
    while todo:
        each = todo.pop()
        yield each
        if not isinstance(each, (_Function, ast.ClassDef, ast.Lambda)):
            todo += ast.iter_child_nodes(each)


def _spans(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _root(expression: ast.expr) -> str:
    """Return the name that an expression of names and dots begins with; nothing for any other."""
    while isinstance(expression, ast.Attribute):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def _wanted(code: _Code, line: int) -> list[ast.expr]:
    """Return the lock that a line takes: at the head of a `with`, or by `acquire`. A line that
    takes several is not asked about: which of them it waits for is not known."""
    found = []
    for each in _nodes(code):
        if isinstance(each, ast.With) and each.lineno <= line:
            body = each.body[0].lineno
            if each.lineno == body == line:
                return []  # `with lock: body` in one line: where in it, is not known
            if line < body:
                found += [item.context_expr for item in each.items]
        elif isinstance(each, ast.Call) and _spans(each, line) and (lock := _takes(each)):
            found.append(lock)
    return found if len(found) == 1 and _root(found[0]) else []


def _takes(call: ast.Call) -> ast.expr | None:
    """Return the lock that a call takes; none for one that may come back without it."""
    return _method(call, "acquire") if not call.args and not call.keywords else None


def _method(call: ast.Call, name: str) -> ast.expr | None:
    function = call.func
    return function.value if isinstance(function, ast.Attribute) and function.attr == name else None


def _has(body: list[ast.stmt], line: int, lock: str, has: bool = False) -> bool:
    """Whether who is at this line has this lock: it stands in a `with` of it, or after an
    `acquire` that every way to it passes, without a `release` in between."""
    for each in body:
        if not _spans(each, line):
            if each.lineno > line:
                break
            calls = [node for node in ast.walk(each) if isinstance(node, ast.Call)]
            gives = any(_is(_method(call, "release"), lock) for call in calls)
            takes = isinstance(each, ast.Expr) and any(_is(_takes(call), lock) for call in calls)
            has = takes or (has and not gives)
            continue
        if isinstance(each, ast.With) and line >= each.body[0].lineno:
            has = has or any(_is(item.context_expr, lock) for item in each.items)
        inside = [block for block in _blocks(each) if block and _within(block, line)]
        return _has(inside[0], line, lock, has) if inside else has
    return has


def _is(expression: ast.expr | None, lock: str) -> bool:
    return expression is not None and ast.unparse(expression) == lock


def _within(block: list[ast.stmt], line: int) -> bool:
    last = block[-1]
    return block[0].lineno <= line <= (last.end_lineno or last.lineno)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Return the blocks of a statement."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for each in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield each.body


def _same_self(file: _File, lock: ast.expr, frames: tuple[Frame, ...]) -> bool:
    """Whether it is something of `self`, and that from the outer line to the inner one each calls
    a method of the same `self`."""
    if _root(lock) != "self" or isinstance(lock, ast.Name):
        return False
    for inner, outer in itertools.pairwise(frames):
        over = file.function(outer) if outer.file == frames[0].file else None
        if over is None or outer.name.rpartition(".")[0] != inner.name.rpartition(".")[0]:
            return False
        name = inner.name.rpartition(".")[2]
        calls = [each for each in ast.walk(over) if isinstance(each, ast.Call)]
        here = [each for each in calls if _spans(each, outer.line)]
        if not any(ast.unparse(each.func) == f"self.{name}" for each in here):
            return False
    return True
