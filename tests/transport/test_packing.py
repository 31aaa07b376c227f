"""What is packed arrives, in its own memory, and what cannot be packed is named."""

from __future__ import annotations

import errno
import io
import os
import threading
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antifreeze import DataLoader
from antifreeze._core.accounts import Timings
from antifreeze._core.events import Outcome
from antifreeze._transport import parcels
from antifreeze._transport.descriptors import Descriptor
from antifreeze._transport.framing import FrameReader
from antifreeze._transport.memory import map_buffers, write_buffers
from antifreeze._transport.packing import (
    INLINE_BUFFER_BYTES,
    Unpackable,
    find_unpackable,
    pack,
)

Point = namedtuple("Point", "x y")


def _received(descriptor: int | None) -> list[Descriptor]:
    return [] if descriptor is None else [Descriptor(os.dup(descriptor))]


def travel(batch: Any) -> Any:
    """Send a batch through a real frame and real memory."""
    parts, descriptor = parcels.encode(7, Outcome.LOADED, Timings(1, 2, 3, 4, 5), pack(batch))
    stream = b"".join(parts)
    (frame,) = FrameReader().feed(stream, _received(descriptor))
    with parcels.closing(descriptor):
        parcel = parcels.ReceivedParcel.decode(frame)
    assert (parcel.number, parcel.outcome) == (7, Outcome.LOADED)
    assert parcel.timings == Timings(1, 2, 3, 4, 5)
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
    packed = pack(view)
    assert sum(buffer.nbytes for buffer in packed.buffers) == 40
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
    batch = travel({"large": torch.zeros(INLINE_BUFFER_BYTES), "small": torch.zeros(4)})
    batch["large"] += 1
    batch["small"] += 1
    assert batch["large"].sum() == INLINE_BUFFER_BYTES
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


def test_many_buffers_are_more_than_one_call_can_write() -> None:
    batch = [torch.full((INLINE_BUFFER_BYTES // 4 + i,), i) for i in range(600)]
    arrived = travel(batch)
    assert all(torch.equal(a, b) for a, b in zip(arrived, batch, strict=True))


def test_more_small_tensors_than_one_call_can_send() -> None:
    batch = [torch.tensor(i) for i in range(3000)]
    assert [int(t) for t in travel(batch)] == list(range(3000))


def test_a_large_pickle_does_not_travel_in_the_message() -> None:
    batch = {"text": "x" * 1_000_000, "more": [torch.zeros(100_000), b"y" * 500_000]}
    parts, descriptor = parcels.encode(1, Outcome.LOADED, Timings(), pack(batch))
    with parcels.closing(descriptor):
        assert sum(memoryview(part).nbytes for part in parts) < 10_000
    arrived = travel(batch)
    assert arrived["text"] == batch["text"] and arrived["more"][1] == batch["more"][1]


def test_kept_batches_cost_no_descriptors() -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = [travel(torch.full((50_000,), i)) for i in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert [int(t[0]) for t in kept] == list(range(20))


def test_buffers_start_at_cache_lines() -> None:
    buffers = [memoryview(bytes([i]) * n) for i, n in enumerate((1, 63, 64, 65, 4096))]
    descriptor = write_buffers(buffers)
    views = map_buffers(descriptor, [buffer.nbytes for buffer in buffers])
    os.close(descriptor)  # the views live on
    assert [bytes(view) for view in views] == [bytes(buffer) for buffer in buffers]
    starts = [torch.frombuffer(view, dtype=torch.uint8).data_ptr() % 64 for view in views]
    assert starts == [0] * len(buffers)


@contextmanager
def no_memory(monkeypatch: pytest.MonkeyPatch, error: int) -> Iterator[None]:
    def refuse(*args: Any) -> int:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patched:
        patched.setattr(os, "memfd_create", refuse)
        yield


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM])
def test_where_there_is_no_memory_to_share_the_message_carries_everything(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    batch = torch.arange(100_000)
    with no_memory(monkeypatch, error):
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
