"""A job on its way to a process that inherits nothing: faithful, or not at all.

1. What a new process finds by name (a function, a class of a module it can import) is sent by name;
   what it cannot (a lambda, a local class, a cell of a notebook) is sent itself, by cloudpickle.
2. Tensors are copied, never moved to shared memory behind their owner's back; those that are
   shared stay shared; two views of one storage stay two views of one storage.
3. A memory map is mapped anew, a file that is open for reading is opened anew, at its position.
4. What multiprocessing sends in its own way (locks, queues, values) it sends so.
5. Everything else that would arrive as something else is refused, with the path to it.
"""

from __future__ import annotations

import io
import os
import pickle
import stat
import sys
from collections import ChainMap
from collections.abc import Callable
from multiprocessing import reduction
from types import FunctionType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch
from torch.multiprocessing import reductions as torch_reductions

from .._transport.packing import parts
from .._worker.generators import numpy_if_there
from .._worker.spec import Job
from ..errors import TransportFailed

SEARCHED = 400  # parts of a dataset that are tried one by one to find what cannot be sent


class Unsendable(Exception):
    """This would arrive as something else."""


class SentJob:
    """Stands for a job; where it is unpickled, it is the job.

    Pickled by multiprocessing with the process that gets it: that is when locks and queues can be
    sent. Raises TransportFailed with the path to what cannot.
    """

    def __init__(self, job: Job) -> None:
        self._job = job

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickle.loads, (_send(self._job),)


def _send(job: Job) -> bytes:
    try:
        return _dumps(job)
    except Exception as error:
        for name in ("dataset", "collate_fn", "init_fn"):
            thing = getattr(job, name)
            if (why := _refusal(thing)) is not None:
                path, part, why = _find(thing, name, why)
                raise TransportFailed.cannot_send(path, type(part).__name__, why) from error
        raise TransportFailed.cannot_send(
            "dataset", type(job.dataset).__name__, str(error)
        ) from error


def _dumps(thing: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer).dump(thing)
    return buffer.getvalue()


def _refusal(thing: Any) -> str | None:
    try:
        _dumps(thing)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _find(thing: Any, path: str, why: str) -> tuple[str, Any, str]:
    """Find the smallest part that cannot be sent by itself."""
    left = SEARCHED
    while left > 0:
        for step, part in _parts_sent(thing):
            left -= 1
            if left <= 0:
                break
            if (refusal := _refusal(part)) is not None:
                path, thing, why = path + step, part, refusal
                break
        else:
            break
    return path, thing, why


def _parts_sent(thing: Any) -> list[tuple[str, Any]]:
    """Give what of an object would be pickled, as far as it leaves that to us."""
    kind: Any = type(thing)
    if kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__:
        return parts(thing) if isinstance(thing, list | tuple | dict | set | frozenset) else []
    if kind.__getstate__ is not object.__getstate__:
        try:
            state = thing.__getstate__()
        except Exception:
            return []
        return [(f".{name}", part) for name, part in state.items()] if type(state) is dict else []
    return parts(thing)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO) -> None:
        self._storages: dict[int, _Storage] = {}  # by address
        own: dict[type, Callable[[Any], Any]] = {
            torch.Tensor: self._tensor,
            torch.nn.Parameter: self._tensor,
            io.TextIOWrapper: _text_file,
            io.BufferedReader: _binary_file,
        }
        if (numpy := numpy_if_there()) is not None:
            own[numpy.memmap] = _memory_map
        multi = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        # torch's own way with tensors moves the caller's memory.
        theirs = {kind: way for kind, way in multi.items() if not issubclass(kind, torch.Tensor)}
        self.dispatch_table = ChainMap(own, theirs, cloudpickle.Pickler.dispatch_table)
        super().__init__(file, protocol=5)  # last: it looks for the table

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType) and _found_by_name(obj):
            return NotImplemented
        return super().reducer_override(obj)

    def _tensor(self, tensor: torch.Tensor) -> Any:
        if tensor.device.type != "cpu":
            return torch_reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
        strided = tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)
        if not strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]
        if tensor.is_shared():  # type: ignore[no-untyped-call]
            return torch_reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
        if not tensor.is_leaf:
            raise Unsendable("a tensor with a history of gradients; detach() it")
        memory = tensor.untyped_storage()
        storage = self._storages.get(memory.data_ptr())
        if storage is None:
            storage = self._storages[memory.data_ptr()] = _Storage(memory)
        placed = (tensor.storage_offset(), tensor.size(), tensor.stride())
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        return _place, (storage, tensor.dtype, *placed, tensor.requires_grad, is_parameter)


class _Storage:
    """The memory of tensors, sent once however many look at it."""

    def __init__(self, memory: torch.UntypedStorage) -> None:
        self.memory = memory

    def __reduce__(self) -> Any:
        flat = torch.empty(0, dtype=torch.uint8).set_(self.memory)
        array: Any = flat.numpy()
        return _stored, (pickle.PickleBuffer(array),)


def _stored(data: Any) -> _Storage:
    if not len(data):
        return _Storage(torch.empty(0).untyped_storage())
    own = data if isinstance(data, bytearray) else bytearray(data)
    return _Storage(torch.frombuffer(own, dtype=torch.uint8).untyped_storage())


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


def _found_by_name(thing: Any) -> bool:
    """Say whether a new process finds this very thing under its name."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    if module is None:
        return False
    if module.__name__ == "__main__" and getattr(module, "__spec__", None) is None:
        # multiprocessing runs the script again in the new process; there is none in a notebook
        # or at a prompt.
        path = getattr(module, "__file__", None)
        if path is None or not os.path.isfile(path):
            return False
    found: Any = module
    for name in thing.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is thing


def _text_file(file: io.TextIOWrapper) -> Any:
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
