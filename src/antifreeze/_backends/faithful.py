"""How single things are sent to a clean process: as what they are, or not at all.

1. Tensors are copied, never moved to shared memory behind their owner's back; those that are
   shared stay shared; two views of one storage stay two views of one storage.
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
from . import mappings

_STANDARD = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
SMALL = 64 * 1024  # bytes: of private memory, rather copied than looked up


class Unsendable(Exception):
    """This would arrive as something else."""


def ways(storages: dict[int, _Storage]) -> dict[type, Callable[[Any], Any]]:
    """Give the way to send each kind of thing that has one of its own. `storages`, by address,
    are those that one stream of pickled things has sent so far."""

    def tensor(thing: torch.Tensor) -> Any:
        return _tensor(thing, storages)

    found: dict[type, Callable[[Any], Any]] = {
        torch.Tensor: tensor,
        torch.nn.Parameter: tensor,
        io.TextIOWrapper: _text_file,
        io.BufferedReader: _binary_file,
        mmap.mmap: _map_of_bytes,
        _thread.LockType: lambda lock: (threading.Lock, ()),
        _thread.RLock: lambda lock: (threading.RLock, ()),
    }
    if (numpy := numpy_if_there()) is not None:
        found[numpy.memmap] = _memory_map
    return found


# ---- tensors ------------------------------------------------------------------------------------


def _tensor(tensor: torch.Tensor, storages: dict[int, _Storage]) -> Any:
    if tensor.device.type not in ("cpu", "meta"):
        raise Unsendable(f"a tensor on {tensor.device}; forked workers cannot use it. Call cpu()")
    strided = tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)
    if not strided or tensor.is_meta or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]
    memory = tensor.untyped_storage()
    shared = tensor.is_shared()  # type: ignore[no-untyped-call]
    storage = storages.get(memory.data_ptr())
    if storage is None:
        storage = _Storage(memory)
        if shared or memory.nbytes() >= SMALL:
            storage.in_file = mappings.in_file(memory.data_ptr(), memory.nbytes())
    if shared and storage.in_file is None:
        return torch_reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
    if not tensor.is_leaf:
        raise Unsendable("a tensor with a history of gradients; detach() it")
    storages[memory.data_ptr()] = storage
    placed = (tensor.storage_offset(), tensor.size(), tensor.stride())
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return _place, (storage, tensor.dtype, *placed, tensor.requires_grad, is_parameter)


class _Storage:
    """The memory of tensors, sent once however many look at it."""

    def __init__(self, memory: torch.UntypedStorage) -> None:
        self.memory = memory
        self.in_file: mappings.InFile | None = None

    def __reduce__(self) -> Any:
        if self.in_file is not None:
            return _stored_in_file, (self.in_file,)
        flat = torch.empty(0, dtype=torch.uint8).set_(self.memory)
        array: Any = flat.numpy()
        return _stored, (pickle.PickleBuffer(array),)


def _stored(data: Any) -> _Storage:
    if not len(data):
        return _Storage(torch.empty(0).untyped_storage())
    own = bytearray(data) if isinstance(data, bytes) else data
    return _Storage(torch.frombuffer(own, dtype=torch.uint8).untyped_storage())


def _stored_in_file(place: mappings.InFile) -> _Storage:
    mapped, skipped = place.map_anew()
    tensor = torch.frombuffer(mapped, dtype=torch.uint8, count=place.size, offset=skipped)
    return _Storage(tensor.untyped_storage())


def _place(
    storage: _Storage,
    dtype: torch.dtype,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    is_parameter: bool,
) -> torch.Tensor:
    tensor = torch.empty(0, dtype=dtype).set_(storage.memory, offset, size, stride)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


# ---- files and maps of files --------------------------------------------------------------------


def _text_file(file: io.TextIOWrapper) -> Any:
    for name in _STANDARD:
        if file is getattr(sys, name):
            return getattr, (sys, name)
    position = file.tell()
    path = _path_of(file.buffer)  # type: ignore[arg-type]
    return _open_text, (path, position, file.encoding, file.errors)


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


def _memory_map(array: Any) -> Any:
    numpy = numpy_if_there()
    base = array
    while isinstance(base.base, numpy.memmap):
        base = base.base
    if getattr(base, "_mmap", None) is None or base.filename is None:
        return array.__reduce_ex__(5)  # made from a map, and no map itself
    if base.mode == "c" and mappings.is_changed(base.__array_interface__["data"][0]):
        return numpy.array, (numpy.array(array),)  # what was changed is in no file
    if any(step < 0 for step in array.strides):
        raise Unsendable("a memory map that is read backwards")
    mode = "r+" if base.mode == "w+" else base.mode
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return _map_anew, (
        os.path.abspath(os.fspath(base.filename)),
        mode,
        base.offset + start,
        array.dtype,
        array.shape,
        array.strides,
    )


def _map_anew(
    path: str, mode: str, offset: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Any:
    numpy = numpy_if_there()
    if 0 in shape:
        return numpy.empty(shape, dtype)
    reach = [(count - 1) * step for count, step in zip(shape, strides, strict=True)]
    flat = numpy.memmap(path, dtype, mode, offset, (sum(reach) // dtype.itemsize + 1,))
    return numpy.lib.stride_tricks.as_strided(flat, shape, strides, subok=True)


def _map_of_bytes(mapped: mmap.mmap) -> Any:
    numpy = numpy_if_there()
    if numpy is None:
        raise Unsendable("a memory map")
    look = numpy.frombuffer(mapped, numpy.uint8)
    place = mappings.in_file(look.__array_interface__["data"][0], len(mapped))
    if place is None:
        raise Unsendable("a memory map of no file, or one that was changed")
    return _map_bytes_anew, (place, mapped.tell())


def _map_bytes_anew(place: mappings.InFile, position: int) -> mmap.mmap:
    mapped, _ = place.map_anew()
    mapped.seek(position)
    return mapped
