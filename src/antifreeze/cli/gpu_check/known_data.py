"""Datasets whose every value follows from the index, so that a wrong batch can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

SHOWN_WRONG_BATCHES = 5  # positions that a report lists; they show the pattern


@dataclass(frozen=True, slots=True)
class Numbered:
    """Samples of float32: the values of sample i are i, i + 1, i + 2 and so on.

    They stay below 2**24, where float32 has every integer, for all sizes used here.
    """

    count: int
    values: int  # in each sample

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(index, index + self.values, dtype=torch.float32)

    def batch(self, position: int, batch_size: int) -> torch.Tensor:
        """Return what the batch at a position must be, without a loader."""
        first = position * batch_size
        indices = range(first, min(first + batch_size, self.count))
        return torch.stack([self[index] for index in indices])


@dataclass(frozen=True, slots=True)
class MadeOnDevice:
    """The same samples, put on a device by whoever loads them."""

    numbered: Numbered
    device: str

    def __len__(self) -> int:
        return len(self.numbered)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.numbered[index].to(self.device)


class Images:
    """Float32 images made from a few uint8 ones, as a decoded and normalized photo is."""

    DISTINCT = 64  # more would only cost memory

    def __init__(self, count: int, pixels: int) -> None:
        shape = (self.DISTINCT, 3, pixels, pixels)
        generator = torch.Generator().manual_seed(0)
        self._stored = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._stored[index % self.DISTINCT].float().div_(255.0), index


def fault(got: Sequence[torch.Tensor], dataset: Numbered, batch_size: int) -> str:
    """Return in one clause how batches differ from what the dataset holds; empty if they do not."""
    due = -(-len(dataset) // batch_size)
    if len(got) != due:
        return f"{len(got)} batches instead of {due}"
    wrong = [
        position
        for position, batch in enumerate(got)
        if not torch.equal(batch.cpu(), dataset.batch(position, batch_size))
    ]
    if not wrong:
        return ""
    listed = ", ".join(map(str, wrong[:SHOWN_WRONG_BATCHES]))
    more = " ..." if len(wrong) > SHOWN_WRONG_BATCHES else ""
    return f"{len(wrong)} of {due} batches have wrong values (at {listed}{more})"
