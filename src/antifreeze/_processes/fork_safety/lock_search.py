"""Which lock of this process a forked worker waits for, and which thread holds it, in words.

Searched once it is known that the worker waits forever: that takes 10 ms for each step of the path.

1. A worker has the locks of this process at their addresses. Not so for a semaphore: whoever waits
   for one waits for a lock of its own. Then it is the one that has no permit left, if there is but
   one. (From Python 3.13 on no lock is waited for at its own address.)
2. Its path is found backwards, from what refers to it to the dataset, a module or a function. The
   garbage collector does not know what was frozen (`gc.freeze`): that is searched forwards.
3. A reentrant lock knows its holder. Of another one it is the only thread whose frames show it.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FrameType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

from ..._linux.clock import thread_time
from ..._loading.dataset_walk import ATOMS, is_users
from ..._loading.raw_attributes import (
    instance_dict,
    is_one_of,
    module_of,
    mro,
    namespace,
    qualified_name,
)
from ..._reporting.formatting import shortened
from .bytecode import Expression, reading_of
from .frame_names import value_in
from .open_blocks import entered_by, owner_of

LONGEST_S = 0.5  # of processor time, for one search
DEEPEST = 16  # from the lock back
WIDEST = 64  # objects that refer to those of the step before
_OF_EXECUTORS = "._idle_semaphore"  # counts threads that have nothing to do
_LOCKS = (type(threading.Lock()), type(threading.RLock()))


class _Node(NamedTuple):
    """An object that leads to the lock."""

    thing: Any
    key: Any  # if it is a dict: of what leads to the lock
    path: str  # from there on; of a dict from its value on


def lock_in_words(addresses: set[int], named: dict[str, Any]) -> str:
    """Return the lock at one of these addresses, and who holds it; nothing if it is not found."""
    if sys.version_info >= (3, 13):
        return ""

    def is_it(thing: Any) -> bool:
        return is_one_of(type(thing), *_LOCKS) and _address(thing) in addresses

    lock = next(filter(is_it, gc.get_objects()), None)
    path = "" if lock is None else path_to(lock, named)
    if not path:
        path, lock = _found_forwards(is_it, named)
    return f"{path}{_holder_in_words(lock, path)}" if path else ""


def semaphore_in_words(named: dict[str, Any]) -> str:
    """Return the only semaphore that has no permit left, and for which nobody waits here, and who
    holds it; nothing if that is not known."""
    found = [each for each in gc.get_objects() if issubclass(type(each), threading.Semaphore)]
    used_up = [(each, path_to(each, named)) for each in found if is_used_up(each)]
    paths = [(each, path) for each, path in used_up if path and not path.endswith(_OF_EXECUTORS)]
    if len(paths) != 1:
        return ""
    semaphore, path = paths[0]
    return f"the semaphore {path}{_holder_in_words(semaphore, path)}"


def is_used_up(semaphore: Any) -> bool:
    """Whether a semaphore has no permit left and nobody waits for one, so that all are taken."""
    own = instance_dict(semaphore)
    waiters = instance_dict(own.get("_cond")).get("_waiters")
    return own.get("_value") == 0 and not waiters


def _address(lock: Any) -> int | None:
    behind_header = id(lock) + 2 * ctypes.sizeof(ctypes.c_void_p)
    return ctypes.c_void_p.from_address(behind_header).value


# ---- where it is ---------------------------------------------------------------------------------


def path_to(thing: Any, named: dict[str, Any]) -> str:
    """Return a path that leads to an object, from one of those that have a name or from a module;
    nothing if none is found in time."""
    modules = [each for each in sys.modules.items() if each[0] != "__mp_main__"]
    ends = {id(instance_dict(module)): f"{name}." for name, module in modules}
    ends |= {id(each): name for name, each in named.items()}
    give_up, seen = thread_time() + LONGEST_S, {id(thing)}
    level = [_Node(thing, None, "")]
    for _ in range(DEEPEST):
        following: list[_Node] = []
        things = [node.thing for node in level]
        for referrer in gc.get_referrers(*things):  # once for all: it goes through all objects
            if id(referrer) in seen or referrer is things or thread_time() > give_up:
                continue
            for node in level:
                found, end = _step(referrer, node, ends)
                if end:
                    return shortened(end)
                if found is not None and len(following) < WIDEST:
                    seen.add(id(referrer))
                    following.append(found)
                    break
        level = following
        if not level:
            break
    return ""


def _found_forwards(is_it: Callable[[Any], bool], named: dict[str, Any]) -> tuple[str, Any]:
    """Return the first thing of a kind that is met from those that have a name and the program's
    modules on, and its path."""
    modules = [(name, module) for name, module in list(sys.modules.items()) if is_users(name)]
    level = [*named.items(), *modules]
    give_up, seen = thread_time() + LONGEST_S, {id(each) for _, each in level}
    for _ in range(DEEPEST):
        following: list[tuple[str, Any]] = []
        for path, thing in level:
            for step, inner in _inside(thing):
                if thread_time() > give_up:
                    return "", None
                if issubclass(type(inner), ATOMS) or id(inner) in seen:
                    continue
                if is_it(inner):
                    return shortened(path + step), inner
                seen.add(id(inner))
                if type(inner) is not ModuleType:
                    following.append((path + step, inner))
        level = following
    return "", None


def _inside(thing: Any) -> Iterator[tuple[str, Any]]:
    kind: Any = type(thing)
    if issubclass(kind, dict):
        for key, value in list(dict.items(thing)):
            yield f"[{key!r}]" if is_one_of(type(key), int, str) else "[...]", value
    elif is_one_of(kind, list, tuple, deque):
        for at, value in enumerate(list(thing)):
            yield f"[{at}]", value
    elif issubclass(kind, type):
        for name, value in list(namespace(thing).items()):
            yield f".{name}", value
    elif kind is not FunctionType:
        yield from ((f".{name}", value) for name, value in list(instance_dict(thing).items()))
        yield from _slots(thing, kind)


def _step(thing: Any, node: _Node, ends: dict[int, str]) -> tuple[_Node | None, str]:
    """Return what refers to a node, as a node, or the whole path if it begins there."""
    kind: Any = type(thing)
    if issubclass(kind, dict):
        key = next((k for k, value in dict.items(thing) if value is node.thing), None)
        if key is None:
            return None, ""
        path = _behind(node)
        if (end := ends.get(id(thing), "")).endswith("."):  # of a module
            return None, f"{end}{key}{path}"
        if end:
            return None, f"{end}[{key!r}]{path}"
        return _Node(thing, key, path), ""
    if kind is FunctionType:
        return None, f"{module_of(thing)}.{thing.__code__.co_qualname} (a variable of it)"
    if issubclass(kind, type):
        name = next((n for n, value in namespace(thing).items() if value is node.thing), "")
        if not name and type(node.key) is str and node.key in namespace(thing):
            name, node = node.key, node._replace(key=None)
        if not name:
            return None, ""
        return None, f"{module_of(thing)}.{qualified_name(thing)}.{name}{node.path}"
    inside = _path_in(thing, kind, node)
    if inside is None:
        return None, ""
    if id(thing) in ends:
        return None, f"{ends[id(thing)]}{inside}"
    return _Node(thing, None, inside), ""


def _path_in(thing: Any, kind: Any, node: _Node) -> str | None:
    """Return the path from an object that is no dict; None if it does not hold the node."""
    if kind is CellType:
        return node.path if node.key is None else _behind(node)
    if is_one_of(kind, list, tuple, deque):
        at = next((at for at, each in enumerate(thing) if each is node.thing), None)
        return None if at is None else f"[{at}]{_behind(node)}"
    own = instance_dict(thing)
    if own is node.thing and type(node.key) is str:
        return f".{node.key}{node.path}"
    attributes = ((f".{name}", value) for name, value in own.items())
    for step, value in (*attributes, *_slots(thing, kind)):
        if value is node.thing:
            return f"{step}{_behind(node)}"
    return None


def _behind(node: _Node) -> str:
    if not issubclass(type(node.thing), dict) or node.key is None:
        return node.path
    step = repr(node.key) if is_one_of(type(node.key), int, str) else "..."
    return f"[{step}]{node.path}"


def _slots(thing: Any, kind: Any) -> Iterator[tuple[str, Any]]:
    for each in mro(kind):
        for name, slot in list(namespace(each).items()):
            if type(slot) is MemberDescriptorType:
                try:
                    yield f".{name}", slot.__get__(thing)
                except (AttributeError, TypeError):  # it was never set
                    continue


# ---- who holds it --------------------------------------------------------------------------------


def _holder_in_words(lock: Any, path: str) -> str:
    holder = holder_of(lock, path)
    return f", held by the thread {holder} at the fork" if holder else ""


def holder_of(lock: Any, path: str) -> str:
    """Return the name of the thread that holds a lock, if there is one that shows it."""
    if name := owner_of(lock):
        return name
    frames, found = sys._current_frames(), []
    for thread in threading.enumerate():
        frame = frames.get(instance_dict(thread).get("_ident", 0))
        if frame is not None and any(_shows(each, lock, path) for each in _outwards(frame)):
            found.append(str(instance_dict(thread).get("_name")))
    del frames
    return found[0] if len(found) == 1 else ""


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _shows(frame: FrameType, lock: Any, path: str) -> bool:
    """Whether a frame has entered a lock, or has called a function that takes it by hand."""
    if any(_is_behind(each, lock) for each in entered_by(frame)):
        return True
    reading = reading_of(frame.f_code)
    if any(_is_behind(value_in(frame, each), lock) for each in reading.acquired()):
        return True
    code = frame.f_code
    if "acquire" not in code.co_names and "enter_context" not in code.co_names:
        return False
    here = [Expression((name,), True, False) for name in code.co_varnames]
    if any(_is_behind(value_in(frame, each), lock) for each in here):
        return True
    return _names(code, frame.f_globals, path)


def _names(code: CodeType, around: dict[str, Any], path: str) -> bool:
    """Whether code names the global that a path begins with, or calls a function that does."""
    module, named = around.get("__name__"), set(code.co_names)
    for name in code.co_names:
        function = dict.get(around, name)
        if type(function) is FunctionType and function.__globals__ is around:
            named.update(function.__code__.co_names)
    return any(path.startswith(f"{module}.{name}{end}") for name in named for end in ".[") or any(
        path == f"{module}.{name}" for name in named
    )


def _is_behind(thing: Any, lock: Any) -> bool:
    """Whether a lock is this one, or the one of this condition."""
    if thing is lock:
        return True
    is_condition = issubclass(type(thing), threading.Condition)
    return is_condition and instance_dict(thing).get("_lock") is lock
