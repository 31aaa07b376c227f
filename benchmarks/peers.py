"""The peers, each set up for this job as its documentation advises, with two workers or threads.

All get the same dataset, the same batches of indices and the same collate, which run in their
workers; where a peer has a faster setting (pipelines that stay up between epochs, shared memory),
it is used.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import BatchSampler, Dataset, SequentialSampler
from workloads import Workload

# Batches in flight a worker: torch's own default.
PREFETCH = 2


class Fetch:
    """Load and collate one batch of indices. A class, because it travels to spawned processes."""

    def __init__(self, dataset: Dataset[Any], workload: Workload) -> None:
        self.dataset = dataset
        self.collate = workload.collate

    def __call__(self, indices: list[int]) -> Any:
        return self.collate([self.dataset[index] for index in indices])


def _batches(workload: Workload) -> BatchSampler:
    return BatchSampler(SequentialSampler(range(workload.samples)), workload.batch_size, False)


def stateful(dataset: Dataset[Any], workload: Workload, workers: int) -> Iterable[Any]:
    """Make torchdata's StatefulDataLoader, with persistent workers."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(
        dataset,
        workload.batch_size,
        num_workers=workers,
        persistent_workers=True,
        collate_fn=workload.collate,
    )


def nodes(
    method: Literal["process", "thread"], dataset: Dataset[Any], workload: Workload, workers: int
) -> Iterable[Any]:
    """Make torchdata's nodes as its guide for users of DataLoader does: map whole batches."""
    from torchdata.nodes import Loader, ParallelMapper, SamplerWrapper

    batches: Any = SamplerWrapper(_batches(workload))
    fetch = Fetch(dataset, workload)
    return Loader(ParallelMapper(batches, fetch, num_workers=workers, method=method))


def spdl_threads(dataset: Dataset[Any], workload: Workload, workers: int) -> Iterable[Any]:
    """Make an SPDL pipeline of threads that stays up between epochs."""
    from spdl.pipeline import PipelineBuilder

    return (
        PipelineBuilder()
        .add_source(list(_batches(workload)), continuous=True)
        .pipe(Fetch(dataset, workload), concurrency=workers, output_order="input")
        .add_sink(PREFETCH * workers)
        .build(num_threads=workers, use_thread_output_queue=True)
    )


def spdl_processes(dataset: Dataset[Any], workload: Workload, workers: int) -> Iterable[Any]:
    """Make an SPDL pipeline whose fetching region is a pool of processes (in no order)."""
    from spdl.pipeline import PipelineBuilder
    from spdl.pipeline.defs import MAIN_PROCESS, ProcessPoolExecutorConfig

    pool = ProcessPoolExecutorConfig(max_workers=workers, mp_context="fork")
    return (
        PipelineBuilder()
        .add_source(list(_batches(workload)), continuous=True)
        .to(pool, buffer_size=PREFETCH)
        .pipe(Fetch(dataset, workload))
        .to(MAIN_PROCESS, buffer_size=PREFETCH)
        .add_sink(PREFETCH * workers)
        .build(num_threads=workers, use_thread_output_queue=True)
    )


def spdl_subprocess(dataset: Dataset[Any], workload: Workload, workers: int) -> Iterable[Any]:
    """Make SPDL's threads in one other process, batches coming back in its shared memory."""
    from spdl.pipeline import (
        PipelineBuilder,
        SharedMemorySegmentPool,
        run_pipeline_in_subprocess,
    )

    fetch = Fetch(dataset, workload)
    config = (
        PipelineBuilder()
        .add_source(list(_batches(workload)), continuous=True)
        .pipe(fetch, concurrency=workers, output_order="input")
        .add_sink(PREFETCH * workers)
        .get_config()
    )
    # Its segments are of one size, to be known beforehand: the largest of some batches and room
    # to spare, since ragged batches differ.
    size = max(
        len(pickle.dumps(fetch(indices))) for indices in itertools.islice(_batches(workload), 8)
    )
    arena = SharedMemorySegmentPool(2 * size, 2 * PREFETCH * workers)
    return run_pipeline_in_subprocess(config, num_threads=workers, mp_context="fork", arena=arena)


class Stream:
    """Epochs cut from an endless stream: how Grain keeps its workers from one to the next."""

    def __init__(self, endless: Iterable[Any], batches: int) -> None:
        self._iterator = iter(endless)
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._iterator, self._batches)


def grain(dataset: Dataset[Any], workload: Workload, workers: int) -> Iterable[Any]:
    """Make Grain's MapDataset with worker processes, arrays crossing in its shared memory.

    It shares numpy arrays, not tensors, so both sides convert (without a copy). It advises against
    reading threads for data in memory.
    """
    import grain

    endless = (
        grain.MapDataset.source(dataset)
        .batch(workload.batch_size, batch_fn=workload.collate)
        .map(to_numpy)
        .repeat()
        .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
        .mp_prefetch(
            grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=PREFETCH),
            worker_init_fn=one_thread,
        )
        .map(to_torch)
    )
    return Stream(endless, workload.batches)


def one_thread(worker: int, workers: int) -> None:
    """Start a spawned worker as torch starts its own; with more threads Grain was far slower."""
    torch.set_num_threads(1)


def to_numpy(batch: Any) -> Any:
    """Return a batch with arrays over the memory of its tensors."""
    match batch:
        case torch.Tensor():
            return batch.numpy()
        case dict():
            return {key: to_numpy(each) for key, each in batch.items()}
        case list() | tuple():
            return [to_numpy(each) for each in batch]
    return batch


def to_torch(batch: Any) -> Any:
    """Return a batch with tensors over the memory of its arrays."""
    match batch:
        case np.ndarray():
            return torch.from_numpy(batch)
        case dict():
            return {key: to_torch(each) for key, each in batch.items()}
        case list() | tuple():
            return [to_torch(each) for each in batch]
    return batch
