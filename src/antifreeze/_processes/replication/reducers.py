"""How single things are sent to a clean process: as what they are, or not at all.

1. Tensors and arrays are copied, never moved to shared memory behind their owner's back; what is
   shared stays shared; two views of one storage stay two views of one storage. (A large one cannot
   grow there: it lies in memory that all workers map.)
2. What lies in a file (memory maps, of numpy, torch or `mmap`) is mapped anew, not copied; a file
   that is open for reading is opened anew, at its position.
3. A lock of threads arrives free, a thread pool that has nothing to do arrives without threads:
   they, and those who hold the lock, are not there.
4. Everything else that would arrive as something else raises Unsendable.
"""

from __future__ import annotations

import _thread
import ctypes
import io
import os
import stat
import struct
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import synchronize
from typing import Any

from ..._core.limits import LIMITS
from .kinds import views, weak_references
from .kinds.memory import Memory
from .kinds.semaphores import reduce_semaphore
from .unsendable import Unsendable

_STANDARD = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
_SEMAPHORES = (
    synchronize.Lock,
    synchronize.RLock,
    synchronize.Semaphore,
    synchronize.BoundedSemaphore,
)


def ways(memory: Memory) -> dict[type, Callable[[Any], Any]]:
    """Return the way to send each kind of thing that has one of its own. `memory`: what has been
    sent of it, which is not sent again."""
    return {
        **memory.ways(),
        **views.ways(),
        io.TextIOWrapper: _text_file,
        io.BufferedReader: _binary_file,
        ctypes.CDLL: _library,
        ctypes.PyDLL: _library,
        **dict.fromkeys(_SEMAPHORES, _semaphore),
        _thread.LockType: lambda lock: (threading.Lock, ()),
        _thread.RLock: lambda lock: (threading.RLock, ()),
        # Those who wait for it, or have taken of it, are threads of this process.
        threading.Condition: lambda condition: (threading.Condition, (condition._lock,)),
        threading.BoundedSemaphore: lambda it: (threading.BoundedSemaphore, (it._initial_value,)),
        threading.Semaphore: reduce_semaphore,
        threading.local: lambda local: (_local, (dict(vars(local)),)),
        ThreadPoolExecutor: _executor,
        **weak_references.ways(),
        struct.Struct: lambda layout: (struct.Struct, (layout.format,)),
    }


def check(thing: Any, memory: Memory) -> None:
    """Raise Unsendable for what would arrive, without a word, as less than it is."""
    numpy = sys.modules.get("numpy")
    kind = type(thing)
    if kind in weak_references.PROXIES:
        raise Unsendable("a weak reference, which would arrive as a copy of what it leads to")
    if numpy is None or not issubclass(kind, numpy.ndarray) or kind is numpy.memmap:
        return
    if kind in (numpy.ndarray, numpy.recarray, numpy.ma.MaskedArray):
        pass  # in their own way
    elif issubclass(kind, numpy.ma.MaskedArray):
        if thing.hardmask:
            raise Unsendable("an array with a hard mask")
        memory.copy(thing.data)
        if thing.mask is not numpy.ma.nomask:
            memory.copy(thing.mask)
    else:
        memory.copy(thing)
    if kind.__reduce__ is numpy.ndarray.__reduce__ and getattr(thing, "__dict__", None):
        raise Unsendable("an array with attributes of its own")


# ---- locks and libraries -------------------------------------------------------------------------


def _semaphore(lock: Any) -> Any:
    if getattr(lock, "_is_fork_ctx", False):
        raise Unsendable("it can only be inherited")
    return lock.__reduce_ex__(5)


def _local(of_this_thread: dict[str, Any]) -> threading.local:
    local = threading.local()
    vars(local).update(of_this_thread)
    return local


def _executor(pool: Any) -> Any:
    try:
        idle = not pool._work_queue.qsize() and pool._idle_semaphore._value >= len(pool._threads)
        made = (pool._max_workers, pool._thread_name_prefix, *_first_call(pool))
        shut = pool._shutdown
    except AttributeError:  # another Python's
        raise Unsendable("a thread pool") from None
    if not idle:
        raise Unsendable("a thread pool at work")
    return _make_executor, (made, shut)


def _first_call(pool: Any) -> tuple[Any, Any]:
    """Return what each thread of a pool calls first, and with what arguments."""
    if hasattr(pool, "_initializer"):
        return pool._initializer, pool._initargs
    context = pool._create_worker_context()  # from Python 3.14 on
    return context.initializer, context.initargs


def _make_executor(made: tuple[Any, ...], shut: bool) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(*made)
    if shut:
        pool.shutdown()
    return pool


def _library(library: Any) -> Any:
    """Send what ctypes has loaded as its name, with what was told of its functions."""
    told = {
        name: (function.argtypes, function.restype)
        for name, function in vars(library).items()
        if isinstance(function, library._FuncPtr)
    }
    return _load_anew, (type(library), library._name, told)


def _load_anew(kind: type, name: str | None, told: dict[str, Any]) -> Any:
    library = kind(name)
    for each, (arguments, result) in told.items():
        function = getattr(library, each)
        function.argtypes, function.restype = arguments, result
    return library


# ---- files ---------------------------------------------------------------------------------------


def _text_file(file: io.TextIOWrapper) -> Any:
    for name in _STANDARD:
        if file is getattr(sys, name):
            return getattr, (sys, name)
    path = _path_of(file.buffer)  # type: ignore[arg-type]
    if os.path.getsize(path) > LIMITS.sending.text_file_bytes:
        raise Unsendable("a large text file: nobody knows how it translates the ends of lines")
    with open(path, "rb") as content:
        if b"\r" in content.read():
            raise Unsendable("a text file: nobody knows how it translates the ends of lines")
    return _open_text, (path, file.tell(), _identity(file), file.encoding, file.errors)


def _binary_file(file: io.BufferedReader) -> Any:
    return _open_binary, (_path_of(file), file.tell(), _identity(file))


def _path_of(file: io.BufferedReader) -> str:
    """Give the path under which a file that is open for reading can be opened anew."""
    if not isinstance(file, io.BufferedReader) or file.closed:
        raise Unsendable("a file that is not open for reading only")
    if not isinstance(file.raw, io.FileIO):
        raise Unsendable(f"a file that is read through a {type(file.raw).__name__}")
    path = file.raw.name
    there = os.fstat(file.fileno())
    if not stat.S_ISREG(there.st_mode) or not isinstance(path, str | bytes):
        raise Unsendable("a file without a path")
    path = os.fsdecode(path)
    try:
        same = os.path.samestat(os.stat(path), there)
    except OSError:
        same = False
    if not same:
        raise Unsendable(f"a file that is no longer at {path}")
    return path


def _identity(file: io.TextIOWrapper | io.BufferedReader) -> tuple[int, int]:
    """Return which file it is. Whoever opens it needs the path alone; but what is sent must differ
    where there is another file under the same path."""
    there = os.fstat(file.fileno())
    return there.st_dev, there.st_ino


def _open_text(
    path: str, position: int, identity: tuple[int, int], encoding: str, errors: str
) -> Any:
    file = open(path, encoding=encoding, errors=errors)  # noqa: SIM115 - it is the dataset's
    file.seek(position)
    return file


def _open_binary(path: str, position: int, identity: tuple[int, int]) -> Any:
    file = open(path, "rb")  # noqa: SIM115 - it is the dataset's
    file.seek(position)
    return file
