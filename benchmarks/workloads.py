"""The workloads of the benchmarks, as data: a name, a dataset, a batch size, a length.

Every dataset repeats a small set of ready samples, so that the loaders are measured and not the
memory bus; only the JPEG workload computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

# Distinct samples held in memory. Enough that no cache holds a whole float batch.
DISTINCT = 64


class FloatImages(Dataset[torch.Tensor]):
    """float32 images that are already in memory."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.images = torch.rand(DISTINCT, 3, 192, 192)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.images[index % DISTINCT]


class Tokens(Dataset[torch.Tensor]):
    """int64 token sequences that are already in memory."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.tokens = torch.randint(50_000, (DISTINCT, 1536))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tokens[index % DISTINCT]


class Integers(Dataset[int]):
    """Nothing to load at all: what remains is the cost of a batch."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


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

        picture = cv2.imdecode(self.files[index % DISTINCT], cv2.IMREAD_COLOR)
        top, left = index % (self.HEIGHT_PX - self.CROP_PX), index % (self.WIDTH_PX - self.CROP_PX)
        picture = picture[top : top + self.CROP_PX, left : left + self.CROP_PX]
        picture = cv2.resize(picture, (self.SIDE_PX, self.SIDE_PX))
        if index % 2:
            picture = cv2.flip(picture, 1)
        image = np.ascontiguousarray(picture.transpose(2, 0, 1), dtype=np.float32) / 255
        return torch.from_numpy(image), index % 10


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing to load. `batches` make one timed epoch: about a second of torch's workers."""

    name: str
    what: str
    batch_size: int
    batches: int
    dataset: Callable[[int], Dataset[Any]]


WORKLOADS = (
    Workload("float-images", "float32 3x192x192, batch 48", 48, 100, FloatImages),
    Workload("tokens", "int64 1536, batch 24", 24, 400, Tokens),
    Workload("integers", "integers, batch 1", 1, 1500, Integers),
    Workload("jpeg", "JPEG decode, crop, resize, batch 40", 40, 16, Jpegs),
)
