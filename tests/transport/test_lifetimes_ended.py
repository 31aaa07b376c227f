"""Batches that are dropped anywhere, kept by workers, or written to by the user."""

import gc
import os
import queue
import random
import threading
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing
from torch.utils.data import default_collate

from antifreeze import DataLoader

from .lifetimes import (
    BATCHES,
    HELD,
    SAMPLES,
    SIDE,
    Quarters,
    Whole,
    as_it_is,
    batch_of,
    expected,
    held_while_recycling,
    loader_of,
    same,
    seen,
)
from .test_lifetimes import OF_A_TENSOR

# --- who drops it, when and where ----------------------------------------------------------------


def test_batches_dropped_in_another_thread() -> None:
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    wrong: list[int] = []

    def drop() -> None:
        held: deque[tuple[int, torch.Tensor]] = deque()
        while (item := waiting.get()) is not None:
            held.append(item)
            item = None
            if len(held) > 5:
                number, batch = held.popleft()
                if not torch.equal(batch, batch_of(number)):
                    wrong.append(number)
                del batch

    thread = threading.Thread(target=drop)
    thread.start()
    try:
        loader = loader_of("tensor", persistent_workers=True)
        for _ in range(3):
            for number, batch in enumerate(loader):
                waiting.put((number, batch))
                del batch
    finally:
        waiting.put(None)
        thread.join()
    assert not wrong


class Knot:
    """Holds a batch in a cycle, so that only a collection drops it."""

    def __init__(self, number: int, batch: Any) -> None:
        self.number, self.batch, self.me = number, batch, self


def test_batches_dropped_inside_garbage_collection_in_any_thread() -> None:
    dice = random.Random(11)
    over = threading.Event()

    def collect() -> None:
        while not over.wait(0.001):
            gc.collect(1)

    threads = [threading.Thread(target=collect) for _ in range(2)]
    for thread in threads:
        thread.start()
    kept: list[Knot] = []
    try:
        loader = loader_of("tensor", persistent_workers=True)
        for _ in range(3):
            for number, batch in enumerate(loader):
                knot = Knot(number, batch)
                if dice.random() < 0.2:
                    kept.append(knot)
                if len(kept) > 6:
                    old = kept.pop(dice.randrange(len(kept)))
                    assert torch.equal(old.batch, batch_of(old.number))
                    del old
                del batch, knot
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert all(torch.equal(knot.batch, batch_of(knot.number)) for knot in kept)


def test_batches_kept_for_random_times_in_random_ways() -> None:
    dice = random.Random(7)
    names = sorted(set(OF_A_TENSOR) - {"an iterator over it"})
    kept: list[tuple[int, str, Any]] = []
    for _ in range(2):
        for number, batch in enumerate(loader_of("tensor", prefetch_factor=4)):
            name = dice.choice(names)
            kept.append((number, name, OF_A_TENSOR[name](batch)))
            del batch
            while len(kept) > 12:
                old, name, holder = kept.pop(dice.randrange(len(kept)))
                wanted = seen(OF_A_TENSOR[name](batch_of(old)))
                assert all(map(np.array_equal, seen(holder), wanted)), (old, name)
                del holder


def _mappings() -> int:
    with open("/proc/self/maps") as lines:
        return sum(1 for _ in lines)


def test_every_batch_of_an_epoch_can_be_kept() -> None:
    length = 300
    loader = DataLoader(
        Whole("tensor", length), batch_size=None, num_workers=2, persistent_workers=True
    )
    for number, batch in enumerate(loader):
        assert torch.equal(batch, batch_of(number))
    del batch
    descriptors, mappings = len(os.listdir("/proc/self/fd")), _mappings()
    for _ in range(3):
        kept = list(loader)
        assert len(os.listdir("/proc/self/fd")) < descriptors + 40
        assert _mappings() < mappings + length + 60  # one each at most
        for number, batch in enumerate(kept):
            assert torch.equal(batch, batch_of(number))
        del kept, batch
        gc.collect()
        assert _mappings() < mappings + 60


def test_batches_outlive_their_loader_and_its_workers() -> None:
    for form in ("collated", "mixed"):
        loader = loader_of(form, persistent_workers=True)
        kept = [batch for _, batch in zip(range(8), loader, strict=False)]
        del loader
        gc.collect()
        held_while_recycling(form, lambda batch: None)
        assert all(same(batch, expected(form, n)) for n, batch in enumerate(kept))


def test_batches_of_loaders_that_run_side_by_side_do_not_mix() -> None:
    one, other = iter(loader_of("tensor")), iter(loader_of("array"))
    held: deque[tuple[int, Any, Any]] = deque()
    for number, (tensor, array) in enumerate(zip(one, other, strict=True)):
        held.append((number, tensor[1:], array[1:]))
        del tensor, array
        if len(held) > 3:
            old, rows, lines = held.popleft()
            assert torch.equal(rows, batch_of(old)[1:])
            assert np.array_equal(lines, batch_of(old).numpy()[1:])
            del rows, lines


# --- what the worker keeps, what the user writes -------------------------------------------------


class Remembers:
    """Collates, keeps what came of it, and every third time returns an old one again."""

    def __init__(self) -> None:
        self.kept: deque[dict[str, Any]] = deque(maxlen=3)
        self.calls = 0

    def __call__(self, samples: list[torch.Tensor]) -> dict[str, Any]:
        self.calls += 1
        if self.calls % 3 == 0:
            return self.kept[0]
        number = int(samples[0][0, 0]) // 1_000_000
        batch = {"number": number, "rows": default_collate(samples)}
        self.kept.append(batch)
        return batch


def test_a_collate_function_may_keep_what_it_collated() -> None:
    loader = DataLoader(Quarters(), batch_size=SAMPLES, num_workers=2, collate_fn=Remembers())
    again = 0
    held = []
    for place, batch in enumerate(loader):
        again += batch["number"] != place
        assert same(batch["rows"], expected("collated", batch["number"])), place
        if place in HELD:
            held.append((batch["number"], batch["rows"].numpy()))
        else:
            batch["rows"].zero_()  # the user's copy; the one in the worker is not
    assert again > BATCHES // 4
    for number, rows in held:
        assert np.array_equal(rows, expected("collated", number).numpy())


class CollatesItself:
    """Calls default collate for purposes of its own, and keeps what came of it."""

    def __init__(self) -> None:
        self.quarters = Quarters()
        self.kept: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, number: int) -> list[Any]:
        first = SAMPLES * number
        batch = default_collate([self.quarters[first + part] for part in range(SAMPLES)])
        self.kept.setdefault(number % 4, batch)
        earlier = self.kept[number % 4]
        return [number, batch, int(earlier[0, 0, 0]) // 1_000_000, earlier]


@pytest.mark.filterwarnings("ignore:antifreeze. dataset.kept")
def test_a_dataset_may_call_default_collate_and_keep_what_came() -> None:
    for number, batch in enumerate(
        DataLoader(CollatesItself(), batch_size=None, collate_fn=as_it_is, num_workers=2)
    ):
        assert batch[0] == number
        assert same(batch[1], expected("collated", number))
        assert batch[2] % 4 == number % 4
        assert same(batch[3], expected("collated", batch[2]))


def collate_twice(samples: list[torch.Tensor]) -> list[torch.Tensor]:
    return [default_collate(samples), default_collate([-sample for sample in samples])]


def test_a_collate_function_may_collate_twice() -> None:
    loader = DataLoader(Quarters(), batch_size=SAMPLES, num_workers=2, collate_fn=collate_twice)
    for number, (one, other) in enumerate(loader):
        assert same(one, expected("collated", number))
        assert same(other, -expected("collated", number))


class Cached:
    """Returns one and the same tensor each time."""

    def __init__(self) -> None:
        self.tensor = batch_of(5)
        self.array = batch_of(6).numpy()

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        return self.tensor, self.array


def first_of(samples: list[Any]) -> Any:
    return samples[0]


@pytest.mark.parametrize(
    "arguments",
    [{"batch_size": None, "collate_fn": as_it_is}, {"batch_size": 1, "collate_fn": first_of}],
    ids=["no collation", "the first sample"],
)
@pytest.mark.parametrize("spoil", ["add_", "numpy"])
def test_a_tensor_the_dataset_keeps_is_never_changed_by_the_user(
    arguments: dict[str, Any], spoil: str
) -> None:
    dataset = Cached()
    for tensor, array in DataLoader(dataset, num_workers=2, **arguments):
        assert torch.equal(tensor, batch_of(5))
        assert np.array_equal(array, batch_of(6).numpy())
        match spoil:
            case "add_":
                tensor.add_(1)
            case "numpy":
                tensor.numpy()[:] = -1
        array[:] = 0
    assert torch.equal(dataset.tensor, batch_of(5))
    assert np.array_equal(dataset.array, batch_of(6).numpy())


@pytest.mark.parametrize("form", ["collated", "tensor"])
def test_what_the_user_writes_never_shows_in_later_batches(form: str) -> None:
    loader = loader_of(form, persistent_workers=True)
    for _ in range(2):
        for number, batch in enumerate(loader):
            assert same(batch, expected(form, number)), number
            if number % 2:
                batch.add_(1)
            else:
                batch.zero_()


def test_what_the_user_wrote_stays_written() -> None:
    for number, batch in held_while_recycling("collated", lambda batch: batch.add_(1)[:]):
        assert same(batch, expected("collated", number) + 1)


class Short(Whole):
    """Batches of two sizes by turns: a short one in memory where a long one lay."""

    def __getitem__(self, number: int) -> torch.Tensor:
        batch = batch_of(number)
        return batch[: SIDE - 100] if number % 2 else batch


def test_a_shorter_batch_shows_nothing_of_a_longer_one() -> None:
    loader = DataLoader(Short("tensor"), batch_size=None, collate_fn=as_it_is, num_workers=2)
    held = []
    for number, batch in enumerate(loader):
        wanted = batch_of(number)[: SIDE - 100] if number % 2 else batch_of(number)
        assert torch.equal(batch, wanted)
        assert batch.untyped_storage().nbytes() == wanted.numel() * 4
        if number % 20 < 2:
            held.append((batch[3:], wanted[3:]))
    assert all(torch.equal(batch, wanted) for batch, wanted in held)


def test_a_killed_worker_takes_no_delivered_batch_with_it() -> None:
    iterator = iter(loader_of("tensor"))
    kept = [next(iterator) for _ in range(6)]
    for worker in iterator._workers:
        worker.kill()
    for number, batch in enumerate(iterator, start=6):
        assert torch.equal(batch, batch_of(number))
    assert all(torch.equal(batch, batch_of(number)) for number, batch in enumerate(kept))
