"""Whatever still looks at a batch keeps its memory from being used again.

Each test takes something from a batch, drops the batch, lets a hundred more of the same size
through the same loader, and looks again.
"""

import copy
import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing

from .lifetimes import (
    HELD,
    SIDE,
    batch_of,
    batch_of_floats,
    expected,
    held_while_recycling,
    hold_in_an_epoch,
    loader_of,
    mixed_of,
    same,
    seen,
)


def buffers_of(array: np.ndarray[Any, Any]) -> list[pickle.PickleBuffer]:
    """Pickle an array and keep nothing but the buffers."""
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
    assert buffers
    return buffers


OF_A_TENSOR: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda t: t,
    "a column of some rows": lambda t: t[1:, 2],
    "a view of another shape": lambda t: t.view(-1, 8),
    "a view of another type": lambda t: t.view(torch.uint8)[3:],
    "the transpose": lambda t: t.T,
    "a part of unbind": lambda t: t.unbind()[2],
    "a part of split": lambda t: t.split(100)[1],
    "expanded": lambda t: t[:1].expand(3, -1),
    "detached": lambda t: t.detach(),
    "data": lambda t: t.data,
    "its storage": lambda t: t.untyped_storage(),
    "another tensor on its storage": lambda t: torch.empty(0, dtype=t.dtype).set_(t),
    "numpy": lambda t: t.numpy(),
    "a slice of numpy": lambda t: t.numpy()[5::3, 7],
    "numpy and back": lambda t: torch.from_numpy(t.numpy()[1:]),
    "a memoryview": lambda t: memoryview(t.numpy()),
    "a piece of a memoryview": lambda t: memoryview(t.numpy()).cast("B")[4096:9000],
    "frombuffer of a memoryview": lambda t: np.frombuffer(memoryview(t.numpy()), dtype=np.int32),
    "torch.frombuffer of numpy": lambda t: torch.frombuffer(t.numpy(), dtype=torch.int32)[9:],
    "torch.asarray": lambda t: torch.asarray(t.numpy()),
    "DLPack to torch": lambda t: torch.from_dlpack(t),
    "DLPack to numpy": lambda t: np.from_dlpack(t),
    "DLPack of a slice": lambda t: np.from_dlpack(t[3:, 4:]),
    "a DLPack capsule nobody has opened": lambda t: torch.utils.dlpack.to_dlpack(t),
    "buffers of a pickle": lambda t: buffers_of(t.numpy()),
    "a copy": lambda t: copy.copy(t),
    "a deep copy": lambda t: copy.deepcopy(t),
    "a subclass": lambda t: t.as_subclass(Named),
    "a parameter": lambda t: torch.nn.Parameter(t, requires_grad=False),
    "an iterator over it": lambda t: iter(t),
}


class Named(torch.Tensor):
    pass


OF_AN_ARRAY: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "itself": lambda a: a,
    "a column of some rows": lambda a: a[1:, 2],
    "the transpose": lambda a: a.T,
    "reshaped and thinned": lambda a: a.reshape(-1)[::2],
    "a view of another type": lambda a: a.view(np.uint8)[3:],
    "a view of a view": lambda a: a[1:].view(np.int16)[:, 1:][2:],
    "as strided": lambda a: np.lib.stride_tricks.sliding_window_view(a, (3, 3))[::50, ::50],
    "a memoryview": lambda a: memoryview(a),
    "frombuffer": lambda a: np.frombuffer(a, dtype=np.int32),
    "torch of it": lambda a: torch.from_numpy(a),
    "torch of a slice": lambda a: torch.as_tensor(a[4:]),
    "DLPack": lambda a: torch.from_dlpack(a),
    "buffers of a pickle": lambda a: buffers_of(a),
    "an iterator over it": lambda a: iter(a),
}


def read_later(holder: Any) -> list[np.ndarray[Any, Any]]:
    return seen(list(holder) if isinstance(holder, Iterator) else holder)


def in_groups(names: Iterable[str]) -> list[list[str]]:
    """Few at a time: starting workers takes longer than an epoch."""
    listed = list(names)
    return [listed[place : place + 5] for place in range(0, len(listed), 5)]


def tell(names: list[str]) -> str:
    return ", ".join(names)


@pytest.mark.parametrize("names", in_groups(OF_A_TENSOR), ids=tell)
def test_what_was_made_of_a_tensor_keeps_its_values(names: list[str]) -> None:
    loader = loader_of("tensor", persistent_workers=True)
    for name in names:
        hold = OF_A_TENSOR[name]
        for number, holder in hold_in_an_epoch(loader, "tensor", hold):
            wanted = read_later(hold(batch_of(number)))
            assert all(map(np.array_equal, read_later(holder), wanted)), (name, number)


@pytest.mark.parametrize("names", in_groups(OF_AN_ARRAY), ids=tell)
def test_what_was_made_of_an_array_keeps_its_values(names: list[str]) -> None:
    loader = loader_of("array", persistent_workers=True)
    for name in names:
        hold = OF_AN_ARRAY[name]
        for number, holder in hold_in_an_epoch(loader, "array", hold):
            wanted = read_later(hold(batch_of(number).numpy()))
            assert all(map(np.array_equal, read_later(holder), wanted)), (name, number)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("form", ["collated", "mixed"])
def test_a_whole_batch_keeps_its_values(form: str, workers: int, persistent: bool) -> None:
    arguments = {"num_workers": workers, "persistent_workers": persistent}
    for number, batch in held_while_recycling(form, lambda batch: batch, **arguments):
        assert same(batch, expected(form, number))


PARTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "the large tensor": lambda batch: batch["large"],
    "the bytes": lambda batch: batch["bytes"],
    "the array": lambda batch: batch["array"],
    "the small tensor": lambda batch: batch["small"],
    "the small array": lambda batch: batch["smaller"],
    "a row of the last tensor": lambda batch: batch["more"][-1][77:],
    "the list": lambda batch: batch["more"],
}


def test_one_part_of_a_batch_outlives_the_others() -> None:
    loader = loader_of("mixed", persistent_workers=True)
    for name, part in PARTS.items():
        for number, holder in hold_in_an_epoch(loader, "mixed", part):
            assert same(holder, part(mixed_of(number))), (name, number)


def test_an_autograd_graph_keeps_what_it_saved_for_backward() -> None:
    weight = torch.full((SIDE,), 2.0, requires_grad=True)
    matrix = torch.eye(SIDE, requires_grad=True)

    def hold(batch: torch.Tensor) -> torch.Tensor:
        return ((batch / 1000) * weight).sum() + (batch @ matrix).square().mean()

    for number, loss in held_while_recycling("floats", hold):
        wanted = torch.autograd.grad(hold(batch_of_floats(number)), [weight, matrix])
        gradients = torch.autograd.grad(loss, [weight, matrix])
        for gradient, right in zip(gradients, wanted, strict=True):
            assert torch.allclose(gradient, right)


def test_a_graph_that_saved_the_batch_itself_gives_its_gradient() -> None:
    weight = torch.ones(SIDE, SIDE, requires_grad=True)
    for number, loss in held_while_recycling("floats", lambda batch: (batch * weight).sum()):
        (gradient,) = torch.autograd.grad(loss, weight)
        assert torch.equal(gradient, batch_of_floats(number))


# --- copies and files ----------------------------------------------------------------------------


def saved(thing: Any) -> bytes:
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda batch: pickle.loads(pickle.dumps(batch)),
    "torch.save": lambda batch: torch.load(io.BytesIO(saved(batch)), weights_only=False),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_is_its_own(way: str) -> None:
    for number, copied in held_while_recycling("mixed", COPIES[way]):
        assert same(copied, mixed_of(number))


@pytest.mark.parametrize("write", [saved, pickle.dumps], ids=["torch.save", "pickle"])
def test_a_file_holds_the_batch_and_no_more(write: Callable[[Any], bytes]) -> None:
    for number, size in held_while_recycling("mixed", lambda batch: len(write(batch))):
        clone = len(write(mixed_of(number)))
        assert abs(size - clone) < 4096, f"{size} bytes where a clone takes {clone}"


def test_the_storage_of_every_tensor_is_its_own_bytes() -> None:
    def tensors(batch: dict[str, Any]) -> list[torch.Tensor]:
        return [batch["large"], batch["bytes"], batch["small"], *batch["more"]]

    def sizes(batch: dict[str, Any]) -> list[tuple[int, int]]:
        return [(t.untyped_storage().nbytes(), t.storage_offset()) for t in tensors(batch)]

    for number, found in held_while_recycling("mixed", sizes):
        wanted = [(t.numel() * t.element_size(), 0) for t in tensors(mixed_of(number))]
        assert found == wanted


def test_a_collated_tensor_is_its_own_bytes() -> None:
    for _, size in held_while_recycling("collated", lambda t: t.untyped_storage().nbytes()):
        assert size == 4 * SIDE * SIDE


def test_tensors_of_a_batch_do_not_share_bytes() -> None:
    for number, batch in enumerate(loader_of("mixed")):
        if number in HELD:
            batch["large"].zero_()
            batch["more"][1].fill_(-1)
            batch["array"][:] = 7
            wanted = mixed_of(number)
            for key in ("bytes", "small", "smaller", "name"):
                assert same(batch[key], wanted[key])
            assert same(batch["more"][2], wanted["more"][2])
