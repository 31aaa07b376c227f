"""Any batch torch can deliver is delivered: same values, types, dtypes, shapes, identities."""

import functools
import pathlib
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from .batch_kinds import BIT_VIEWS, FAITHFUL, KINDS, QUANTIZED, Colour, Named, Plain, Record, Tagged
from .observe import LOADERS, LoaderClass, describe
from .programs import MapRows, as_list
from .scripts import run_script

# torch's own notices about kinds of tensors it calls beta or old; they are no news here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per"),
]


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


class Makers:
    """A dataset of one batch of each kind."""

    def __len__(self) -> int:
        return len(FAITHFUL)

    def __getitem__(self, index: int) -> Any:
        return FAITHFUL[sorted(FAITHFUL)[index]]()


@functools.cache
def described_from_worker(loader_class: LoaderClass) -> dict[str, object]:
    """Let one worker deliver all kinds, one after the other; give the descriptions by kind."""
    loader = loader_class(Makers(), batch_size=None, collate_fn=as_list, num_workers=1)
    iterator = iter(loader)
    came: dict[str, object] = {}
    for kind in sorted(FAITHFUL):
        try:
            came[kind] = describe(next(iterator))
        except Exception as error:
            came[kind] = error
    assert next(iterator, "the end") == "the end"
    return came


@pytest.mark.parametrize("kind", sorted(FAITHFUL))
def test_a_worker_delivers_what_was_made(kind: str, loader_class: LoaderClass) -> None:
    assert described_from_worker(loader_class)[kind] == describe(KINDS[kind]())


@pytest.mark.parametrize("kind", sorted(FAITHFUL))
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


# --- what torch loses or hangs on, and we deliver ----------------------------------------------


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
    # The training loop is told, once, that no gradient flows back through it.
    with pytest.warns(UserWarning, match="score"):
        batches = delivered(ours, "not_a_leaf")
    assert len(batches) == 2
    for batch in batches:
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


# --- identity ----------------------------------------------------------------------------------


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
