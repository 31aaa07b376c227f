"""DistributedDataParallel: what one rank does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .checks import WORKERS, Setting
from .ddp_verdict import BACKENDS, SAMPLES
from .known_data import Numbered

BATCH_SIZE = 8
VALUES = 4  # in a sample


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of one process among those that train together."""

    number: int
    of: int
    meeting_file: Path  # through which they find each other


def train(setting: Setting, rank: Rank) -> dict[str, Any]:
    """Train for one epoch; return which samples this rank saw, and its gradients at every step."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data.distributed import DistributedSampler

    backend = BACKENDS.get(setting.device.type, "gloo")
    if not dist.is_backend_available(backend):  # a build of torch without it
        backend = "gloo"
    # Devices that there is no backend for train on the CPU: the loader is what is looked at.
    device = torch.device("cpu")
    if backend != "gloo":
        device = torch.device(setting.device.type, rank.number)
        torch.accelerator.set_device_index(rank.number)
    dist.init_process_group(
        backend,
        init_method=f"file://{rank.meeting_file}",
        rank=rank.number,
        world_size=rank.of,
    )
    dataset: Any = Numbered(SAMPLES, VALUES)
    loader = setting.loader(
        dataset,
        batch_size=BATCH_SIZE,
        num_workers=WORKERS,
        sampler=DistributedSampler(dataset, rank.of, rank.number),
        pin_memory=backend != "gloo",
    )
    torch.manual_seed(rank.number)  # DDP sends the weights of rank 0 to all
    model = DistributedDataParallel(torch.nn.Linear(VALUES, 1).to(device))
    seen, gradients = [], []
    for batch in loader:
        seen += [int(first) for first in batch[:, 0]]
        model.zero_grad()
        model(batch.to(device, non_blocking=True) / SAMPLES).square().mean().backward()
        parts = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
        gradients.append(torch.cat(parts).tolist())
    dist.destroy_process_group()
    return {"backend": backend, "seen": seen, "gradients": gradients}
