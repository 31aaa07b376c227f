"""Whether a frame may hold something by the blocks it stands in: `with`, `finally`, `except`.

1. A `with` holds nothing if what it entered is a lock that nobody holds, or of a kind that workers
   have no use for.
2. A `try` holds nothing if what it does on the way out is known not to release anything. Where an
   `except` goes on after an error it need not be known: the thread would not be done with what it
   holds. One that takes any error to raise it again is a `finally` by another name.
3. What cannot be told may hold something.

Not seen: a name that other code has bound to another lock since a `with` entered the first one; a
lock that is taken and released by hand (`acquire`) with no block around, or by a block of a
function that has returned.
"""

from __future__ import annotations

import collections
import re
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ..._loading.raw_attributes import instance_dict, on_class
from .bytecode import Block, Context, Expression, reading_of
from .frame_names import name_of, value_in

# What a `with` may enter without holding anything that a worker could need: what it calls for that,
# and the types of what it is given.
_HARMLESS_CONTEXTS = frozenset(
    {
        "_io.open",
        "io.open",
        "asyncio.runners.Runner",
        "concurrent.futures.process.ProcessPoolExecutor",
        "concurrent.futures.thread.ThreadPoolExecutor",
        "contextlib.closing",
        "contextlib.nullcontext",
        "contextlib.redirect_stderr",
        "contextlib.redirect_stdout",
        "contextlib.suppress",
        "socket.create_connection",
        "socket.socket",
        "tempfile.TemporaryDirectory",
        "torch.autograd.grad_mode.enable_grad",
        "torch.autograd.grad_mode.inference_mode",
        "torch.autograd.grad_mode.no_grad",
        "warnings.catch_warnings",
    }
)
# What the way out of a block may call without releasing a lock by it: any method of these ...
_CONTAINERS: tuple[type, ...] = (list, dict, set, bytearray, str, bytes, int, float, tuple)
_CONTAINERS += (collections.deque, collections.OrderedDict, collections.defaultdict)
_KINDS = tuple(f"{name_of(each)}." for each in (*_CONTAINERS, BaseException))
# ... and these functions and methods, by where they are defined.
_LOGGING = ("debug", "info", "warning", "warn", "error", "exception", "critical", "log")
_OF_QUEUES = ("put", "put_nowait", "get", "get_nowait", "qsize", "empty")
_HARMLESS_CALLS = frozenset(
    {f"time.{name}{ns}" for name in ("time", "monotonic", "perf_counter") for ns in ("", "_ns")}
    | {f"time.{name}_time{ns}" for name in ("thread", "process") for ns in ("", "_ns")}
    | {f"threading.Event.{name}" for name in ("set", "clear", "is_set")}
    | {f"queue.Queue.{name}" for name in (*_OF_QUEUES, "full", "task_done")}
    | {f"_queue.SimpleQueue.{name}" for name in _OF_QUEUES}
    | {f"multiprocessing.queues.{kind}.put" for kind in ("Queue", "SimpleQueue", "JoinableQueue")}
    | {"multiprocessing.queues.JoinableQueue.task_done"}
    | {f"concurrent.futures._base.Future.set_{name}" for name in ("exception", "result")}
    | {f"logging.{owner}{name}" for owner in ("", "Logger.", "LoggerAdapter.") for name in _LOGGING}
    | {f"traceback.{how}_{what}" for how in ("print", "format") for what in ("exc", "exception")}
    | {f"builtins.{name}" for name in ("callable", "getattr", "hasattr", "id", "isinstance")}
    | {f"builtins.{name}" for name in ("issubclass", "len", "max", "min", "print", "repr", "sum")}
    | {f"builtins.{name}" for name in ("bool", "type")}
    | {"_warnings.warn", "sys.exc_info", "sys.exit", "posix._exit", "posix.getpid"}
    | {"threading.current_thread", "threading.get_ident", "_thread.get_ident"}
)
# The last name of each: what bears another one need not be looked up.
_HARMLESS_NAMES = frozenset(each.rpartition(".")[2] for each in _HARMLESS_CALLS).union(
    *(vars(each) for each in _CONTAINERS)
)
_OWNER = re.compile(r"owner\W(\d+)")
_LOCK = type(threading.Lock())
_RLOCK = type(threading.RLock())


def may_hold(frame: FrameType) -> Block | None:
    """Return a block that a frame stands in and may hold something by."""
    code = frame.f_code
    if not code.co_exceptiontable:
        return None
    for block in reading_of(code).blocks_at(frame.f_lasti):
        if block.is_with:
            if not _is_harmless_context(frame, block.context):
                return block
        elif not all(_is_harmless_call(frame, each) for each in block.calls):
            return block
    return None


def entered_by(frame: FrameType) -> Iterator[Any]:
    """Yield what the blocks that a frame stands in have entered, as far as that is known: by a
    `with`, or by hand where a `finally` or an `except` calls its `release`."""
    if not frame.f_code.co_exceptiontable:
        return
    for block in reading_of(frame.f_code).blocks_at(frame.f_lasti):
        if block.context is not None and not block.context.is_call:
            yield value_in(frame, block.context.expression)
        for called in block.calls:
            if called is not None and called.names[-1] == "release" and called.names[1:]:
                yield value_in(frame, called._replace(names=called.names[:-1]))


def is_held(lock: Any) -> bool:
    """Whether somebody holds a lock of the standard library, and not the calling thread again."""
    kind = type(lock)
    if issubclass(kind, threading.Condition):
        return is_held(instance_dict(lock).get("_lock"))
    if issubclass(kind, threading.Semaphore):  # one without a bound may begin with nothing
        own = instance_dict(lock)
        free = own.get("_value", 1) or not own.get("_initial_value")
        return not free or is_held(own.get("_cond"))
    if kind is _LOCK:
        return bool(lock.locked())
    if kind is _RLOCK:
        told = repr(lock)  # it has no method for that before Python 3.14
        owner = _OWNER.search(told)
        mine = owner is not None and int(owner[1]) == threading.get_ident()
        return told.startswith("<locked") and not mine
    return False


def owner_of(lock: Any) -> str:
    """Return the name of the thread that holds a lock, if the lock knows."""
    if issubclass(type(lock), threading.Condition):
        lock = instance_dict(lock).get("_lock")
    found = _OWNER.search(repr(lock)) if type(lock) is _RLOCK else None
    if found is None:
        return ""
    for thread in threading.enumerate():
        own = instance_dict(thread)
        if own.get("_ident") == int(found[1]):
            return str(own.get("_name"))
    return ""


def _is_harmless_context(frame: FrameType, context: Context | None) -> bool:
    if context is None:
        return False
    thing = value_in(frame, context.expression)
    if context.is_call:
        return name_of(thing) in _HARMLESS_CONTEXTS
    kind = type(thing)
    if kind is _LOCK or kind is _RLOCK:
        return not is_held(thing)
    if issubclass(kind, threading.Condition):  # it is released while somebody waits for it
        enter = on_class(kind, "__enter__")
        return enter is on_class(threading.Condition, "__enter__") and not is_held(thing)
    return name_of(kind) in _HARMLESS_CONTEXTS


def _is_harmless_call(frame: FrameType, called: Expression | None) -> bool:
    if called is None or (called.is_local and called.names[-1] not in _HARMLESS_NAMES):
        return False
    found = value_in(frame, called)
    if issubclass(type(found), type) and issubclass(found, (BaseException, *_CONTAINERS)):
        return True
    name = name_of(found)
    return name in _HARMLESS_CALLS or name.startswith(_KINDS)
