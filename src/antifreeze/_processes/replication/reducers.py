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
import bisect
import ctypes
import io
import mmap
import os
import pickle
import stat
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import synchronize
from typing import Any

import torch

from ..._core.limits import LIMITS
from ..._loading.rng_adapters import numpy_if_there
from ..._torch_internals import share_storage, share_tensor, untyped
from ..._transport.sparse_tensors import reduce_sparse
from ..._transport.tensors import is_named, take_names
from . import weak_references
from .mapped_memory import Areas, InFile
from .semaphores import reduce_semaphore
from .unsendable import Unsendable

_STANDARD = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
_SEMAPHORES = (
    synchronize.Lock,
    synchronize.RLock,
    synchronize.Semaphore,
    synchronize.BoundedSemaphore,
)


def ways(*, copies: bool = False) -> dict[type, Callable[[Any], Any]]:
    """Give the way to send each kind of thing that has one of its own, for one stream of pickled
    things: what it has sent is not sent again. `copies`: what shares memory with a thing of another
    kind is sent as a copy, as pickle would."""
    memory = _Memory(copies)
    found: dict[type, Callable[[Any], Any]] = {
        torch.Tensor: memory.tensor,
        torch.nn.Parameter: memory.tensor,
        torch.UntypedStorage: memory.untyped,
        torch.storage.TypedStorage: memory.typed,
        io.TextIOWrapper: _text_file,
        io.BufferedReader: _binary_file,
        mmap.mmap: memory.map_of_bytes,
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
    if (numpy := numpy_if_there()) is not None:
        found[numpy.ndarray] = memory.array
        found[numpy.memmap] = memory.memory_map
    return found


def check(thing: Any) -> None:
    """Raise Unsendable for what would arrive, without a word, as less than it is."""
    numpy = sys.modules.get("numpy")
    kind = type(thing)
    if kind in weak_references.PROXIES:
        raise Unsendable("a weak reference, which would arrive as a copy of what it leads to")
    if numpy is None or not issubclass(kind, numpy.ndarray) or kind is numpy.memmap:
        return
    if issubclass(kind, numpy.ma.MaskedArray):
        if thing.hardmask:
            raise Unsendable("an array with a hard mask")
    elif kind.__reduce__ is numpy.ndarray.__reduce__ and getattr(thing, "__dict__", None):
        raise Unsendable("an array with attributes of its own")


def _shared(way: Any, thing: Any) -> Any:
    if way is None:
        raise Unsendable("shared memory, which this torch does not send in a way we know")
    return way(thing)


# ---- memory --------------------------------------------------------------------------------------


class _Memory:
    """What one stream has sent of this process's memory."""

    def __init__(self, copies: bool) -> None:
        self._copies = copies
        self._areas = Areas()
        self._storages: dict[int, _Storage] = {}  # by address
        self._claimed: list[tuple[int, int, str]] = []  # sorted

    # -- torch

    def tensor(self, tensor: torch.Tensor) -> Any:
        if tensor.device.type not in ("cpu", "meta"):
            raise Unsendable(
                f"a tensor on {tensor.device}; forked workers cannot use it. Call cpu()"
            )
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_meta
        strided = tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)
        if not tensor.is_leaf:
            raise Unsendable("a tensor with a history of gradients; detach() it")
        if tensor.grad is not None:
            raise Unsendable("a tensor with a gradient")
        odd = tensor.is_conj() or tensor.is_neg() or bool(tensor.__dict__)
        if is_named(tensor) and type(tensor) is torch.Tensor and strided and not odd:
            return take_names(tensor)
        if odd or not (plain and strided) or is_named(tensor):
            return reduce_sparse(tensor) or tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]
        storage = self._storage(tensor.untyped_storage())
        if storage is None:
            return _shared(share_tensor, tensor)
        placed = (tensor.storage_offset(), tensor.size(), tensor.stride())
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        return _place, (storage, tensor.dtype, *placed, tensor.requires_grad, is_parameter)

    def untyped(self, memory: torch.UntypedStorage) -> Any:
        if memory.device.type != "cpu":
            raise Unsendable(f"memory of {memory.device}; forked workers cannot use it")
        storage = self._storage(memory)
        if storage is None:
            return _shared(share_storage, memory)
        return _memory_of, (storage,)

    def typed(self, typed: Any) -> Any:
        return _typed, (untyped(typed), typed.dtype)

    def _storage(self, memory: torch.UntypedStorage) -> _Storage | None:
        """Give what stands for some memory; None: torch shares it, in its own way."""
        address = memory.data_ptr()
        if not address:
            return _Storage(memory)  # all empty ones are at 0
        storage = self._storages.get(address)
        if storage is None:
            in_file = self._areas.in_file(address, memory.nbytes())
            if in_file is None and memory.is_shared():
                return None
            if in_file is None and self._areas.is_shared(address):
                raise Unsendable("a tensor in memory that is shared with other processes")
            self._claim(address, address + memory.nbytes(), "a tensor")
            storage = self._storages[address] = _Storage(memory, in_file)
        if storage.memory.nbytes() != memory.nbytes():
            raise Unsendable("two tensors that share a part of their memory")
        return storage

    def _claim(self, low: int, high: int, kind: str) -> None:
        """Take note of memory that is sent as one thing. Raises Unsendable if a part of it was sent
        as another: they would no longer share it."""
        place = bisect.bisect_right(self._claimed, (low, high, kind))
        for first, last, other in self._claimed[max(0, place - 1) : place + 1]:
            if first < high and low < last and (other != kind or (first, last) != (low, high)):
                if self._copies:
                    return
                raise Unsendable(f"{kind} in memory that {other} in the dataset shares")
        self._claimed.insert(place, (low, high, kind))

    # -- numpy and mmap

    def array(self, array: Any) -> Any:
        if array.dtype.hasobject or not array.size:
            return array.__reduce_ex__(5)
        low, high = _bounds(array)
        if array.flags.owndata:
            self._claim(low, high, "an array")
            return array.__reduce_ex__(5)
        start = array.__array_interface__["data"][0] - low
        place = self._areas.in_file(low, high - low)
        if place is not None:
            return _array_in_file, (place, start, array.dtype, array.shape, array.strides)
        if self._areas.is_shared(low):
            raise Unsendable("an array in memory that is shared with other processes")
        looks = array.shape, array.strides, array.flags.writeable
        if (root := _root(array)) is not None:
            start += low - root.__array_interface__["data"][0]
            return _view, (root, start, array.dtype, *looks)
        if array.flags.writeable:
            self._claim(low, high, "an array")
        if array.nbytes > 2 * (high - low):
            raise Unsendable("an array that shows the same memory many times")
        return array.__reduce_ex__(5)

    def memory_map(self, array: Any) -> Any:
        numpy = numpy_if_there()
        base = array
        while isinstance(base.base, numpy.memmap):
            base = base.base
        if getattr(base, "_mmap", None) is None:
            return array.__reduce_ex__(5)  # made from a map, and no map itself
        if not array.size:
            return numpy.empty, (array.shape, array.dtype)
        low, high = _bounds(array)
        place = self._areas.in_file(low, high - low)
        if place is None:
            if base.mode == "c":  # what was changed is in no file
                return numpy.array, (numpy.array(array),)
            raise Unsendable("a memory map of a file that is not there any more")
        mode = "r+" if base.mode == "w+" else base.mode
        start = array.__array_interface__["data"][0] - low
        return _map_anew, (place, mode, start, array.dtype, array.shape, array.strides)

    def map_of_bytes(self, mapped: mmap.mmap) -> Any:
        numpy = numpy_if_there()
        if numpy is None:
            raise Unsendable("a memory map")
        look = numpy.frombuffer(mapped, numpy.uint8)
        place = self._areas.in_file(look.__array_interface__["data"][0], len(mapped))
        if place is None:
            raise Unsendable("a memory map of no file, or one that was changed")
        return _map_bytes_anew, (place, mapped.tell())


def _root(array: Any) -> Any:
    """Give the array whose memory this one shows, if it is one piece."""
    root, kind = array, numpy_if_there().ndarray
    while (base := root.base) is not None:
        if type(base).__name__ == "DummyArray":  # what `as_strided` puts between
            base = base.base
        if type(base) is not kind:
            break
        root = base
    whole = root.flags.owndata and root.flags.forc and not root.dtype.hasobject
    return root if whole else None


def _bounds(array: Any) -> tuple[int, int]:
    """Give the addresses of an array's first byte, and of the one behind its last."""
    low = array.__array_interface__["data"][0]
    high = low + array.itemsize
    for count, step in zip(array.shape, array.strides, strict=True):
        reach = (count - 1) * step
        low, high = (low + reach, high) if step < 0 else (low, high + reach)
    return low, high


class _Storage:
    """The memory of tensors, sent once however many look at it."""

    def __init__(self, memory: torch.UntypedStorage, in_file: InFile | None = None) -> None:
        self.memory, self._in_file = memory, in_file

    def __reduce__(self) -> Any:
        if self._in_file is not None:
            return _stored_in_file, (self._in_file,)
        flat = torch.empty(0, dtype=torch.uint8, device="cpu").set_(self.memory)
        array: Any = flat.numpy()
        return _stored, (pickle.PickleBuffer(array),)


def _stored(data: Any) -> _Storage:
    if not len(data):
        return _Storage(torch.empty(0, device="cpu").untyped_storage())
    if isinstance(data, bytes | bytearray):  # it came in the stream
        own = torch.frombuffer(bytearray(data), dtype=torch.uint8).clone()  # which can grow
        return _Storage(own.untyped_storage())
    return _Storage(torch.frombuffer(data, dtype=torch.uint8).untyped_storage())


def _stored_in_file(place: InFile) -> _Storage:
    mapped, skipped = place.map_anew()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may be read-only, as it was
        tensor = torch.frombuffer(mapped, dtype=torch.uint8, count=place.size, offset=skipped)
    return _Storage(tensor.untyped_storage())


def _memory_of(storage: _Storage) -> torch.UntypedStorage:
    return storage.memory


def _typed(memory: torch.UntypedStorage, dtype: torch.dtype) -> Any:
    kind: Any = torch.storage.TypedStorage
    return kind(wrap_storage=memory, dtype=dtype, _internal=True)


def _place(
    storage: _Storage,
    dtype: torch.dtype,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    is_parameter: bool,
) -> torch.Tensor:
    empty = torch.empty(0, dtype=dtype, device="cpu")
    tensor = empty.set_(storage.memory, offset, size, stride)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


def _view(
    root: Any,
    start: int,
    dtype: Any,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    writeable: bool,
) -> Any:
    whole = root if root.flags.c_contiguous else root.T
    view = numpy_if_there().ndarray(shape, dtype, whole, start, strides)
    if not writeable:
        view.flags.writeable = False
    return view


def _array_in_file(
    place: InFile, start: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Any:
    mapped, skipped = place.map_anew()
    return numpy_if_there().ndarray(shape, dtype, mapped, skipped + start, strides)


def _map_anew(
    place: InFile,
    mode: str,
    start: int,
    dtype: Any,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> Any:
    numpy: Any = numpy_if_there()
    flat = numpy.memmap(place.path, numpy.uint8, mode, place.offset, (place.size,))
    array = numpy.ndarray.__new__(numpy.memmap, shape, dtype, flat, start, strides)
    array._mmap, array.filename, array.mode = flat._mmap, flat.filename, flat.mode
    array.offset = place.offset + start
    return array


def _map_bytes_anew(place: InFile, position: int) -> mmap.mmap:
    mapped, _ = place.map_anew()
    mapped.seek(position)
    return mapped


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
