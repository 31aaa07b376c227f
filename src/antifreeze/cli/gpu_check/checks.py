"""The checks that need one process each. Every one takes the device and the loader's class.

With the device "cpu" they run wherever the tests run; what needs an accelerator is skipped there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ...loader import DataLoader
from . import known_data
from .known_data import Images, MadeOnDevice, Numbered
from .outcomes import Outcome, failed, ok, skipped
from .throughput import ThroughputLoad, compare

WORKERS = 2  # the fewest with which batches come from more than one process
SAMPLES = 64  # where the question is not how many
# Multiplied on the device, first and before each copy, so that copies queue up while the loop runs
# ahead. One takes a large GPU 0.3 to 1 ms, about as long as a batch takes to come, and a small one
# 30 ms: then all of them are 50 s.
STREAM_MATRIX_ROWS = 2048
PRODUCTS_AT_FIRST = 100
PRODUCTS_PER_BATCH = 2


@dataclass(frozen=True, slots=True)
class CopyLoad:
    """How much the check of copies moves."""

    batches: int = 300  # every slab is used many times over
    batch_size: int = 8
    values: int = 32_768  # in a sample; a batch is 1 MiB, so that all of them fit on a device


@dataclass(frozen=True, slots=True)
class Setting:
    """What a check is made with."""

    device: torch.device
    loader: Callable[..., Any] = DataLoader
    copies: CopyLoad = field(default_factory=CopyLoad)
    throughput: ThroughputLoad = field(default_factory=ThroughputLoad)

    @property
    def can_pin(self) -> bool:
        return self.device.type != "cpu" and torch.accelerator.is_available()


def pinning(setting: Setting) -> Outcome:
    """Whether pinned batches are pinned, and equal to those that are not."""
    if not setting.can_pin:
        return skipped("pinned memory needs an accelerator")
    return pinned_batches(setting.loader)


def pinned_batches(loader: Callable[..., Any]) -> Outcome:
    """Compare the pinned batches of a loader's class with those that are not."""
    dataset = Numbered(SAMPLES, values=1000)
    for workers in (0, WORKERS):
        options = {"batch_size": 4, "num_workers": workers}
        plain = list(loader(dataset, **options))
        pinned = list(loader(dataset, pin_memory=True, **options))
        with_workers = f"with {workers} workers"
        if wrong := known_data.fault(plain, dataset, 4):
            return failed("wrong", f"not pinned, {with_workers}: {wrong}")
        if wrong := known_data.fault(pinned, dataset, 4):
            return failed("wrong", f"pinned, {with_workers}: {wrong}")
        unpinned = sum(not batch.is_pinned() for batch in pinned)
        if unpinned:
            return failed("not pinned", f"{unpinned} of {len(pinned)} batches, {with_workers}")
    return ok()


def copies(setting: Setting) -> Outcome:
    """Whether memory stays untouched while it is copied to the device.

    Every batch is dropped as soon as its copy was asked for, and the next one fetched right away;
    values are looked at when all copies are done.
    """
    load = setting.copies
    dataset = Numbered(load.batches * load.batch_size, load.values)
    for pin_memory in (True, False) if setting.can_pin else (False,):
        on_device = list(_copied(setting, dataset, pin_memory))
        if setting.device.type != "cpu":
            torch.accelerator.synchronize()
        if wrong := known_data.fault(on_device, dataset, load.batch_size):
            return failed("wrong", f"pin_memory={pin_memory}: {wrong}")
        del on_device
    return ok()


def _copied(setting: Setting, dataset: Numbered, pin_memory: bool) -> Iterator[torch.Tensor]:
    loader = setting.loader(
        dataset,
        batch_size=setting.copies.batch_size,
        num_workers=WORKERS,
        pin_memory=pin_memory,
    )
    _keep_busy(setting.device, PRODUCTS_AT_FIRST)
    for batch in loader:
        _keep_busy(setting.device, PRODUCTS_PER_BATCH)
        copy = batch.to(setting.device, non_blocking=True, copy=True)
        del batch  # before the next one is asked for
        yield copy


def _keep_busy(device: torch.device, products: int) -> None:
    """Queue work on a device. Never waits for it."""
    if device.type == "cpu":  # which has no queue, and whose copies are never under way
        return
    matrix = torch.ones(STREAM_MATRIX_ROWS, STREAM_MATRIX_ROWS, device=device)
    for _ in range(products):
        torch.mm(matrix, matrix)


def context(setting: Setting) -> Outcome:
    """Whether workers can be started after the device was used, and where they come from."""
    torch.ones(1, device=setting.device)
    dataset = Numbered(SAMPLES, values=100)
    loader = setting.loader(dataset, batch_size=4, num_workers=WORKERS)
    if wrong := known_data.fault(list(loader), dataset, 4):
        return failed("wrong", wrong)
    origin, why = _origin(loader)
    return ok(f"ok ({origin})", why)


def _origin(loader: Any) -> tuple[str, str]:
    """Return where the workers of a loader come from, and why."""
    from ..._core.fork_or_clean import WorkerOrigin

    lineage = vars(loader).get("_descends")
    if lineage is None:
        return "unknown start", "not a loader of antifreeze, or it fell back to torch's"
    clean = lineage.choice.descent is WorkerOrigin.CLEAN_PROCESS
    return "clean process" if clean else "fork", lineage.choice.why


def in_workers(setting: Setting) -> Outcome:
    """Whether a dataset may use the device in a worker process that torch's way would start."""
    dataset = Numbered(SAMPLES, values=100)
    loader = setting.loader(
        MadeOnDevice(dataset, str(setting.device)),
        batch_size=4,
        num_workers=WORKERS,
        multiprocessing_context="spawn",
    )
    try:
        got = list(loader)
    except Exception as error:
        return failed("refused", f"{type(error).__name__}: {error}")
    if wrong := known_data.fault(got, dataset, 4):
        return failed("wrong", wrong)
    elsewhere = {str(batch.device) for batch in got if batch.device.type != setting.device.type}
    if elsewhere:
        return failed("wrong device", f"batches are on {', '.join(sorted(elsewhere))}")
    return ok("works")


def throughput(setting: Setting) -> Outcome:
    """How fast images reach the device, as a ratio to torch's own loader."""
    from torch.utils.data.dataloader import DataLoader as TorchLoader

    load = setting.throughput
    dataset = Images(load.images, load.pixels)
    options = {
        "batch_size": load.batch_size,
        "num_workers": WORKERS,
        "persistent_workers": True,
        "pin_memory": setting.can_pin,
    }
    loaders = {
        "antifreeze": setting.loader(dataset, **options),
        "torch": TorchLoader(dataset, **options),  # type: ignore[arg-type]
    }
    result = compare(loaders, setting.device, load)
    if result.fault:
        return failed("wrong", result.fault)
    return ok(f"{result.ratio:.2f}x", result.words)


CHECKS: Mapping[str, Callable[[Setting], Outcome]] = {
    "pinning": pinning,
    "copies": copies,
    "context": context,
    "in workers": in_workers,
    "throughput": throughput,
}
