"""Where torch's behaviour is a trap: the same data, and one warning that names cause and remedy."""

from __future__ import annotations

import itertools
import mmap
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torch_data
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data.datapipes.iter import IterableWrapper

from antifreeze import DataLoader


class Whole(IterableDataset[int]):
    """Every worker yields everything."""

    def __init__(self, length: int = 8) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


class Parted(Whole):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        return itertools.islice(range(self.length), info.id, None, info.num_workers)


class PartedLate(Whole):
    """Parted, but all parts begin alike."""

    def __iter__(self) -> Iterator[int]:
        yield from [0] * 8
        info = get_worker_info()
        assert info is not None
        yield from range(info.id, self.length, info.num_workers)


class AsksInVain(Whole):
    """Knows which worker it is, and yields everything."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None and info.id < info.num_workers
        return iter(range(self.length))


class Zeros(Whole):
    """Parted, and all the same."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        return iter([0] * (self.length // info.num_workers))


class Noise(Whole):
    """Needs no parting: every worker draws its own."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.length):
            yield int(torch.randint(1_000_000, ()))


def quietly(loader: Any, epochs: int = 1) -> list[Any]:
    """Loop over a loader where any warning is an error; give the batches of the last epoch."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(epochs):
            got = list(loader)
    return got


def warned(loader: Any, match: str, epochs: int = 2) -> tuple[list[Any], str]:
    """Loop over a loader that warns once, at the line of the loop; give its batches and that."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(epochs):
            got = list(loader)
    (warning,) = [each for each in caught if match in str(each.message)]
    assert Path(warning.filename) == Path(__file__)
    assert str(warning.message).startswith("antifreeze: ")
    return got, str(warning.message)


def values(batches: list[Any]) -> list[Any]:
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("batch_size", [2, None])
def test_workers_that_all_yield_everything(
    batch_size: int | None, persistent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    arguments: dict[str, Any] = {"batch_size": batch_size, "num_workers": 2}
    loader = DataLoader(Whole(), persistent_workers=persistent, **arguments)
    got = quietly(loader, epochs=2)
    (text,) = logged(caplog)
    assert "the 2 workers begin with the same samples" in text
    assert "every sample comes 2 times an epoch" in text
    assert "get_worker_info" in text
    if batch_size is not None:
        assert values(got) == values(list(torch_data.DataLoader(Whole(), **arguments)))
    loader._iterator = None


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "antifreeze"]


class Pictures(IterableDataset[torch.Tensor]):
    """The first worker's and the second's differ in places."""

    def __init__(self) -> None:
        self.first = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.first, self.first + 20):
            picture = torch.zeros(3, 200, 200)
            picture[:, 100:, 100:] = number
            yield picture


class Thing:
    def __init__(self, number: int) -> None:
        self.number = number


class Things(Whole):
    """Of a kind that nobody knows."""

    def __iter__(self) -> Iterator[Any]:
        return map(Thing, range(self.length))


def part(worker: int) -> None:
    get_worker_info().dataset.first = 20 * worker


def test_pictures_and_objects_are_compared(caplog: pytest.LogCaptureFixture) -> None:
    quietly(DataLoader(Pictures(), 1, num_workers=2, worker_init_fn=part))
    assert logged(caplog) == []
    quietly(DataLoader(Pictures(), 1, num_workers=2))
    assert len(logged(caplog)) == 1
    quietly(DataLoader(Things(), 2, num_workers=2, collate_fn=list))
    assert len(logged(caplog)) == 2


@pytest.mark.parametrize("length", [8, 100])
def test_workers_that_ask_who_they_are_and_yield_everything(
    length: int, caplog: pytest.LogCaptureFixture
) -> None:
    quietly(DataLoader(AsksInVain(length), 4, num_workers=2))
    (text,) = logged(caplog)
    same = "give the same samples" if length == 8 else "begin with the same samples"
    assert f"the 2 workers {same}" in text


def test_a_datapipe_shuffles_alike_and_is_parted_by_its_filter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipe = IterableWrapper(range(20)).shuffle()
    got = quietly(DataLoader(pipe.sharding_filter(), 4, num_workers=2), epochs=2)
    assert sorted(itertools.chain.from_iterable(values(got))) == list(range(20))
    assert logged(caplog) == []
    quietly(DataLoader(pipe, 4, num_workers=2))
    (text,) = logged(caplog)
    assert "the 2 workers give the same samples" in text and ".sharding_filter()" in text


@pytest.mark.parametrize("dataset", [Parted(), PartedLate(), Zeros(), Noise()])
def test_streams_that_are_parted_or_need_not_be(
    dataset: Any, caplog: pytest.LogCaptureFixture
) -> None:
    quietly(DataLoader(dataset, 2, num_workers=2), epochs=2)
    quietly(DataLoader(Whole(), 2, num_workers=1))
    assert logged(caplog) == []


def test_drop_last_that_drops_most_of_an_iterable() -> None:
    arguments: dict[str, Any] = {"batch_size": 8, "num_workers": 2, "drop_last": True}
    got, text = warned(DataLoader(Parted(14), **arguments), "drop_last")
    assert got == list(torch_data.DataLoader(Parted(14), **arguments)) == []
    assert "drop_last dropped 14 of 14 samples: each of the 2 workers" in text
    _, text = warned(DataLoader(Parted(30), **arguments), "drop_last")
    assert "dropped 14 of 30 samples" in text and "One process would have dropped 6." in text
    quietly(DataLoader(Parted(34), **arguments))


class Settled:
    """A map-style dataset with attributes of all kinds."""

    def __init__(self) -> None:
        self.epoch, self.transform, self.file = 0, str, None
        self.count, self.bad, self.cache, self.is_open = 0, [], {}, False
        self.shared = torch.zeros(1).share_memory_()
        self.counts = False

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        self.is_open, self.file, self.cache[index] = True, object(), index
        self.shared[0] = 1
        if self.counts:
            self.count += 1
            self.bad.append(index)
        return index + 100 * self.epoch


def test_attributes_changed_in_the_main_process_with_persistent_workers() -> None:
    dataset = Settled()
    loader = DataLoader(dataset, 4, num_workers=1, persistent_workers=True)
    quietly(loader, epochs=2)
    dataset.shared[0] = 2  # they see that
    dataset.file = open(__file__)  # noqa: SIM115 - there was none
    quietly(loader)
    dataset.file.close()
    dataset.epoch, dataset.transform = 1, repr
    got, text = warned(loader, "persistent workers do not see it")
    assert values(got) == [[0, 1, 2, 3], [4, 5, 6, 7]]  # as torch's
    assert "dataset.epoch (0, now 1), dataset.transform have changed in this process" in text
    loader._iterator = None


class Filled:
    """Holds arrays and tensors, some of them where all processes see them."""

    def __init__(self) -> None:
        self.weights = np.zeros(50_000)
        self.large = torch.zeros(2, 300_000)
        self.part = np.zeros((4, 4))[:, 1]
        self.deep = {"mask": torch.zeros(8, dtype=torch.bool)}
        self.half = torch.zeros(1_000, dtype=torch.bfloat16)
        self.mapped = np.frombuffer(mmap.mmap(-1, 64))
        self.shared = torch.zeros(4).share_memory_()
        self.of_numpy = torch.from_numpy(self.mapped)
        self._scratch, self.cache = np.zeros(4), np.zeros(4)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return index


CHANGES: dict[str, Callable[[Filled], None]] = {
    "weights": lambda it: it.weights.__setitem__(2, 7),
    "large": lambda it: it.large[1, 12_345:].fill_(1),
    "part": lambda it: it.part.__setitem__(0, 1),
    "deep['mask']": lambda it: it.deep["mask"].logical_not_(),
}


@pytest.mark.parametrize("which", CHANGES)
def test_arrays_changed_in_place_with_persistent_workers(which: str) -> None:
    dataset = Filled()
    loader = DataLoader(dataset, num_workers=1, persistent_workers=True)
    quietly(loader)
    for same in (dataset.mapped, dataset.shared, dataset._scratch, dataset.cache):
        same[1] += 1  # they see that, or it is nobody's business
    quietly(loader)
    CHANGES[which](dataset)
    _, text = warned(loader, "persistent workers do not see it")
    assert f"dataset.{which} has changed in this process" in text
    assert "share_memory_()" in text
    dataset.large.resize_(3)  # to look has left no mark
    loader._iterator = None


class Pads:
    def __init__(self) -> None:
        self.longest = 1

    def __call__(self, samples: list[int]) -> int:
        return self.longest


def test_an_attribute_of_collate_fn_changed_with_persistent_workers() -> None:
    pads = Pads()
    loader: Any = DataLoader(range(2), num_workers=1, persistent_workers=True, collate_fn=pads)
    quietly(loader, epochs=2)
    pads.longest = 2
    _, text = warned(loader, "persistent workers do not see it")
    assert "collate_fn.longest (1, now 2) has changed in this process" in text
    loader._iterator = None


def test_attributes_changed_where_workers_are_made_anew_are_seen() -> None:
    dataset = Settled()
    loader = DataLoader(dataset, 4, num_workers=1)
    quietly(loader)
    dataset.epoch = 1
    assert values(quietly(loader)) == [[100, 101, 102, 103], [104, 105, 106, 107]]


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_attributes_changed_in_workers(persistent: bool, wrapped: bool) -> None:
    dataset: Any = Settled()
    dataset.counts = True
    inner = dataset
    if wrapped:
        dataset = torch_data.Subset(dataset, range(8))
    loader = DataLoader(dataset, 4, num_workers=1, persistent_workers=persistent)
    _, text = warned(loader, "in a worker")
    path = "dataset.dataset" if wrapped else "dataset"
    assert f"{path}.count (0, now 8), {path}.bad (0 items, now 8) have changed in a worker" in text
    assert inner.count == 0
    loader._iterator = None


# ---- two loops -----------------------------------------------------------------------------------


def persistent(length: int = 8) -> DataLoader[Any]:
    return DataLoader(range(length), 2, num_workers=2, persistent_workers=True)


def test_two_loops_at_once_share_the_one_iterator_and_are_told_so() -> None:
    loader = persistent()
    pairs = []
    with pytest.warns(UserWarning, match="two loops share this loader") as caught:
        for first in loader:
            pairs += [(first.tolist(), second.tolist()) for second in loader]
    assert len(caught) == 1 and caught[0].filename == __file__
    assert pairs == [([0, 1], [n, n + 1]) for n in (0, 2, 4, 6)]  # as in torch
    loader._iterator = None


def test_a_loader_zipped_with_itself() -> None:
    loader = persistent()
    with pytest.warns(UserWarning, match="two loops share this loader"):
        pairs = [(one.tolist(), two.tolist()) for one, two in zip(loader, loader, strict=False)]
    assert pairs == [([n, n + 1], [n + 2, n + 3]) for n in (0, 4)]  # as in torch
    loader._iterator = None


def test_a_reset_from_outside_closes_nobody_who_still_asks() -> None:
    loader = persistent(400)
    first = iter(loader)
    assert next(first).tolist() == [0, 1]
    loader._iterator = None  # as trainers do
    workers = {worker.pid for worker in first._workers}
    assert [next(first).tolist() for _ in range(2)] == [[2, 3], [4, 5]]
    second = iter(loader)
    assert workers.isdisjoint(worker.pid for worker in second._workers)
    del first
    assert next(second).tolist() == [0, 1]
    loader._iterator = None


class Trainer:
    """Keeps its iterator, as trainers do."""

    iterator: Any = None


def test_an_iterator_that_is_only_kept_is_nobody() -> None:
    loader, trainer = persistent(400), Trainer()
    pids = set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):  # left in the middle, and begun anew, as torch does
            trainer.iterator = iter(loader)
            assert next(trainer.iterator).tolist() == [0, 1]
            kept = iter(loader)
            assert next(kept).tolist() == [0, 1]
            pids |= {worker.pid for worker in kept._workers}
    assert len(pids) == 2
    loader._iterator = None


def test_a_loop_that_was_left_is_nobody() -> None:
    loader = persistent(400)
    pids = set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            for _ in loader:
                pids |= {worker.pid for worker in loader._iterator._workers}
                break
    assert len(pids) == 2
    loader._iterator = None


def test_a_loop_whose_frame_a_traceback_keeps_is_nobody() -> None:
    loader = persistent(400)

    def loop() -> None:
        for _ in loader:
            raise ValueError("out of memory, say")

    try:
        loop()
    except ValueError:
        kept = sys.exc_info()  # as a notebook does
    workers = [worker.pid for worker in loader._iterator._workers]
    assert len(quietly(loader)) == 200
    assert [worker.pid for worker in loader._iterator._workers] == workers
    assert kept[1] is not None
    del kept
    loader._iterator = None


# ---- streams that raise --------------------------------------------------------------------------


class Breaks(Whole):
    def __iter__(self) -> Iterator[int]:
        for number in range(self.length):
            if number == 3:
                raise ValueError("bad line 3")
            yield number


class GoesOn(Whole):
    """Its iterator can be asked again after an error."""

    def __iter__(self) -> Iterator[int]:
        self.next = -1
        return self

    def __next__(self) -> int:
        self.next += 1
        if self.next == 3:
            raise ValueError("bad line 3")
        if self.next >= self.length:
            raise StopIteration
        return self.next


def all_that_comes(iterator: Any) -> list[int]:
    got: list[int] = []
    while True:
        try:
            got.append(int(next(iterator)))
        except ValueError:
            continue
        except StopIteration:
            return got


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_that_ended_with_its_error(workers: int) -> None:
    with pytest.warns(UserWarning, match="ended with its error") as caught:
        got = all_that_comes(iter(DataLoader(Breaks(), None, num_workers=workers)))
    assert got == all_that_comes(iter(torch_data.DataLoader(Breaks(), None, num_workers=workers)))
    assert got == [0, 1, 2]
    (warning,) = caught
    assert warning.filename == __file__
    assert "the stream of worker 0 ended with its error (ValueError: bad line 3)" in str(
        warning.message
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_that_goes_on_after_an_error(workers: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = all_that_comes(iter(DataLoader(GoesOn(), None, num_workers=workers)))
    assert got == [0, 1, 2, 4, 5, 6, 7]


class BreaksInParts(Whole):
    """One of its workers gives 3 and raises; the others go on for long."""

    def __iter__(self) -> Iterator[int]:
        info = torch_data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(worker, 80, workers):
            if number == 20:
                raise ValueError("bad line 20")
            yield number


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_end_of_a_stream_is_told_only_where_the_loop_goes_on(
    workers: int, persistent: bool
) -> None:
    if persistent and not workers:
        return
    named: Any = {"num_workers": workers, "persistent_workers": persistent}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="bad line 20"):
            list(DataLoader(BreaksInParts(), 4, **named))
    assert [str(each.message) for each in caught if "ended with" in str(each.message)] == []
    iterator = iter(DataLoader(BreaksInParts(), 4, **named))
    told: list[bool] = []  # whether it has been, at each answer
    raised_at = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        while True:
            try:
                next(iterator)
            except ValueError:
                raised_at = len(told)
            except StopIteration:
                break
            told.append(any("ended with its error" in str(each.message) for each in caught))
        assert raised_at is not None
        assert not any(told[: raised_at + 1]), "before the loop has gone on"
    assert sum("ended with its error" in str(each.message) for each in caught) == 1


def random_labels(dataset: Any) -> Iterator[int]:
    dice = random.Random(3)
    return (dice.randrange(2) for _ in range(400))


def own_labels(dataset: Any) -> Iterator[int]:
    dice = random.Random(os.getpid())
    return (dice.randrange(2) for _ in range(400))


def part_of_labels(dataset: Any) -> Iterator[int]:
    info = torch_data.get_worker_info()
    assert info is not None
    labels = [number % 4 for number in range(400)]
    return iter(labels[200 * info.id :][:200])


def repeated(dataset: Any) -> Iterator[int]:
    return (number % 7 for number in range(400))


class Labels(IterableDataset[int]):
    def __init__(self, make: Any) -> None:
        self.make = make

    def __iter__(self) -> Iterator[int]:
        return iter(self.make(self))


@pytest.mark.parametrize(
    ("make", "is_told"),
    [(random_labels, True), (own_labels, False), (part_of_labels, False), (repeated, False)],
)
def test_integers_with_few_values_are_compared_in_their_order(
    make: Any, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "antifreeze"):
        list(DataLoader(Labels(make), 8, num_workers=2))
    assert any("begin with the same samples" in text for text in logged(caplog)) == is_told


def test_prints_of_numbers_and_words_are_the_same_in_every_interpreter() -> None:
    code = (
        "from antifreeze._loading.dataset_mutations import _print_of;"
        "print([_print_of(each, 2) for each in (1, 1.5, True, 'a', b'a', (1, 'a'), {'k': 'a'})])"
    )
    texts = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        texts.add(done.stdout)
    assert len(texts) == 1
