"""What names stand for in a frame of another thread, looked up without running code of theirs."""

from __future__ import annotations

import builtins
import logging
import os
import sys
from collections.abc import Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from ..._loading.raw_attributes import attribute, module_of, name_of_module, qualified_name
from .bytecode import CALLED, Expression, reading_of

_STANDARD = os.path.dirname(os.__file__) + os.sep
_PACKAGES = _STANDARD + "site-packages" + os.sep
_OPTIMIZED = 1  # inspect.CO_OPTIMIZED: locals are kept in the frame, not in a dict of the program's
# What functions return, as its class: attributes of both are the same, unbound.
_RESULTS: dict[str, type] = {"logging.getLogger": logging.Logger}
_KEEPS_SNAPSHOT = sys.version_info < (3, 13)


def value_in(frame: FrameType, expression: Expression) -> Any:
    """Return what an expression stands for; None if that is not known."""
    first, *rest = expression.names
    found = None
    if not expression.is_global:
        found = _local(frame, first)
    if found is None and not expression.is_local:
        found = _item(frame.f_globals, first)
        if found is None:
            found = _item(frame.f_builtins, first)
    return _further(found, rest)


def value_around(function: FunctionType, expression: Expression) -> Any:
    """Return what an expression stands for in a function that does not run, or not here; None if
    that is not known: of a variable of its own."""
    first, *rest = expression.names
    found, code = None, function.__code__
    if first in code.co_freevars and function.__closure__ is not None:
        cell = function.__closure__[code.co_freevars.index(first)]
        try:
            found = cell.cell_contents
        except ValueError:  # it is empty
            return None
    elif not expression.is_local:
        found = _item(function.__globals__, first)
        if found is None:
            found = _item(vars(builtins), first)
    return _further(found, rest)


def _further(found: Any, rest: list[str]) -> Any:
    for name in rest:
        if name != CALLED:
            found = attribute(found, name)
        else:
            found = _RESULTS.get(name_of(found))
    return found


def name_of(thing: Any) -> str:
    """Return the full name of a function, a method or a class: `threading.Event.set`. Nothing of
    other things. A function of the standard library is known by its code, so that another one which
    bears its name (`functools.wraps`) is not taken for it."""
    kind: Any = type(thing)
    if issubclass(kind, type):
        return f"{module_of(thing)}.{qualified_name(thing)}"
    if kind is MethodType:
        return name_of(thing.__func__) if type(thing.__func__) is FunctionType else ""
    if kind is FunctionType:
        code = thing.__code__
        file = standard_file(code)
        module = _module_in(file) if file else module_of(thing)
        return f"{module}.{code.co_qualname}"
    if kind is MethodDescriptorType:
        return f"{name_of(thing.__objclass__)}.{thing.__name__}"
    if kind is BuiltinFunctionType:
        owner = thing.__self__
        if owner is None or type(owner) is ModuleType:
            module = thing.__module__
            if type(module) is not str:
                module = "" if owner is None else name_of_module(owner)
            return f"{module}.{thing.__name__}"
        return (
            f"{name_of(owner if issubclass(type(owner), type) else type(owner))}.{thing.__name__}"
        )
    return ""


def standard_file(code: CodeType) -> str:
    """Return the path of a file of the standard library, from its folder on; else nothing."""
    file = code.co_filename
    if not file.startswith(_STANDARD) or file.startswith(_PACKAGES):
        return ""
    return file.removeprefix(_STANDARD)


def _module_in(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _item(names: Any, name: str) -> Any:
    return dict.get(names, name) if issubclass(type(names), dict) else None


def _local(frame: FrameType, name: str) -> Any:
    """Return a local variable.

    Before Python 3.13 `f_locals` of a function is a snapshot that the frame keeps, and all that is
    in it stays alive for as long as the function runs: of a thread that works through a queue, the
    item it had when we looked. So what the interpreter has put there is taken out again. That
    changes nothing that anybody could see: whoever reads `f_locals` or calls `locals()` has it
    filled anew, and what else the program has put there stays. It is not done

    - if somebody else holds the snapshot: the function has called `locals()`, or runs `exec`;
    - in a frame that is traced: a trace function that is at work there has its changes of the
      snapshot, and what it lacks, copied back into the variables.
    """
    code = frame.f_code
    if not code.co_flags & _OPTIMIZED:  # of a module or a class: its real namespace
        return _item(frame.f_locals, name)
    if not _KEEPS_SNAPSHOT:
        return frame.f_locals.get(name)
    snapshot = frame.f_locals
    found = snapshot.get(name)
    # The frame, this variable, and the argument.
    if sys.getrefcount(snapshot) <= 3 and not _may_be_traced(frame):
        for each in _variables(code):
            snapshot.pop(each, None)
    return found


def _variables(code: CodeType) -> Iterator[str]:
    yield from code.co_varnames
    yield from code.co_cellvars
    yield from code.co_freevars


def _may_be_traced(frame: FrameType) -> bool:
    """Whether a trace function may be at work in a frame. One that is told of a call, before it
    says whether the frame is to be traced, is told at the very first instruction."""
    step = reading_of(frame.f_code).step_at(frame.f_lasti)
    return frame.f_trace is not None or step is None or step.name == "RESUME"
