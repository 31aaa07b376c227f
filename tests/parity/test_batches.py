"""Any batch torch can deliver is delivered: the same values, types, dtypes, shapes, identities."""

import collections
import datetime
import decimal
import enum
import fractions
import functools
import operator
import pathlib
import pickle
import re
import sys
import threading
import types
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from .observe import LOADERS, LoaderClass, describe, whole_text
from .programs import MapRows, as_list
from .scripts import run_script

# torch's own notices about kinds of tensors it calls beta or old; they are no news here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per"),
]


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
        self.__init__(number)  # type: ignore[misc]

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

KINDS = {**TENSORS, **ARRAYS, **OBJECTS}


@dataclass
class Maker:
    """A dataset each of whose items is a batch made by the function of a name."""

    kind: str
    length: int = 2

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return KINDS[self.kind]()


def delivered(loader_class: LoaderClass, kind: str, workers: int = 1) -> list[Any]:
    """Let a loader deliver batches of a kind just as they were made."""
    return list(loader_class(Maker(kind), batch_size=None, collate_fn=as_list, num_workers=workers))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_worker_delivers_what_was_made(kind: str, loader_class: LoaderClass) -> None:
    made = describe(KINDS[kind]())
    batches = delivered(loader_class, kind)
    assert [describe(batch) for batch in batches] == [made, made]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_without_workers_what_was_made_is_delivered(kind: str, loader_class: LoaderClass) -> None:
    made = describe(KINDS[kind]())
    assert [describe(batch) for batch in delivered(loader_class, kind, workers=0)] == [made, made]


@pytest.mark.parametrize("kind", ["transposed", "channels_last", "zero_size", "offset_view"])
def test_a_dense_tensor_keeps_its_strides(kind: str, loader_class: LoaderClass) -> None:
    made = KINDS[kind]()
    for batch in delivered(loader_class, kind):
        assert batch.stride() == made.stride()


@pytest.mark.parametrize("kind", ["array_fortran", "array_int"])
def test_an_array_keeps_its_memory_order(kind: str, loader_class: LoaderClass) -> None:
    made = KINDS[kind]()
    for batch in delivered(loader_class, kind):
        assert batch.flags.f_contiguous == made.flags.f_contiguous
        assert batch.flags.c_contiguous == made.flags.c_contiguous


def test_an_array_of_the_other_byte_order_keeps_its_values(loader_class: LoaderClass) -> None:
    # numpy's own pickling may turn the order to the machine's; the numbers must not change.
    for batch in delivered(loader_class, "array_big_endian"):
        assert batch.tolist() == [0, 1, 2]
        assert batch.dtype.newbyteorder("=") == np.int32


def test_an_image_can_still_be_worked_with(loader_class: LoaderClass) -> None:
    image = delivered(loader_class, "image_palette")[0]
    assert image.convert("RGB").resize((8, 6)).size == (8, 6)


@pytest.mark.parametrize("collate", [None, as_list], ids=["default", "own"])
@pytest.mark.parametrize("workers", [1, 2])
def test_collated_batches_are_torchs(collate: Any, workers: int, loader_class: LoaderClass) -> None:
    def batches(which: LoaderClass) -> list[object]:
        loader = which(MapRows(7, "dict"), batch_size=3, collate_fn=collate, num_workers=workers)
        return [describe(batch) for batch in loader]

    assert batches(loader_class) == batches(LOADERS["torch"])


# --- what torch loses or hangs on, and we deliver ---------------------------------------------

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
KINDS.update(BIT_VIEWS)
KINDS.update(QUANTIZED)
KINDS["array_big_endian"] = lambda: np.arange(3, dtype=">i4")
KINDS["not_a_leaf"] = lambda: {
    "image": torch.ones(2),
    "score": torch.arange(3.0).requires_grad_() * 2,
}


@pytest.mark.parametrize("kind", sorted(BIT_VIEWS))
def test_conjugate_and_negative_views_keep_their_values(kind: str, ours: LoaderClass) -> None:
    made = BIT_VIEWS[kind]()
    for batch in delivered(ours, kind):
        assert batch.dtype is made.dtype
        assert batch.tolist() == made.tolist()


@pytest.mark.parametrize("kind", sorted(QUANTIZED))
def test_quantized_tensors_keep_their_scale(kind: str, ours: LoaderClass) -> None:
    made = describe(QUANTIZED[kind]())
    assert [describe(batch) for batch in delivered(ours, kind)] == [made, made]


def test_a_tensor_out_of_a_graph_is_delivered(ours: LoaderClass) -> None:
    for batch in delivered(ours, "not_a_leaf"):
        assert batch["score"].tolist() == [0.0, 2.0, 4.0]
        # The graph stays in the worker; here the tensor is a leaf.
        assert batch["score"].is_leaf
        assert not batch["image"].requires_grad


@dataclass
class Windows:
    """A dataset whose samples are small views of one huge tensor."""

    source: torch.Tensor

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.source[index * 10 : index * 10 + 10]


def test_a_view_travels_without_its_huge_storage(ours: LoaderClass) -> None:
    windows = Windows(torch.arange(4_000_000))
    for index, view in enumerate(ours(windows, batch_size=None, num_workers=1)):
        assert view.tolist() == list(range(index * 10, index * 10 + 10))
        assert view.untyped_storage().nbytes() < 4096
        assert len(pickle.dumps(view)) < 4096


# --- identity ---------------------------------------------------------------------------------


def _same_twice(samples: list[int]) -> dict[str, Any]:
    tensor = torch.full((50,), samples[0])
    array = np.full(50, samples[0])
    shared = [tensor, array]
    loop: list[Any] = []
    loop.append(loop)
    return {
        "tensor": tensor,
        "again": tensor,
        "arrays": (array, array),
        "lists": (shared, shared),
        "loop": loop,
    }


def test_one_object_in_two_places_stays_one_object(loader_class: LoaderClass) -> None:
    loader = loader_class(MapRows(2), batch_size=1, num_workers=1, collate_fn=_same_twice)
    for number, batch in enumerate(loader):
        assert batch["tensor"] is batch["again"]
        assert batch["arrays"][0] is batch["arrays"][1]
        assert batch["lists"][0] is batch["lists"][1]
        assert batch["lists"][0][0] is batch["tensor"]
        assert batch["loop"][0] is batch["loop"]
        batch["tensor"].add_(1)
        assert batch["again"].tolist() == [number + 1] * 50


def test_members_of_an_enumeration_are_the_same_objects(loader_class: LoaderClass) -> None:
    for batch in delivered(loader_class, "enum"):
        assert batch[0] is Colour.RED
        assert batch[1] is Colour.BLUE


def test_classes_come_back_as_the_same_classes(loader_class: LoaderClass) -> None:
    assert type(delivered(loader_class, "dataclass")[0]) is Record
    assert type(delivered(loader_class, "named_tuple")[0]) is Named
    assert type(delivered(loader_class, "subclass_with_attribute")[0]) is Tagged
    assert delivered(loader_class, "class")[0] == [Plain, int, torch.Tensor]
    assert delivered(loader_class, "function")[0][0] is as_list


MAIN_CLASSES = """
import enum, sys, torch
from dataclasses import dataclass
from typing import NamedTuple

class Shade(enum.Enum):
    DARK = 1

@dataclass
class Batch:
    rows: torch.Tensor
    shade: Shade

class Point(NamedTuple):
    x: int
    y: int

class Trouble(Exception):
    def __init__(self, index, reason):
        super().__init__(index, reason)
        self.index = index
        self.reason = reason

class Simple(Exception):
    pass

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        if index == 3:
            raise Simple(f"no {index}")
        return Point(index, -index)

def collate(points):
    assert all(type(point) is Point for point in points)
    return Batch(torch.tensor(points), Shade.DARK), points

if __name__ == "__main__":
    loader = DataLoader(
        Rows(), batch_size=1, num_workers=1, collate_fn=collate,
        multiprocessing_context="CONTEXT",
    )
    iterator = iter(loader)
    seen = []
    while True:
        try:
            batch, points = next(iterator)
        except StopIteration:
            break
        except Simple as error:
            assert type(error) is Simple
            assert str(error).startswith("Caught Simple in DataLoader worker process 0.")
            seen.append("error")
            continue
        assert type(batch) is Batch and isinstance(batch, Batch)
        assert batch.shade is Shade.DARK
        assert all(type(point) is Point for point in points)
        seen.append(points[0].x)
    print(seen)
"""


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_classes_of_the_script_itself_come_back_as_its_own(
    context: str, which: str, tmp_path: pathlib.Path
) -> None:
    code, out, err = run_script(tmp_path, which, MAIN_CLASSES.replace("CONTEXT", context))
    assert (code, out.strip(), err) == (0, "[0, 1, 2, 'error', 4, 5]", "")


# --- delivered means handed over ---------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("size", [3, 40_000])
def test_delivered_tensors_and_arrays_are_writable_and_independent(
    workers: int, size: int, loader_class: LoaderClass
) -> None:
    loader = loader_class(
        Filled(12, size), batch_size=2, num_workers=workers, collate_fn=stack_both
    )
    kept = []
    for number, batch in enumerate(loader):
        batch["tensor"].mul_(2)
        batch["array"] += 1
        batch["tensor"][0, 0] = -number
        kept.append(batch)
    for number, batch in enumerate(kept):
        # Nothing that came later wrote into what the loop still holds.
        assert batch["tensor"][0, 0] == -number
        assert batch["tensor"][1].eq(2 * (2 * number + 1)).all()
        assert (batch["array"][0] == 2 * number + 1).all()
        assert batch["array"].flags.writeable


@dataclass
class Filled:
    """A dataset of tensors filled with their index."""

    length: int
    size: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.size,), index)


def stack_both(samples: list[torch.Tensor]) -> dict[str, Any]:
    """Collate to a tensor and an array of the same rows."""
    stacked = torch.stack(samples)
    return {"tensor": stacked, "array": stacked.numpy().copy()}


def test_batches_outlive_their_loader(loader_class: LoaderClass) -> None:
    loader = loader_class(Filled(20, 5_000), batch_size=4, num_workers=2)
    kept = list(loader)
    del loader
    again = list(loader_class(Filled(20, 5_000), batch_size=4, num_workers=2))
    for number, (first, second) in enumerate(zip(kept, again, strict=True)):
        assert first[:, 0].tolist() == list(range(4 * number, 4 * number + 4))
        assert torch.equal(first, second)


def test_a_part_of_a_batch_keeps_the_values_it_had(loader_class: LoaderClass) -> None:
    loader = loader_class(Filled(64, 5_000), batch_size=2, num_workers=1)
    rows = [batch[1] for batch in loader]
    arrays = [row.numpy() for row in rows]
    del rows
    for number, array in enumerate(arrays):
        assert (array == 2 * number + 1).all()


def test_a_batch_can_be_saved_and_copied_by_itself(
    loader_class: LoaderClass, tmp_path: pathlib.Path
) -> None:
    batch = next(iter(loader_class(Filled(4, 10), batch_size=2, num_workers=1)))
    torch.save(batch, tmp_path / "batch.pt")
    assert (tmp_path / "batch.pt").stat().st_size < 20_000
    assert torch.equal(torch.load(tmp_path / "batch.pt"), batch)
    assert torch.equal(pickle.loads(pickle.dumps(batch)), batch)
    assert torch.equal(batch.clone().pin_memory() if torch.cuda.is_available() else batch, batch)


# --- a batch that cannot be sent: an error, never a hang (ours only: torch waits for ever) -----


def _generator(_: int) -> Any:
    return (number for number in range(3))


def _lambda(_: int) -> Any:
    return lambda: None


def _lock(_: int) -> Any:
    return threading.Lock()


def _local_instance(_: int) -> Any:
    class Local:
        pass

    return Local()


class Refuses:
    """An object whose own state cannot be taken."""

    def __getstate__(self) -> object:
        raise OSError("the file behind this is closed")


def _refuses(_: int) -> Any:
    return Refuses()


def _open_file(_: int) -> Any:
    return open(__file__)


CANNOT = [_generator, _lambda, _lock, _local_instance, _refuses, _open_file]


@dataclass
class Poisoned:
    """A collate whose batch with sample 2 holds something that cannot be sent."""

    make: Callable[[int], Any]
    shape: str = "mapping"

    def __call__(self, samples: list[int]) -> Any:
        poison = self.make(0) if 2 in samples else None
        match self.shape:
            case "mapping":
                return {"rows": torch.tensor(samples), "later": poison}
            case "deep":
                return {"rows": torch.tensor(samples), "list": [0, {"x": (1, poison)}]}
            case "dataclass":
                return Record(torch.tensor(samples), "n", {"more": poison})
            case "object":
                held = Plain(torch.tensor(samples), "n")
                held.label = poison
                return held
            case "bare":
                return poison if poison is not None else samples
        raise AssertionError(self.shape)


def events_of(loader: torch.utils.data.DataLoader) -> list[Any]:
    """List batches and errors as they come, going on after errors."""
    iterator, seen = iter(loader), []
    while len(seen) < 50:
        try:
            seen.append(next(iterator))
        except StopIteration:
            return seen
        except Exception as error:
            seen.append(error)
    raise AssertionError("the epoch does not end")


@pytest.mark.parametrize("make", CANNOT, ids=lambda make: make.__name__)
def test_a_batch_that_cannot_be_sent_is_an_error_that_says_what_and_where(
    make: Callable[[int], Any], ours: LoaderClass
) -> None:
    loader = ours(MapRows(8), batch_size=2, num_workers=2, collate_fn=Poisoned(make))
    seen = events_of(loader)
    assert len(seen) == 4
    for number in (0, 2, 3):
        assert seen[number]["rows"].tolist() == [2 * number, 2 * number + 1]
    error = seen[1]
    assert isinstance(error, Exception)
    text = whole_text(error)
    assert re.search(r"""batch\[["']later["']\]""", text), text
    assert re.search(r"\b2\b.*\b3\b", text), text
    assert re.search(r"worker\D*1\b", text, re.IGNORECASE), text


@pytest.mark.parametrize(
    ("shape", "path"),
    [
        ("deep", r"""batch\[["']list["']\]\[1\]\[["']x["']\]\[1\]"""),
        ("dataclass", r"""batch\.extra\[["']more["']\]"""),
        ("object", r"batch\.label"),
        ("bare", r"\bbatch\b"),
    ],
)
def test_the_path_inside_the_batch_is_named(shape: str, path: str, ours: LoaderClass) -> None:
    collate = Poisoned(_generator, shape)
    seen = events_of(ours(MapRows(6), batch_size=2, num_workers=1, collate_fn=collate))
    assert [isinstance(each, Exception) for each in seen] == [False, True, False]
    assert re.search(path, whole_text(seen[1])), whole_text(seen[1])
    assert "generator" in whole_text(seen[1])


def test_a_batch_that_cannot_be_sent_does_not_matter_without_workers(
    loader_class: LoaderClass,
) -> None:
    loader = loader_class(MapRows(4), batch_size=2, collate_fn=Poisoned(_generator))
    assert list(list(loader)[1]["later"]) == [0, 1, 2]


def rebuild_only_in_a_worker() -> "OneWay":
    """Rebuild a one-way object; the main process cannot."""
    raise LookupError("this can not be rebuilt here")


class OneWay:
    """An object that can be taken apart but not put together again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_only_in_a_worker, ()


def _one_way(_: int) -> Any:
    return OneWay()


def test_a_batch_that_cannot_be_rebuilt_is_an_error_and_the_epoch_goes_on(
    ours: LoaderClass,
) -> None:
    loader = ours(MapRows(8), batch_size=2, num_workers=2, collate_fn=Poisoned(_one_way))
    seen = events_of(loader)
    assert [isinstance(each, Exception) for each in seen] == [False, True, False, False]
    text = whole_text(seen[1])
    assert "this can not be rebuilt here" in text
    assert re.search(r"\b2\b.*\b3\b", text), text


def test_a_recursion_too_deep_to_send_is_an_error(ours: LoaderClass) -> None:
    loader = ours(MapRows(6), batch_size=2, num_workers=1, collate_fn=Poisoned(_too_deep))
    seen = events_of(loader)
    assert [isinstance(each, Exception) for each in seen] == [False, True, False]


def _too_deep(_: int) -> Any:
    nested: list[Any] = []
    for _ in range(10 * sys.getrecursionlimit()):
        nested = [nested]
    return nested
