"""Everything a batch may be made of, by name: one function each that makes it afresh."""

import collections
import datetime
import decimal
import enum
import fractions
import functools
import operator
import pathlib
import re
import threading
import types
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from .programs import as_list


class Named(NamedTuple):
    """A batch with names."""

    image: torch.Tensor
    label: str


@dataclass
class Record:
    """A batch as a dataclass, with a field that is no argument."""

    rows: torch.Tensor
    name: str
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slotted:
    """A batch without a `__dict__`."""

    rows: torch.Tensor
    count: int


class Colour(enum.Enum):
    """An enumeration: its members must come back as themselves."""

    RED = 1
    BLUE = "b"


class Bits(enum.Flag):
    """A flag, whose combinations are members too."""

    LOW = 1
    HIGH = 2


class Plain:
    """An object of the program's own, with nothing special about it."""

    def __init__(self, tensor: torch.Tensor, label: str) -> None:
        self.tensor = tensor
        self.label = label


class WithState:
    """An object that says itself how it travels."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lock = threading.Lock()

    def __getstate__(self) -> int:
        return self.number

    def __setstate__(self, number: int) -> None:
        self.__init__(number)

    def __repr__(self) -> str:
        return f"WithState({self.number})"


class LabelledDict(dict[str, Any]):
    """A dict with attributes, as tokenizers return."""

    label = ""


class LabelledList(list[Any]):
    """A list with attributes."""

    label = ""


class Tagged(torch.Tensor):
    """A tensor subclass whose instances carry a tag."""

    tag: str


class Dimensioned(np.ndarray):
    """An array subclass."""


def _tagged() -> torch.Tensor:
    tensor = torch.arange(4.0).as_subclass(Tagged)
    tensor.tag = "left"
    return tensor


def _module() -> torch.nn.Module:
    module = torch.nn.Linear(2, 3)
    for weight in module.parameters():
        torch.nn.init.constant_(weight, 0.5)
    return module


def _labelled(kind: type, content: Any) -> Any:
    value = kind(content)
    value.label = "kept"
    return value


def _read_only() -> np.ndarray:
    array = np.arange(5)
    array.flags.writeable = False
    return array


def _structured() -> np.ndarray:
    kind = np.dtype([("x", "<i4"), ("y", ">f8"), ("name", "U5"), ("grid", "u1", (2, 2))])
    return np.array([(1, 2.5, "one", [[1, 2], [3, 4]])] * 2, dtype=kind)


def _palette_image() -> Image.Image:
    image = Image.new("P", (4, 3))
    image.putpalette([value % 256 for value in range(768)])
    image.putpixel((1, 1), 7)
    return image


def _gradient(mode: str) -> Image.Image:
    rows = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    return Image.fromarray(rows).convert(mode)


TENSORS: dict[str, Callable[[], Any]] = {
    **{
        f"tensor_{dtype}".replace("torch.", ""): functools.partial(torch.ones, 3, 2, dtype=dtype)
        for dtype in (
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.uint16,
            torch.uint32,
            torch.uint64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
            torch.complex64,
            torch.complex128,
        )
    },
    "float8_e4m3fn": lambda: torch.arange(6.0).to(torch.float8_e4m3fn),
    "float8_e5m2": lambda: torch.arange(6.0).to(torch.float8_e5m2),
    "not_a_number": lambda: torch.tensor([float("nan"), float("inf"), -0.0]),
    "zero_size": lambda: torch.empty(0, 3),
    "zero_size_inside": lambda: {"none": torch.empty(2, 0), "some": torch.ones(2)},
    "zero_dim": lambda: torch.tensor(5),
    "zero_dim_bool": lambda: torch.tensor(True),
    "large": lambda: torch.arange(300_000, dtype=torch.float32),
    "huge": lambda: torch.arange(5_000_000),
    "many": lambda: [torch.full((7,), number) for number in range(200)],
    "strided_view": lambda: torch.arange(24).reshape(4, 6)[:, ::2],
    "transposed": lambda: torch.arange(24).reshape(4, 6).t(),
    "offset_view": lambda: torch.arange(24)[7:11],
    "expanded": lambda: torch.arange(3).expand(4, 3),
    "flipped_from_numpy": lambda: torch.from_numpy(np.arange(6)[::-1].copy()),
    "channels_last": lambda: (
        torch.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    ),
    "sparse_coo": lambda: torch.eye(3).to_sparse(),
    "sparse_coo_uncoalesced": lambda: torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,)),
    "sparse_csr": lambda: torch.eye(3).to_sparse_csr(),
    "sparse_csc": lambda: torch.eye(3).to_sparse_csc(),
    "sparse_bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "sparse_bsc": lambda: torch.eye(4).to_sparse_bsc((2, 2)),
    "nested_strided": lambda: torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)]),
    "nested_jagged": lambda: torch.nested.nested_tensor(
        [torch.ones(2, 4), torch.zeros(3, 4)], layout=torch.jagged
    ),
    "leaf_that_requires_grad": lambda: torch.arange(3.0).requires_grad_(),
    "parameter": lambda: torch.nn.Parameter(torch.arange(3.0)),
    "frozen_parameter": lambda: torch.nn.Parameter(torch.arange(3.0), requires_grad=False),
    "subclass_with_attribute": _tagged,
    "meta": lambda: torch.empty(3, 2, device="meta"),
    "packed_sequence": lambda: torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)]),
    "module": _module,
    "size_dtype_device": lambda: (torch.Size([1, 2]), torch.float32, torch.device("cpu")),
}

ARRAYS: dict[str, Callable[[], Any]] = {
    "array_int": lambda: np.arange(6).reshape(2, 3),
    "array_zero_dim": lambda: np.array(2.5),
    "array_zero_size": lambda: np.empty((0, 4), dtype=np.float16),
    "array_large": lambda: np.arange(300_000, dtype=np.float32),
    "array_fortran": lambda: np.asfortranarray(np.arange(12).reshape(3, 4)),
    "array_view": lambda: np.arange(24).reshape(4, 6)[::2, ::-1],
    "array_structured": _structured,
    "array_record": lambda: np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "array_object": lambda: np.array([1, "two", None, [3]], dtype=object),
    "array_of_tensors": lambda: np.array([None, {"x": 1}], dtype=object),
    "array_masked": lambda: np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False]),
    "array_strings": lambda: np.array(["a", "longer"]),
    "array_bytes": lambda: np.array([b"a", b"bc"]),
    "array_dates": lambda: np.array(["2024-01-01", "NaT"], dtype="datetime64[D]"),
    "array_durations": lambda: np.array([1, 2], dtype="timedelta64[ms]"),
    "array_complex": lambda: np.array([1 + 2j]),
    "array_bool": lambda: np.array([True, False]),
    "array_void": lambda: np.zeros(2, dtype="V5"),
    "array_read_only": _read_only,
    "array_subclass": lambda: np.arange(3).view(Dimensioned),
    "scalars": lambda: [
        np.float32(1.5),
        np.int8(-3),
        np.bool_(True),
        np.str_("s"),
        np.bytes_(b"b"),
    ],
    "scalar_date": lambda: np.datetime64("2024-05-06T07:08"),
    "scalar_record": lambda: _structured()[0],
    "numpy_dtype": lambda: np.dtype("float32"),
}

OBJECTS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "none_fields": lambda: {"image": torch.ones(2), "mask": None, "deep": [None, (None,)]},
    "nested_dict": lambda: {"a": {"b": [torch.ones(1), {"c": (1, "x", 2.5)}]}, 3: "int key"},
    "named_tuple": lambda: Named(torch.ones(2), "cat"),
    "nested_named_tuple": lambda: {"pair": [Named(torch.ones(2), "cat")]},
    "dataclass": lambda: Record(torch.ones(2), "n", {"more": torch.zeros(1)}),
    "slotted_dataclass": lambda: Slotted(torch.ones(2), 2),
    "plain_object": lambda: Plain(torch.ones(2), "n"),
    "object_with_state": lambda: WithState(5),
    "namespace": lambda: types.SimpleNamespace(x=torch.ones(1), y="z"),
    "many_megabytes": lambda: {"bytes": b"ab" * 8_000_000, "rows": list(range(20_000))},
    "dict_subclass": lambda: _labelled(LabelledDict, {"ids": torch.ones(2)}),
    "list_subclass": lambda: _labelled(LabelledList, [torch.ones(2)]),
    "ordered_dict": lambda: collections.OrderedDict(b=torch.ones(1), a=2),
    "default_dict": lambda: collections.defaultdict(list, {"x": [1]}),
    "counter": lambda: collections.Counter("banana"),
    "deque": lambda: collections.deque([1, torch.ones(1)], maxlen=4),
    "tuple": lambda: (1, (2, ())),
    "empty_containers": lambda: [[], {}, (), set(), "", b""],
    "strings": lambda: ["", "plain", "ünïcödé \U0001f600", "a" * 100_000],
    "bytes": lambda: {"b": b"\x00\xff" * 50_000, "array": bytearray(b"abc")},
    "sets": lambda: {"set": {1, "two", (3,)}, "frozen": frozenset({1, 2})},
    "numbers": lambda: [True, 10**40, -(2**63), 1.5, float("inf"), 3 + 4j],
    "decimal": lambda: decimal.Decimal("1.10"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "enum": lambda: [Colour.RED, Colour.BLUE, Bits.LOW | Bits.HIGH],
    "dates": lambda: datetime.datetime(2024, 5, 6, tzinfo=datetime.UTC),
    "uuid": lambda: uuid.UUID(int=5),
    "path": lambda: pathlib.PurePosixPath("/a/b"),
    "pattern": lambda: re.compile("a+", re.IGNORECASE),
    "range_and_slice": lambda: [range(1, 9, 2), slice(1, None, 3)],
    "ellipsis": lambda: [..., NotImplemented],
    "class": lambda: [Plain, int, torch.Tensor],
    "function": lambda: [as_list, functools.partial(operator.add, 2)],
    "image_rgb": lambda: _gradient("RGB"),
    "image_grey": lambda: _gradient("L"),
    "image_alpha": lambda: _gradient("RGBA"),
    "image_bits": lambda: _gradient("1"),
    "image_float": lambda: _gradient("F"),
    "image_palette": _palette_image,
    "images_in_dict": lambda: {"image": _gradient("RGB"), "boxes": torch.ones(2, 4)},
    "exception": lambda: ValueError("a value, not a failure"),
}

# torch drops the conjugate and negative bits on the way: silently wrong values.
BIT_VIEWS: dict[str, Callable[[], torch.Tensor]] = {
    "conjugate_view": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negative_view": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
}

# torch drops the scale of a quantized tensor, and any question about it is an internal error.
QUANTIZED: dict[str, Callable[[], torch.Tensor]] = {
    "quantized": lambda: torch.quantize_per_tensor(torch.arange(4.0), 0.5, 1, torch.quint8),
    "quantized_by_channel": lambda: torch.quantize_per_channel(
        torch.ones(2, 3), torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, torch.qint8
    ),
}

# Those with a test of their own that says what may differ.
SPECIAL: dict[str, Callable[[], Any]] = {
    "array_big_endian": lambda: np.arange(3, dtype=">i4"),
    "not_a_leaf": lambda: {
        "image": torch.ones(2),
        "score": torch.arange(3.0).requires_grad_() * 2,
    },
}

# What torch delivers faithfully, and everything.
FAITHFUL = {**TENSORS, **ARRAYS, **OBJECTS}
KINDS = {**FAITHFUL, **BIT_VIEWS, **QUANTIZED, **SPECIAL}
