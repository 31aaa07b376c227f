"""Train a little network on the demo's pictures, with torch's loader or with antifreeze's.

Prints one JSON object a line on stdout, so that run.py can follow: `started`, a `batch` for each
batch, `finished`. With --broken the loop freezes for ever under torch's loader.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pictures import SHAPES
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

BATCH_SIZE = 16
NUM_WORKERS = 2

Sample = tuple[torch.Tensor, int]
Batch = tuple[torch.Tensor, torch.Tensor]


class Pictures(Dataset[Sample]):
    """One JPEG file a sample, decoded when it is asked for; the label is in the file's name."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        path = self.paths[index]
        with Image.open(path) as picture:
            pixels = np.array(picture.convert("RGB"))
        image = torch.from_numpy(pixels).permute(2, 0, 1).float().div_(255)
        if torch.rand(()) < 0.5:
            image = image.flip(2)
        return image, SHAPES.index(path.stem.partition("_")[2])


class Collate:
    """Stack the pictures; now and then change the contrast of a whole batch.

    The mistake behind --broken is one word: the contrast was made learnable, so the batches it
    touches are part of an autograd graph, and such a tensor cannot leave torch's worker.
    """

    def __init__(self, *, learnable_contrast: bool) -> None:
        self.contrast = torch.tensor([1.2, 1.0, 0.8], requires_grad=learnable_contrast)

    def __call__(self, samples: Sequence[Sample]) -> Batch:
        images = torch.stack([image for image, _ in samples])
        if torch.rand(()) < 0.1:
            images = images * self.contrast.view(1, 3, 1, 1)
        return images, torch.tensor([label for _, label in samples])


def make_model() -> nn.Module:
    """Build a convolutional network small enough that loading matters as much as training."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 6 * 6, len(SHAPES)),
    )


def loader_class(name: str) -> type[Any]:
    """Return the DataLoader to train with. This one import is all that differs."""
    if name == "torch":
        from torch.utils.data import DataLoader
    else:
        from antifreeze import DataLoader
    return DataLoader


def tell(event: str, **facts: Any) -> None:
    """Write one line for run.py."""
    print(json.dumps({"event": event, **facts}), flush=True)


def train(loader: Any, epochs: int) -> None:
    """Run the epochs; count the seconds in which the loop had nothing to do but wait for data."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    batches = epochs * len(loader)
    tell("started", batches=batches, samples=epochs * len(loader.dataset))
    done, samples, waited_s = 0, 0, 0.0
    begin = time.perf_counter()
    for _ in range(epochs):
        asked = time.perf_counter()
        for images, labels in loader:
            waited_s += time.perf_counter() - asked
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            samples += len(labels)
            tell("batch", batch=done, loss=round(loss.item(), 3))
            asked = time.perf_counter()
        waited_s += time.perf_counter() - asked  # finding out that the epoch is over
    tell(
        "finished",
        samples=samples,
        seconds=time.perf_counter() - begin,
        waited_s=waited_s,
        # Counted while the loader and its workers are still there.
        descriptors=len(os.listdir("/proc/self/fd")),
    )


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loader", choices=("torch", "antifreeze"), required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder made by pictures.py")
    parser.add_argument("--broken", action="store_true", help="make the batches require grad")
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the workers need the other cores
    loader = loader_class(options.loader)(
        Pictures(options.data),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=NUM_WORKERS,
        persistent_workers=True,
        collate_fn=Collate(learnable_contrast=options.broken),
    )
    train(loader, options.epochs)


if __name__ == "__main__":
    main()
