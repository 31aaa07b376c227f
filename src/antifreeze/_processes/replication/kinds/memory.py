"""Memory on its way to a clean process: what shares it here shares it there.

Arrays, tensors and buffers (`bytearray`, `array.array`, those of ctypes) that look at one piece of
memory are sent as that piece, once, and as views of it. An array leads to the owner by its bases. A
tensor does not: its owner is found by the address, among what else was sent. An owner that comes
after such a tensor is noted in `late`: what was pickled then does not count, and all is pickled
again, with these owners known from the start.
"""

from __future__ import annotations

import array as arrays
import bisect
import ctypes
import mmap
import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ...._loading.rng_adapters import numpy_if_there
from ...._torch_internals import share_storage, share_tensor, untyped
from ...._transport.sparse_tensors import reduce_sparse
from ...._transport.tensors import is_named, take_names
from ..mapped_memory import Areas, InFile
from ..unsendable import Unsendable

_BUFFERS = (bytearray, arrays.array)
# Beginnings of what torch says of quantized and of compressed sparse tensors.
_WARNINGS = (
    "TypedStorage is deprecated",
    "torch.quantize_per_tensor, ",
    "Sparse [A-Z]+ tensor support is in beta",
)
_OF_CTYPES = (ctypes.Array, ctypes.Structure, ctypes.Union)


def _shared(way: Any, thing: Any) -> Any:
    if way is None:
        raise Unsendable("shared memory, which this torch does not send in a way we know")
    return way(thing)


class _Piece(NamedTuple):
    """Memory that is sent as one thing."""

    low: int
    high: int
    kind: str
    owner: Any  # what others can be made views of, where it arrives; None: nothing


class OwnersMatter(BaseException):
    """It is to be pickled again, with these owners of memory known from the start.

    No Exception: nobody who tries whether something can be sent may take it for a refusal.
    """

    def __init__(self, owners: Sequence[Any]) -> None:
        super().__init__(owners)
        self.owners = owners


class Memory:
    """What one stream has sent of this process's memory."""

    def __init__(self, *, copies: bool = False, known: Sequence[Any] = ()) -> None:
        """`copies`: what shares memory with a thing of another kind is sent as a copy, as pickle
        would. `known`: owners of memory that are part of what is sent."""
        self._copies, self._again = copies, bool(known)
        self._areas = Areas()
        self._storages: dict[int, _Storage] = {}  # by address
        self._pieces: list[_Piece] = []  # sorted
        self._lows: list[int] = []  # where these begin
        self.late: list[Any] = []  # owners of memory that came after a tensor that looks at it
        for owner in known:
            self._own(owner)

    def ways(self) -> dict[type, Callable[[Any], Any]]:
        """Return how things that hold memory are sent."""
        found: dict[type, Callable[[Any], Any]] = {
            torch.Tensor: self.tensor,
            torch.nn.Parameter: self.tensor,
            torch.UntypedStorage: self.untyped,
            torch.storage.TypedStorage: self.typed,
            mmap.mmap: self.map_of_bytes,
            arrays.array: self.array_of_python,
        }
        if (numpy := numpy_if_there()) is not None:
            found[numpy.ndarray] = found[numpy.recarray] = self.array
            found[numpy.memmap] = self.memory_map
            found[numpy.ma.MaskedArray] = _reduce_masked
        return found

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
            made: Any = reduce_sparse(tensor) or tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]
            return _make_quietly, made[:2], *made[2:]
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
        """Return what stands for some memory; None: torch shares it, in its own way."""
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
            over = None
            if in_file is None:
                over = self._sent_owner(address, address + memory.nbytes())
            storage = self._storages[address] = _Storage(memory, in_file, over)
            if over is None:
                self._claim(address, address + memory.nbytes(), "a tensor", storage)
        if storage.memory.nbytes() != memory.nbytes():
            raise Unsendable("two tensors that share a part of their memory")
        return storage

    # -- pieces of memory

    def _claim(self, low: int, high: int, kind: str, owner: Any = None) -> None:
        """Note memory that is sent as one thing. Raises Unsendable if a part of it was sent as
        another: they would no longer share it."""
        place = bisect.bisect_right(self._lows, low)
        for other in self._pieces[max(0, place - 1) : place + 1]:
            if other.low < high and low < other.high:
                if other.owner is owner is not None or self._copies:
                    return
                is_owner = owner is not None and type(owner) is not _Storage
                if is_owner and not self._again and type(other.owner) is _Storage:
                    self.late.append(owner)
                    return
                raise Unsendable(f"{kind} in memory that {other.kind} in the dataset shares")
        self._lows.insert(place, low)
        self._pieces.insert(place, _Piece(low, high, kind, owner))

    def _sent_owner(self, low: int, high: int) -> tuple[Any, int] | None:
        """Return what was sent of which some memory is a part, and where in it that begins."""
        place = bisect.bisect_right(self._lows, low) - 1
        if place < 0:
            return None
        piece = self._pieces[place]
        if piece.owner is None or high > piece.high:
            return None
        return piece.owner, low - piece.low

    def _own(self, owner: Any) -> None:
        """Note memory that a thing owns, which is sent."""
        if type(owner) is bytearray:
            self.buffer(owner)
        elif type(owner) is arrays.array:
            self.array_of_python(owner)
        else:
            self._claim(*_bounds(owner), "an array", owner)

    def buffer(self, buffer: bytearray | arrays.array[Any]) -> None:
        """Note memory that pickle sends by itself."""
        if len(buffer) and (numpy := numpy_if_there()) is not None:
            look = numpy.frombuffer(buffer, numpy.uint8)
            self._claim(*_bounds(look), f"a {type(buffer).__name__}", buffer)

    def array_of_python(self, array: arrays.array[Any]) -> Any:
        self.buffer(array)
        return array.__reduce_ex__(5)

    def copy(self, array: Any) -> None:
        """Note an array that is sent by its content. Raises Unsendable."""
        if array.size and array.flags.writeable:
            self._claim(*_bounds(array), f"a {type(array).__name__}")

    # -- numpy and mmap

    def array(self, array: Any) -> Any:
        if not array.size:
            return array.__reduce_ex__(5)
        if array.dtype.hasobject:
            return self._objects(array)
        low, high = _bounds(array)
        looks = array.shape, array.strides, array.flags.writeable, type(array)
        if array.flags.owndata:
            over = self._sent_owner(low, high)
            if over is not None and type(over[0]) is _Storage and array.flags.forc:
                return _view, (*over, array.dtype, *looks)
            self._claim(low, high, "an array", array if array.flags.forc else None)
            return array.__reduce_ex__(5)
        start = array.__array_interface__["data"][0] - low
        place = self._areas.in_file(low, high - low)
        if place is not None:
            return _array_in_file, (place, start, array.dtype, array.shape, array.strides)
        if self._areas.is_shared(low):
            raise Unsendable("an array in memory that is shared with other processes")
        over = self._owner(array, low) or self._sent_owner(low, high)
        if over is not None:
            return _view, (over[0], over[1] + start, array.dtype, *looks)
        self.copy(array)
        if array.nbytes > 2 * (high - low):
            raise Unsendable("an array that shows the same memory many times")
        return array.__reduce_ex__(5)

    def _objects(self, array: Any) -> Any:
        """Send an array of references, or a view of one."""
        if array.flags.owndata:
            self._claim(*_bounds(array), "an array")
            return array.__reduce_ex__(5)
        if array.dtype != object or (root := _root(array)) is None or root.dtype != object:
            self.copy(array)
            return array.__reduce_ex__(5)
        skipped = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        looks = array.shape, array.strides, array.flags.writeable
        return _view_of_objects, (root, skipped // array.itemsize, *looks)

    def _owner(self, array: Any, low: int) -> tuple[Any, int] | None:
        """Return the owner of an array's memory, and where in it the array begins, if its bases
        lead to one that can be sent."""
        numpy = numpy_if_there()
        if (root := _root(array)) is not None and not root.dtype.hasobject:
            return root, low - root.__array_interface__["data"][0]
        base = array
        while isinstance(base, numpy.ndarray) and base.base is not None:
            base = base.base.base if type(base.base).__name__ == "DummyArray" else base.base
        if isinstance(base, torch.Tensor):
            memory = base.untyped_storage()
            return (self._storage(memory), low - memory.data_ptr()) if memory.nbytes() else None
        owner = base.obj if type(base) is memoryview else base
        if type(owner) in _BUFFERS or isinstance(owner, _OF_CTYPES):
            return owner, low - numpy.frombuffer(owner, numpy.uint8).__array_interface__["data"][0]
        return None

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


def _reduce_masked(array: Any) -> Any:
    state = dict(vars(array))  # the mask, and whether it is hard or shared
    return _masked, (array.data,), state, None, None, _fill_masked


def _root(array: Any) -> Any:
    """Return the array whose memory this one shows, if it is one piece."""
    root, kinds = array, (numpy_if_there().ndarray, numpy_if_there().recarray)
    while (base := root.base) is not None:
        if type(base).__name__ == "DummyArray":  # what `as_strided` puts between
            base = base.base
        if type(base) not in kinds:
            break
        root = base
    return root if root.flags.owndata and root.flags.forc else None


def _bounds(array: Any) -> tuple[int, int]:
    """Return the addresses of an array's first byte, and of the one behind its last."""
    low = array.__array_interface__["data"][0]
    high = low + array.itemsize
    for count, step in zip(array.shape, array.strides, strict=True):
        reach = (count - 1) * step
        low, high = (low + reach, high) if step < 0 else (low, high + reach)
    return low, high


class _Storage:
    """The memory of tensors, sent once however many look at it."""

    def __init__(
        self,
        memory: torch.UntypedStorage,
        in_file: InFile | None = None,
        over: tuple[Any, int] | None = None,
    ) -> None:
        """`over`: what owns the memory, if that is sent as well, and where in it this begins."""
        self.memory, self._in_file, self._over = memory, in_file, over

    def __reduce__(self) -> Any:
        if self._over is not None:
            return _stored_over, (*self._over, self.memory.nbytes())
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


def _stored_over(owner: Any, start: int, size: int) -> _Storage:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may be read-only, as it was
        flat = torch.from_numpy(_bytes_of(owner)[start : start + size])
    return _Storage(flat.untyped_storage())


def _bytes_of(owner: Any) -> Any:
    """Return the memory of an owner as an array of bytes."""
    numpy = numpy_if_there()
    if isinstance(owner, _Storage):
        return torch.empty(0, dtype=torch.uint8, device="cpu").set_(owner.memory).numpy()
    if isinstance(owner, numpy.ndarray):
        return numpy.asarray(owner).ravel("K").view(numpy.uint8)
    return numpy.frombuffer(owner, numpy.uint8)


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


def _make_quietly(make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Make a tensor of a kind that torch warns of whoever makes one: the program was warned."""
    with warnings.catch_warnings():
        for message in _WARNINGS:
            warnings.filterwarnings("ignore", message, UserWarning)
        return make(*args)


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
    owner: Any,
    start: int,
    dtype: Any,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    writeable: bool,
    kind: Any,
) -> Any:
    view = kind.__new__(kind, shape, dtype, _bytes_of(owner), start, strides)
    if not writeable:
        view.flags.writeable = False
    return view


def _view_of_objects(
    root: Any, skipped: int, shape: tuple[int, ...], strides: tuple[int, ...], writeable: bool
) -> Any:
    strided: Any = numpy_if_there().lib.stride_tricks.as_strided
    flat = root.ravel("K")[skipped:]
    return strided(flat, shape, strides, writeable=writeable)


def _masked(data: Any) -> Any:
    return data.view(numpy_if_there().ma.MaskedArray)


def _fill_masked(array: Any, state: dict[str, Any]) -> None:
    vars(array).update(state)


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
