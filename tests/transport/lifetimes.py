"""Batches that say in every value which one they are, and ways to let a hundred of them pass."""

import gc
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.multiprocessing

from antifreeze import DataLoader

SIDE = 256  # a batch is SIDE x SIDE numbers of 4 bytes: 256 KiB, four samples of 64 KiB
SAMPLES = 4
BATCHES = 120
HELD = (0, 3, 20)  # batches that are taken: the first ones may lie elsewhere than later ones
_RAMP = torch.arange(SIDE * SIDE, dtype=torch.int32).reshape(SIDE, SIDE)


def batch_of(number: int) -> torch.Tensor:
    """Make what the loader delivers as its batch of this number."""
    return _RAMP + 1_000_000 * number


def batch_of_floats(number: int) -> torch.Tensor:
    return batch_of(number).to(torch.float32)


class Quarters:
    """A sample is a quarter of a batch; default collate with `flat` puts four together."""

    def __init__(self, batches: int = BATCHES) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return SAMPLES * self.batches

    def __getitem__(self, index: int) -> torch.Tensor:
        number, part = divmod(index, SAMPLES)
        rows = SIDE // SAMPLES
        return batch_of(number)[part * rows : (part + 1) * rows].clone()


class Whole:
    """A sample is a whole batch, in one of several forms."""

    def __init__(self, form: str, batches: int = BATCHES) -> None:
        self.form, self.batches = form, batches

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, number: int) -> Any:
        match self.form:
            case "tensor":
                return batch_of(number)
            case "floats":
                return batch_of_floats(number)
            case "array":
                return batch_of(number).numpy()
            case "mixed":
                return mixed_of(number)
        raise AssertionError(self.form)


def mixed_of(number: int) -> dict[str, Any]:
    """Make a batch of large and small parts, of tensors, arrays and plain things."""
    large = batch_of(number)
    return {
        "number": number,
        "large": large,
        "bytes": large.view(torch.uint8)[: SIDE // 2].clone(),
        "array": large.numpy()[: SIDE // 2].copy(),
        "small": torch.full((5,), number),
        "smaller": np.full((3, 2), number, dtype=np.int16),
        "name": f"batch {number}",
        "more": [torch.full((n,), number, dtype=torch.int64) for n in (1, 1000, 20_000)],
    }


def as_it_is(sample: Any) -> Any:
    return sample


def loader_of(form: str, **arguments: Any) -> DataLoader[Any]:
    """Make a loader over batches of a form; `collated` is what default collate makes."""
    arguments = {"num_workers": 2, **arguments}
    if form == "collated":
        return DataLoader(Quarters(), batch_size=SAMPLES, **arguments)
    return DataLoader(Whole(form), batch_size=None, collate_fn=as_it_is, **arguments)


def expected(form: str, number: int) -> Any:
    match form:
        case "collated":
            return batch_of(number).reshape(SAMPLES, SIDE // SAMPLES, SIDE)
        case "tensor":
            return batch_of(number)
        case "floats":
            return batch_of_floats(number)
        case "array":
            return batch_of(number).numpy()
        case "mixed":
            return mixed_of(number)
    raise AssertionError(form)


def same(one: Any, other: Any) -> bool:
    """Compare two batches, part by part."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


def held_while_recycling(
    form: str, hold: Callable[[Any], Any], **arguments: Any
) -> list[tuple[int, Any]]:
    """Make holders of some batches, let go of the batches, and recycle hard."""
    return hold_in_an_epoch(loader_of(form, **arguments), form, hold)


def hold_in_an_epoch(
    loader: DataLoader[Any], form: str, hold: Callable[[Any], Any]
) -> list[tuple[int, Any]]:
    holders = []
    numbers = 0
    for number, batch in enumerate(loader):
        if number in HELD:
            holders.append((number, hold(batch)))
        elif number % 20 == 0:
            assert same(batch, expected(form, number)), number
        if number == HELD[-1]:
            del batch
            gc.collect()
        numbers += 1
    assert numbers == BATCHES
    return holders


def seen(holder: Any) -> list[np.ndarray[Any, Any]]:
    """Read all that a holder shows, whatever it is."""
    if isinstance(holder, list | tuple):
        return [array for part in holder for array in seen(part)]
    if isinstance(holder, torch.UntypedStorage):
        holder = torch.empty(0, dtype=torch.uint8).set_(holder)
    elif isinstance(holder, pickle.PickleBuffer):
        holder = holder.raw()
    elif type(holder).__name__ == "PyCapsule":
        holder = torch.utils.dlpack.from_dlpack(holder)
    if isinstance(holder, torch.Tensor):
        holder = holder.detach().resolve_conj().numpy()
    return [np.array(holder)]
