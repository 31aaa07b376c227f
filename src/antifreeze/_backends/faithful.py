"""How single things are sent to a clean process: as what they are, or not at all.

1. Tensors and arrays are copied, never moved to shared memory behind their owner's back; what is
   shared stays shared; two views of one storage stay two views of one storage. (A large one cannot
   grow there: it lies in memory that all workers map.)
2. What lies in a file (memory maps, of numpy, torch or `mmap`) is mapped anew, not copied; a file
   that is open for reading is opened anew, at its position.
3. A lock of threads arrives free: those who hold it are not there.
4. Everything else that would arrive as something else raises Unsendable.
"""

from __future__ import annotations

import _thread
import io
import mmap
import os
import pickle
import stat
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing import reductions as torch_reductions

from .._worker.generators import numpy_if_there
from .mappings import Areas, InFile

_STANDARD = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
LARGEST_TEXT = 64 * 1024 * 1024  # bytes: to see how its lines end, a text file is read


class Unsendable(Exception):
    """This would arrive as something else."""


def ways() -> dict[type, Callable[[Any], Any]]:
    """Give the way to send each kind of thing that has one of its own, for one stream of pickled
    things: what it has sent is not sent again."""
    memory = _Memory()
    found: dict[type, Callable[[Any], Any]] = {
        torch.Tensor: memory.tensor,
        torch.nn.Parameter: memory.tensor,
        torch.UntypedStorage: memory.untyped,
        torch.storage.TypedStorage: memory.typed,
        io.TextIOWrapper: _text_file,
        io.BufferedReader: _binary_file,
        mmap.mmap: memory.map_of_bytes,
        _thread.LockType: lambda lock: (threading.Lock, ()),
        _thread.RLock: lambda lock: (threading.RLock, ()),
    }
    if (numpy := numpy_if_there()) is not None:
        found[numpy.ndarray] = memory.array
        found[numpy.memmap] = memory.memory_map
    return found


# ---- memory --------------------------------------------------------------------------------------


class _Memory:
    """What one stream has sent of this process's memory."""

    def __init__(self) -> None:
        self._areas = Areas()
        self._storages: dict[int, _Storage] = {}  # by address

    # -- torch

    def tensor(self, tensor: torch.Tensor) -> Any:
        if tensor.device.type not in ("cpu", "meta"):
            raise Unsendable(
                f"a tensor on {tensor.device}; forked workers cannot use it. Call cpu()"
            )
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_meta
        strided = tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)
        if not (plain and strided) or tensor.is_conj() or tensor.is_neg():
            return tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]
        if not tensor.is_leaf:
            raise Unsendable("a tensor with a history of gradients; detach() it")
        storage = self._storage(tensor.untyped_storage())
        if storage is None:
            return torch_reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
        placed = (tensor.storage_offset(), tensor.size(), tensor.stride())
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        return _place, (storage, tensor.dtype, *placed, tensor.requires_grad, is_parameter)

    def untyped(self, memory: torch.UntypedStorage) -> Any:
        if memory.device.type != "cpu":
            raise Unsendable(f"memory of {memory.device}; forked workers cannot use it")
        storage = self._storage(memory)
        if storage is None:
            return torch_reductions.reduce_storage(memory)  # type: ignore[no-untyped-call]
        return _memory_of, (storage,)

    def typed(self, typed: Any) -> Any:
        return _typed, (typed._untyped_storage, typed.dtype)

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
            storage = self._storages[address] = _Storage(memory, in_file)
        return storage

    # -- numpy and mmap

    def array(self, array: Any) -> Any:
        if array.flags.owndata or not array.size:
            return array.__reduce_ex__(5)
        low, high = _bounds(array)
        place = self._areas.in_file(low, high - low)
        if place is not None:
            start = array.__array_interface__["data"][0] - low
            return _array_in_file, (place, start, array.dtype, array.shape, array.strides)
        if self._areas.is_shared(low):
            raise Unsendable("an array in memory that is shared with other processes")
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


# ---- files ---------------------------------------------------------------------------------------


def _text_file(file: io.TextIOWrapper) -> Any:
    for name in _STANDARD:
        if file is getattr(sys, name):
            return getattr, (sys, name)
    path = _path_of(file.buffer)  # type: ignore[arg-type]
    if os.path.getsize(path) > LARGEST_TEXT:
        raise Unsendable("a large text file: nobody knows how it translates the ends of lines")
    with open(path, "rb") as content:
        if b"\r" in content.read():
            raise Unsendable("a text file: nobody knows how it translates the ends of lines")
    return _open_text, (path, file.tell(), file.encoding, file.errors)


def _binary_file(file: io.BufferedReader) -> Any:
    return _open_binary, (_path_of(file), file.tell())


def _path_of(file: io.BufferedReader) -> str:
    """Give the path under which a file that is open for reading can be opened anew."""
    if not isinstance(file, io.BufferedReader) or file.closed:
        raise Unsendable("a file that is not open for reading only")
    path = file.raw.name if isinstance(file.raw, io.FileIO) else file.name
    there = os.fstat(file.fileno())
    if not stat.S_ISREG(there.st_mode) or not isinstance(path, str | bytes):
        raise Unsendable("a file without a path")
    path = os.path.abspath(os.fsdecode(path))
    try:
        same = os.path.samestat(os.stat(path), there)
    except OSError:
        same = False
    if not same:
        raise Unsendable(f"a file that is no longer at {path}")
    return path


def _open_text(path: str, position: int, encoding: str, errors: str) -> Any:
    file = open(path, encoding=encoding, errors=errors)  # noqa: SIM115 - it is the dataset's
    file.seek(position)
    return file


def _open_binary(path: str, position: int) -> Any:
    file = open(path, "rb")  # noqa: SIM115 - it is the dataset's
    file.seek(position)
    return file
