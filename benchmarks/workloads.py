"""The workloads of the benchmarks, as data: a name, a dataset, a collate, a batch size, a length.

Every dataset repeats a small set of ready samples, so that the loaders are measured and not the
memory bus; only the JPEG and the pure-Python samples compute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, default_collate

# Distinct samples held in memory. Enough that no cache holds a whole float batch.
DISTINCT = 64


class Ready(Dataset[torch.Tensor]):
    """Tensors that are already in memory."""

    def __init__(self, length: int, samples: torch.Tensor) -> None:
        self.length = length
        self.samples = samples

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.samples[index % DISTINCT]


class Integers(Dataset[int]):
    """Nothing to load at all: what remains is the cost of a batch."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class Ragged(Dataset[dict[str, Any]]):
    """Token sequences of many lengths, each with a label, as language datasets give them."""

    SHORTEST, LONGEST = 16, 512

    def __init__(self, length: int) -> None:
        self.length = length
        dice = np.random.default_rng(0)
        lengths = dice.integers(self.SHORTEST, self.LONGEST + 1, DISTINCT).tolist()
        self.sequences = [torch.randint(50_000, (each,)) for each in lengths]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens": self.sequences[index % DISTINCT], "label": index % 2}


def pad(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Collate sequences of different lengths: pad them and say where they end."""
    sequences = [sample["tokens"] for sample in samples]
    tokens = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    lengths = torch.tensor([len(each) for each in sequences])
    mask = torch.arange(tokens.shape[1]) < lengths[:, None]
    labels = torch.tensor([sample["label"] for sample in samples])
    return {"tokens": tokens, "mask": mask, "lengths": lengths, "labels": labels}


class Jpegs(Dataset[tuple[torch.Tensor, int]]):
    """JPEG files held in memory; decoded, cropped, resized, flipped: work for the CPU."""

    WIDTH_PX, HEIGHT_PX, CROP_PX, SIDE_PX = 500, 375, 256, 160

    def __init__(self, length: int) -> None:
        import cv2  # only this workload needs it

        cv2.setNumThreads(1)  # the workers are the parallelism
        self.length = length
        dice = np.random.default_rng(0)
        size = (self.WIDTH_PX, self.HEIGHT_PX)
        self.files = []
        for _ in range(DISTINCT):
            # Broad shapes and a little grain: about as many bytes as a photograph has.
            shapes = cv2.resize(dice.integers(0, 256, (24, 32, 3), dtype=np.uint8), size)
            grain = dice.integers(0, 40, (self.HEIGHT_PX, self.WIDTH_PX, 3), dtype=np.uint8)
            done, file = cv2.imencode(".jpg", cv2.add(shapes, grain))
            assert done and file is not None
            self.files.append(file)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        import cv2

        cv2.setNumThreads(1)  # a spawned worker has not run our `__init__`
        picture = cv2.imdecode(self.files[index % DISTINCT], cv2.IMREAD_COLOR)
        top, left = index % (self.HEIGHT_PX - self.CROP_PX), index % (self.WIDTH_PX - self.CROP_PX)
        picture = picture[top : top + self.CROP_PX, left : left + self.CROP_PX]
        picture = cv2.resize(picture, (self.SIDE_PX, self.SIDE_PX))
        if index % 2:
            picture = cv2.flip(picture, 1)
        image = np.ascontiguousarray(picture.transpose(2, 0, 1), dtype=np.float32) / 255
        return torch.from_numpy(image), index % 10


class PurePython(Dataset[tuple[torch.Tensor, int]]):
    """About a millisecond of the interpreter a sample: counting words, some arithmetic."""

    WORDS = ("worker", "batch", "sample", "epoch", "loader", "queue", "tensor")
    COUNT = 1_600

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        counts: dict[str, int] = {}
        state = index
        for _ in range(self.COUNT):
            state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
            word = self.WORDS[state % len(self.WORDS)].upper()
            counts[word] = counts.get(word, 0) + len(word)
        return torch.tensor(list(counts.values())), state % 2


FEATURES, FEATURE_WIDTH = 500, 8


def by_feature(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Collate to one tensor a feature, each with memory of its own."""
    stacked = torch.stack(samples, 1)
    return {f"feature_{number}": each.clone() for number, each in enumerate(stacked)}


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing to load. `batches` make one epoch: half a second or so of torch's workers.

    `stacks`: collating is one plain stack. `cheapest`: a sample costs a microsecond or two.
    """

    name: str
    what: str
    batch_size: int
    batches: int
    dataset: Callable[[int], Dataset[Any]]
    collate: Callable[[list[Any]], Any] = default_collate
    stacks: bool = False
    cheapest: bool = False

    @property
    def samples(self) -> int:
        """Return how many samples one epoch has."""
        return self.batches * self.batch_size


def _floats(length: int) -> Dataset[Any]:
    return Ready(length, torch.rand(DISTINCT, 3, 192, 192))


def _bytes(length: int) -> Dataset[Any]:
    return Ready(length, torch.randint(256, (DISTINCT, 3, 256, 256), dtype=torch.uint8))


def _tokens(length: int) -> Dataset[Any]:
    return Ready(length, torch.randint(50_000, (DISTINCT, 1536)))


def _rows(length: int) -> Dataset[Any]:
    return Ready(length, torch.rand(DISTINCT, 40))


def _features(length: int) -> Dataset[Any]:
    return Ready(length, torch.rand(DISTINCT, FEATURES, FEATURE_WIDTH))


WORKLOADS = (
    Workload("float-images", "float32 3x192x192, batch 48", 48, 80, _floats, stacks=True),
    Workload("uint8-images", "uint8 3x256x256, batch 64", 64, 100, _bytes, stacks=True),
    Workload("tokens", "int64 1536, batch 24", 24, 300, _tokens, stacks=True),
    Workload("rows", "float32 40, batch 200", 200, 300, _rows, stacks=True, cheapest=True),
    Workload("integers", "integers, batch 1", 1, 1000, Integers, cheapest=True),
    Workload("ragged", "dicts of ragged tokens, padding collate, batch 32", 32, 250, Ragged, pad),
    Workload("jpeg", "JPEG decode, crop, resize, flip, batch 40", 40, 16, Jpegs),
    Workload("python", "1 ms of Python a sample, batch 8", 8, 80, PurePython),
    Workload("features", "500 small float tensors a batch, batch 4", 4, 8, _features, by_feature),
)
