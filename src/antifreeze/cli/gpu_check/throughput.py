"""Time two loaders against each other: epochs in turn, the median of the rounds' ratios."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..._linux.clock import monotonic


@dataclass(frozen=True, slots=True)
class ThroughputLoad:
    """How much the comparison loads.

    Two workers with two batches each under way, and one in the loop's hands, are 49 MB: torch's
    loader keeps them in /dev/shm, of which a container has 64 MB unless it is told otherwise.
    """

    images: int = 1024  # in an epoch; it takes about a second
    pixels: int = 160  # of each side; an image is 300 KB
    batch_size: int = 32
    rounds: int = 5  # an odd number, so that the median is one of them


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was measured."""

    ratio: float  # above 1: antifreeze is faster
    words: str
    fault: str = ""  # a loader did not bring every image once


def compare(loaders: Mapping[str, Any], device: torch.device, load: ThroughputLoad) -> Comparison:
    """Run epochs of the loaders "antifreeze" and "torch" in turn, after one of each to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in loaders}
    for number in range(1 + load.rounds):
        # Each goes first every other round: who comes second finds other caches.
        for name in list(loaders) if number % 2 else reversed(list(loaders)):
            begun = monotonic()
            indices = _epoch(loaders[name], device)
            taken_s = monotonic() - begun
            if sorted(indices) != list(range(load.images)):
                fault = f"{name} did not bring each of {load.images} images once"
                return Comparison(0.0, "", fault)
            if number:  # the first starts the workers
                seconds[name].append(taken_s)
    ratios = [
        theirs / ours for ours, theirs in zip(seconds["antifreeze"], seconds["torch"], strict=True)
    ]
    rates = [
        f"{name} {load.images / statistics.median(taken):,.0f} images/s"
        for name, taken in seconds.items()
    ]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f} in {load.rounds} rounds"
    return Comparison(statistics.median(ratios), f"{', '.join(rates)}; ratio {spread}")


def _epoch(loader: Any, device: torch.device) -> list[int]:
    """Copy all images to the device and use them there; return their indices."""
    total = torch.zeros((), device=device)
    indices: list[int] = []
    for images, numbers in loader:
        total += images.to(device, non_blocking=True).sum()
        indices += numbers.tolist()
    total.item()  # waits for the device
    return indices
