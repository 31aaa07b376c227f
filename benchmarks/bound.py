"""The bound: as many processes fetch and collate, and hand over nothing.

No loader that fetches and collates in processes can be faster than this. Where a batch is a plain
stack, all batches of a process are collated into one buffer that is used again and again.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.utils.data import Dataset
from workloads import Workload


class Bound:
    """Processes that stay between epochs. An epoch yields None for each batch, after the last."""

    def __init__(self, dataset: Dataset[Any], workload: Workload, processes: int) -> None:
        fork = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(processes):
            near, far = fork.Pipe()
            share = range(number, workload.batches, processes)
            process = fork.Process(target=_work, args=(far, dataset, workload, share), daemon=True)
            process.start()
            far.close()
            self._pipes.append(near)
            self._processes.append(process)

    def __iter__(self) -> Iterator[None]:
        for pipe in self._pipes:
            pipe.send("epoch")
        done = sum(pipe.recv() for pipe in self._pipes)
        yield from [None] * done


def _work(pipe: Connection, dataset: Dataset[Any], workload: Workload, share: range) -> None:
    torch.set_num_threads(1)
    collate = _into_one_buffer(workload) if workload.stacks else workload.collate
    size = workload.batch_size
    try:
        while pipe.recv():
            done = 0
            for number in share:
                collate([dataset[index] for index in range(number * size, (number + 1) * size)])
                done += 1
            pipe.send(done)
    except (EOFError, OSError):
        return


def _into_one_buffer(workload: Workload) -> Callable[[list[torch.Tensor]], torch.Tensor]:
    buffer: list[torch.Tensor] = []

    def collate(samples: list[torch.Tensor]) -> torch.Tensor:
        if not buffer:
            buffer.append(workload.collate(samples))
        return torch.stack(samples, out=buffer[0])

    return collate
