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
import contextlib
import re
import threading
from collections.abc import Iterator
from types import FrameType, FunctionType, MethodType
from typing import Any

from ..._loading.raw_attributes import instance_dict, on_class
from .bytecode import Block, Context, Expression, reading_of
from .frame_names import name_of, standard_file, value_around, value_in

# What a `with` may enter without holding anything that a worker could need: what it calls for that,
# and the types of what it is given.
_HARMLESS_CONTEXTS = frozenset(
    {
        "_io.open",
        "io.open",
        *(f"_io.{kind}" for kind in ("FileIO", "TextIOWrapper", "BytesIO", "StringIO")),
        *(f"_io.Buffered{kind}" for kind in ("Reader", "Writer", "Random", "RWPair")),
        *(f"selectors.{kind}Selector" for kind in ("Default", "Epoll", "Poll", "Select")),
        "_thread.RLock",  # a lock that is made here has no other name
        "_thread.allocate_lock",
        "_thread.lock",
        "gzip.open",
        "mmap.mmap",
        "posix.scandir",
        "select.epoll",
        "socket.create_server",
        "subprocess.Popen",
        "tarfile.TarFile.open",
        "tempfile.NamedTemporaryFile",
        "tempfile.SpooledTemporaryFile",
        "tempfile.TemporaryFile",
        "tempfile._TemporaryFileWrapper",
        "threading.RLock",
        "torch.autograd.grad_mode.set_grad_enabled",
        "torch.autograd.profiler.record_function",
        "tqdm.asyncio.tqdm_asyncio",
        "tqdm.notebook.tqdm_notebook",
        "tqdm.std.tqdm",
        "zipfile.ZipFile",
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
# (What lies in a file stays locked by a fork's parent alone, wherever workers come from.)
_FILES: tuple[str, ...] = ("FileIO", "TextIOWrapper", "BytesIO", "StringIO", "_IOBase", "_Buffered")
_FILES += ("BufferedReader", "BufferedWriter", "BufferedRandom", "_BufferedIOBase")
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
    | {"logging.getLogger", "threading.Thread.join", "threading.Timer.cancel"}
    | {f"subprocess.Popen.{name}" for name in ("kill", "terminate", "poll", "send_signal")}
    | {"subprocess.Popen.wait", "posix.close", "posix.unlink", "posix.remove", "posix.rmdir"}
    | {f"select.epoll.{name}" for name in ("close", "unregister", "modify")}
    | {"select.poll.unregister", "socket.socket.close", "_socket.socket.shutdown"}
    | {"selectors._BaseSelectorImpl.close", "selectors.EpollSelector.close"}
    | {"selectors._BaseSelectorImpl.unregister", "selectors._PollLikeSelector.unregister"}
    | {f"_io.{kind}.{name}" for kind in _FILES for name in ("close", "flush")}
    | {f"tqdm.{kind}.close" for kind in ("std.tqdm", "notebook.tqdm_notebook")}
)
# The last name of each: what bears another one need not be looked up.
_HARMLESS_NAMES = frozenset(each.rpartition(".")[2] for each in _HARMLESS_CALLS).union(
    *(vars(each) for each in _CONTAINERS)
)
_OF_CONTEXTLIB = "contextlib.contextmanager.<locals>.helper"
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
    `with`, or by hand where the code calls `acquire`, and a `finally` its `release`."""
    if not frame.f_code.co_exceptiontable:
        return
    reading = reading_of(frame.f_code)
    for block in reading.blocks_at(frame.f_lasti):
        if block.context is not None and not block.context.is_call:
            yield value_in(frame, block.context.expression)
        for called in block.calls:
            if called is None or called.names[-1] != "release":
                continue
            owner = called._replace(names=called.names[:-1])
            if owner in reading.acquired():
                yield value_in(frame, owner)


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
    if not context.is_call:
        return _is_harmless(thing)
    if thing is contextlib.ExitStack:
        made = None if context.bound is None else value_in(frame, context.bound)
        return type(made) is contextlib.ExitStack and _is_harmless(made)
    return name_of(thing) in _HARMLESS_CONTEXTS or _makes_harmless(thing)


def _is_harmless(thing: Any) -> bool:
    """Whether somebody who has entered a thing holds nothing by it."""
    kind = type(thing)
    if kind is _LOCK or kind is _RLOCK:
        return not is_held(thing)
    if issubclass(kind, threading.Condition):  # it is released while somebody waits for it
        enter = on_class(kind, "__enter__")
        return enter is on_class(threading.Condition, "__enter__") and not is_held(thing)
    if kind is contextlib.ExitStack:
        callbacks = instance_dict(thing).get("_exit_callbacks")
        return type(callbacks) is collections.deque and all(
            map(_is_harmless_callback, list(callbacks))
        )
    return name_of(kind) in _HARMLESS_CONTEXTS or _makes_harmless(kind)


def _is_harmless_callback(entry: Any) -> bool:
    """Whether an entry of an ExitStack is the exit of a harmless thing, or calls what is known."""
    if type(entry) is not tuple or len(entry) != 2:
        return False
    callback = entry[1]
    if type(callback) is MethodType:
        return _is_harmless(callback.__self__)
    if type(callback) is FunctionType and standard_file(callback.__code__) == "contextlib.py":
        return name_of(callback.__dict__.get("__wrapped__")) in _HARMLESS_CALLS
    return False


def _makes_harmless(maker: Any) -> bool:
    """Whether a class of contexts, or a function with `contextlib.contextmanager`, is the program's
    and does nothing but what is known to take no lock."""
    if type(maker) is FunctionType and name_of(maker) == _OF_CONTEXTLIB:
        generator = value_around(maker, Expression(("func",), False, False))
        return type(generator) is FunctionType and _does_little(generator)
    if not issubclass(type(maker), type):
        return False
    ways = [on_class(maker, name) for name in ("__enter__", "__exit__")]
    return all(type(way) is FunctionType and _does_little(way) for way in ways)


def _does_little(function: FunctionType) -> bool:
    calls = reading_of(function.__code__).calls()
    return calls is not None and all(
        each is not None and _is_harmless_function(value_around(function, each)) for each in calls
    )


def _is_harmless_call(frame: FrameType, called: Expression | None) -> bool:
    if called is None or (called.is_local and called.names[-1] not in _HARMLESS_NAMES):
        return False
    return _is_harmless_function(value_in(frame, called))


def _is_harmless_function(found: Any) -> bool:
    if issubclass(type(found), type) and issubclass(found, (BaseException, *_CONTAINERS)):
        return True
    name = name_of(found)
    return name in _HARMLESS_CALLS or name.startswith(_KINDS)
