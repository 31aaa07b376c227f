"""What is packed arrives, in its own memory, and what cannot be packed is named."""

from __future__ import annotations

import errno
import io
import os
import threading
import warnings
import weakref
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antifreeze import DataLoader
from antifreeze._core.events import Outcome, Timings
from antifreeze._transport import tensors
from antifreeze._transport.batch_messages import Bundle, ReceivedParcel, SlabMark
from antifreeze._transport.mapped_slabs import MappedSlabs, Returns
from antifreeze._transport.packing import (
    SMALL_BYTES,
    SMALL_TOTAL_BYTES,
    Packed,
    Unpackable,
    bring_inside,
    find_unpackable,
    pack,
)
from antifreeze._transport.worker_slabs import Arena

Point = namedtuple("Point", "x y")


def packed_bytes(packed: Packed) -> int:
    return packed.slab_bytes + len(packed.inline)


def sent(packed: Packed, mark: SlabMark | None = None) -> Bundle:
    """Send a packed batch through a real message."""
    bundle = Bundle(Outcome.LOADED)
    bundle.add(7, packed, Timings(1, 2, 3, 4, 5), mark)
    arrived = Bundle.decode(memoryview(bundle.encode()))
    assert (arrived.outcome, arrived.timings) == (Outcome.LOADED, Timings(1, 2, 3, 4, 5))
    return arrived


def travel(batch: Any, *, copied: bool = False) -> Any:
    """Send a batch through a real message and real memory, from a worker's arena to a shelf."""
    arena, shelf = Arena(), MappedSlabs(0, 1, Returns())
    arena.begin(0, renewed=False)
    packed = pack(batch, arena)
    slab = arena.seal(packed.slab_bytes)
    mark = None if slab is None else (0, 1, slab.memory.size)
    bundle = sent(packed, mark)
    view = None
    if slab is not None:
        descriptor = slab.take_descriptor()
        assert descriptor is not None
        shelf.put(0, descriptor, slab.memory.size)
        view = shelf.view(0, 1)
    ((number, arrived),) = bundle.parcels
    parcel = ReceivedParcel(number, bundle.outcome, arrived, view)
    assert parcel.number == 7
    if copied:
        parcel.copy_out()
    return parcel.open()


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.data())
def test_any_view_of_a_tensor_arrives_with_its_values_shape_and_no_more_memory(
    data: st.DataObject,
) -> None:
    shape = data.draw(st.lists(st.integers(0, 5), max_size=4))
    dtype = data.draw(st.sampled_from([torch.float32, torch.int64, torch.uint8, torch.bfloat16]))
    tensor = torch.arange(int(np.prod(shape, dtype=int))).reshape(shape).to(dtype)
    for _ in range(data.draw(st.integers(0, 3))):
        if not tensor.dim():
            break
        dim = data.draw(st.integers(0, tensor.dim() - 1))
        match data.draw(st.sampled_from(["narrow", "step", "transpose", "expand"])):
            case "narrow" if tensor.shape[dim] > 1:
                tensor = tensor.narrow(dim, 1, tensor.shape[dim] - 1)
            case "step":
                tensor = tensor[(slice(None),) * dim + (slice(None, None, 2),)]
            case "transpose":
                tensor = tensor.transpose(dim, 0)
            case "expand":
                tensor = tensor.unsqueeze(dim).expand(*tensor.shape[:dim], 3, *tensor.shape[dim:])
    arrived = travel(tensor)
    assert arrived.dtype is tensor.dtype
    assert arrived.shape == tensor.shape
    assert torch.equal(arrived, tensor)
    assert arrived.untyped_storage().nbytes() <= tensor.numel() * tensor.element_size()


def test_a_small_view_of_a_huge_storage_brings_only_itself() -> None:
    view = torch.zeros(10_000_000)[5:15]
    assert packed_bytes(pack(view)) < 64
    assert travel(view).untyped_storage().nbytes() == 40


def test_saving_what_arrived_writes_the_tensor_and_not_the_parcel() -> None:
    large, small = travel([torch.zeros(200_000), torch.ones(3)])
    file = io.BytesIO()
    torch.save(small, file)
    assert len(file.getvalue()) < 5_000
    torch.save(large, file)
    assert len(file.getvalue()) < 900_000


def test_memory_layout_survives() -> None:
    image = torch.rand(2, 3, 40, 50).to(memory_format=torch.channels_last)
    assert travel(image).is_contiguous(memory_format=torch.channels_last)
    assert travel(torch.rand(5, 7).t()).stride() == (1, 7)


def test_what_arrives_can_be_written_and_small_things_do_not_hold_large_ones() -> None:
    batch = travel({"large": torch.zeros(SMALL_BYTES), "small": torch.zeros(4)})
    batch["large"] += 1
    batch["small"] += 1
    assert batch["large"].sum() == SMALL_BYTES
    array = travel(np.zeros(100_000))
    array[0] = 1.0
    assert array.flags.writeable


def test_containers_and_identity() -> None:
    shared = torch.arange(4)
    batch = {"a": shared, "b": [shared, Point(1, None)], "c": OrderedDict(x=(1, {"y": b"z"}))}
    arrived = travel(batch)
    assert arrived["b"][0] is arrived["a"]
    assert arrived["b"][1] == Point(1, None)
    assert type(arrived["c"]) is OrderedDict


@pytest.mark.parametrize("copied", [False, True])
def test_many_large_buffers(copied: bool) -> None:
    batch = [torch.full((SMALL_BYTES // 4 + i,), i) for i in range(600)]
    arrived = travel(batch, copied=copied)
    assert all(torch.equal(a, b) for a, b in zip(arrived, batch, strict=True))


def test_many_small_tensors_go_to_the_slab_together() -> None:
    batch = [torch.tensor(i) for i in range(3000)]
    arena = Arena()
    arena.begin(0, renewed=False)
    assert pack(batch, arena).slab_bytes > SMALL_TOTAL_BYTES
    assert [int(t) for t in travel(batch)] == list(range(3000))


def test_labels_do_not_hold_the_images_they_came_with() -> None:
    images, labels = travel([torch.zeros(64, 1000), torch.arange(64)])
    alive = weakref.ref(images.untyped_storage())
    del images
    assert alive() is None
    assert labels.untyped_storage().nbytes() == 64 * 8


def test_a_large_pickle_does_not_travel_in_the_message() -> None:
    batch = {"text": "x" * 1_000_000, "more": [torch.zeros(100_000), b"y" * 500_000]}
    arena = Arena()
    arena.begin(0, renewed=False)
    assert len(sent_bytes(pack(batch, arena))) < 10_000
    arrived = travel(batch)
    assert arrived["text"] == batch["text"] and arrived["more"][1] == batch["more"][1]


def sent_bytes(packed: Packed) -> bytes:
    bundle = Bundle(Outcome.LOADED)
    bundle.add(1, packed, Timings())
    return bundle.encode()


def test_kept_batches_cost_no_descriptors() -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = [travel(torch.full((50_000,), i)) for i in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert [int(t[0]) for t in kept] == list(range(20))


def test_tensors_in_a_slab_start_at_cache_lines() -> None:
    batch = travel([torch.zeros(SMALL_BYTES + n, dtype=torch.uint8) for n in (1, 63, 64, 65)])
    assert [tensor.data_ptr() % 64 for tensor in batch] == [0] * 4


def test_tensors_in_a_message_are_aligned_for_what_they_hold() -> None:
    batch = travel(
        [torch.zeros(n, dtype=d) for n in (1, 3, 5) for d in (torch.uint8, torch.double)]
    )
    assert [tensor.data_ptr() % 16 for tensor in batch] == [0] * 6


def test_what_the_kernel_did_not_take_travels_in_the_message() -> None:
    batch = {"x": torch.arange(20_000), "y": torch.arange(3), "z": np.arange(9000.0)}
    arena = Arena()
    arena.begin(0, renewed=False)
    packed = pack(batch, arena)
    slab = arena.seal(packed.slab_bytes)
    assert slab is not None
    inside = bring_inside(packed, slab.memory.view)
    ((_, arrived),) = sent(inside).parcels
    opened = ReceivedParcel(1, Outcome.LOADED, arrived).open()
    assert torch.equal(opened["x"], batch["x"]) and torch.equal(opened["y"], batch["y"])
    assert np.array_equal(opened["z"], batch["z"])


def test_without_a_descriptor_to_give_the_message_carries_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    batch = torch.arange(100_000)
    monkeypatch.setattr(os, "memfd_create", refuse)
    arena = Arena()
    arena.begin(0, renewed=False)
    packed = pack(batch, arena)
    assert packed.slab_bytes == 0 and len(packed.inline) == 800_000
    assert torch.equal(travel(batch), batch)


class Holder:
    def __init__(self, thing: Any) -> None:
        self.thing = thing


@pytest.mark.parametrize(
    ("batch", "path", "kind"),
    [
        ({"x": 1, "later": (i for i in range(3))}, 'batch["later"]', "generator"),
        ([torch.zeros(2), {"k": threading.Lock()}], 'batch[1]["k"]', "lock"),
        (Point(1, lambda: 0), "batch.y", "function"),
        ([Holder([1, Holder(threading.Lock())])], "batch[0].thing[1].thing", "lock"),
        (threading.Lock(), "batch", "lock"),
    ],
)
def test_what_cannot_be_packed_is_found(batch: Any, path: str, kind: str) -> None:
    with pytest.raises(Unpackable):
        pack(batch)
    found, thing = find_unpackable(batch)
    assert (found, type(thing).__name__) == (path, kind)


def test_the_search_for_the_culprit_is_bounded() -> None:
    batch = [*range(10_000), threading.Lock()]
    found, _ = find_unpackable(batch)
    assert found == "batch"


def test_a_tensor_with_a_history_arrives_as_data_and_says_so() -> None:
    def collate(samples: list[int]) -> dict[str, torch.Tensor]:
        # antifreeze: allow[tensor-with-a-graph]
        return {"x": torch.ones(3, requires_grad=True) * 2}

    said = r'batch\["x"\] was computed from tensors that require'
    with pytest.warns(UserWarning, match=said) as caught:
        (arrived,) = DataLoader([1], num_workers=1, collate_fn=collate)
    assert arrived["x"].requires_grad and arrived["x"].is_leaf
    assert caught[0].filename == __file__  # at the line that asked for the batch
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=said):
            list(DataLoader([1], num_workers=1, collate_fn=collate))


def test_read_only_arrays_arrive_writable_as_from_torchs_workers() -> None:
    array = np.arange(50_000.0)
    array.flags.writeable = False
    large, small = travel([array, np.frombuffer(b"12345678", dtype=np.uint8)])
    large[0] = small[0] = 7
    assert (array[0], large[0], small[0]) == (0.0, 7.0, 7)


def test_empty_tensors_stay_on_the_cpu_whatever_the_default_device_is() -> None:
    torch.set_default_device("meta")
    try:
        (empty,) = travel([torch.empty(0, 4, device="cpu")])
    finally:
        torch.set_default_device(None)
    assert (empty.device.type, empty.shape) == ("cpu", (0, 4))


def test_a_tensor_without_memory_is_an_error_and_not_a_crash() -> None:
    empty = torch.zeros(5000)
    empty.untyped_storage().resize_(0)
    with pytest.raises(Unpackable, match="no memory behind it"):
        pack({"x": [empty]})
    assert find_unpackable({"x": [empty]})[0] == 'batch["x"][0]'


def test_what_is_only_called_ndarray_is_left_alone() -> None:
    assert type(travel(ndarray())) is ndarray


class ndarray:
    flags = None


SHARED = torch.arange(4)
FLAT: dict[str, Any] = {
    "a pair, as most collate functions give it": (torch.ones(3, 20_000), torch.arange(3)),
    "a list": [torch.ones(2, 2), torch.zeros(()), torch.zeros(0, 3)],
    "a dict": {"b": torch.ones(30_000), "a": torch.zeros(2, 3, dtype=torch.bool)},
    "nothing in it": ([], (), {}),
    "no text for a key": {0: torch.ones(2, 2), "one": torch.ones(3)},
    "not only tensors": {"image": torch.ones(2, 2), "path": "a.jpg"},
    "a tensor that is not plain": [torch.ones(2, 3).t(), torch.ones(2, requires_grad=True)],
    "a dtype numpy has no word for": [torch.ones(2, 2, dtype=torch.bfloat16)],
    "a dict of its own kind": OrderedDict(a=torch.ones(2, 2)),
}


@pytest.mark.parametrize("numpy", [True, False])
@pytest.mark.parametrize("batch", FLAT.values(), ids=FLAT)
def test_batches_of_tensors_arrive_as_they_were(
    batch: Any, numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not numpy:
        monkeypatch.setattr(tensors, "_ARRAY_TYPES", [None] * len(tensors.DTYPES))
    for each in batch if batch == ([], (), {}) else [batch]:
        for copied in (False, True):
            arrived = travel(each, copied=copied)
            assert type(arrived) is type(each)
            if isinstance(each, dict):
                assert list(arrived) == list(each)
                each, arrived = list(each.values()), list(arrived.values())
            for theirs, ours in zip(each, arrived, strict=True):
                if not isinstance(theirs, torch.Tensor):
                    assert theirs == ours
                    continue
                assert torch.equal(theirs, ours) and theirs.dtype is ours.dtype
                assert theirs.requires_grad is ours.requires_grad
                assert ours.untyped_storage().nbytes() == theirs.numel() * theirs.element_size()


@pytest.mark.parametrize("batch", [[SHARED, SHARED], {"x": SHARED, "y": SHARED}])
def test_two_names_of_one_tensor_arrive_as_such(batch: Any) -> None:
    arrived = travel(batch)
    first, second = arrived.values() if isinstance(arrived, dict) else arrived
    assert first is second


def test_read_only_arrays_keep_the_memory_order_a_pickle_would_give_them() -> None:
    fortran = np.asfortranarray(np.arange(12).reshape(3, 4))
    fortran.flags.writeable = False
    repeated = np.broadcast_to(np.arange(4), (3, 4))
    assert travel(fortran).flags.f_contiguous
    assert travel(repeated).flags.c_contiguous


def test_a_tensor_may_have_more_dimensions_than_an_array() -> None:
    tensor = torch.arange(2).reshape([1] * 69 + [2])
    assert torch.equal(travel([tensor])[0], tensor)
