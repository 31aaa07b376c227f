"""A dataset sent to a clean process: everything in it arrives as what it was, or is refused."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from antifreeze import DataLoader
from antifreeze.errors import TransportFailed

from .programs import finish, program

METHODS = ["spawn", "forkserver"]


class Numbers:
    def __init__(self, length: int = 12) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return index


class Asked(Numbers):
    """Holds one thing; tells what a worker makes of it."""

    def __init__(self, thing: Any, question: Any) -> None:
        super().__init__(2)
        self.thing, self.question = thing, question

    def __getitem__(self, index: int) -> Any:
        return self.question(self.thing)


def ask(thing: Any, question: Any, method: str = "spawn") -> Any:
    """Send a thing to a worker and have a question about it answered there."""
    loader = DataLoader(Asked(thing, question), None, num_workers=1, multiprocessing_context=method)
    first, _ = list(loader)
    return first


@pytest.mark.parametrize("method", METHODS)
def test_lambdas_closures_and_local_classes_are_sent(method: str) -> None:
    factor = 3

    class Local(Numbers):
        def __init__(self) -> None:
            super().__init__()
            self.transform = lambda number: number * factor

        def __getitem__(self, index: int) -> Any:
            return self.transform(index)

    loader = DataLoader(
        Local(),
        4,
        num_workers=2,
        multiprocessing_context=method,
        collate_fn=lambda rows: sum(rows),
        worker_init_fn=lambda worker: None,
    )
    assert list(loader) == [3 * (0 + 1 + 2 + 3), 3 * (4 + 5 + 6 + 7), 3 * (8 + 9 + 10 + 11)]


@pytest.mark.parametrize("method", METHODS)
def test_the_dataset_is_sent_once_and_a_replaced_worker_needs_no_sending(method: str) -> None:
    loader = DataLoader(Slow(40), 4, num_workers=2, multiprocessing_context=method)
    iterator = iter(loader)
    got = next(iterator).tolist()
    (zygote,) = {psutil.Process(worker.pid).ppid() for worker in iterator._workers}
    os.kill(iterator._workers[1].pid, signal.SIGKILL)
    for batch in iterator:
        got += batch.tolist()
        if len(got) == 20:
            parents = {psutil.Process(worker.pid).ppid() for worker in iterator._workers}
            assert parents == {zygote}
    assert got == list(range(40))


class Slow(Numbers):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.01)
        return index


def test_views_of_one_tensor_stay_views_of_one_tensor_and_the_callers_stays_his() -> None:
    whole = torch.arange(10.0)
    address = whole.data_ptr()
    pair = {"whole": whole, "view": whole[2:5], "turned": whole.view(2, 5).t()}

    def write(pair: Any) -> list[float]:
        pair["whole"][2] = 99
        return [float(pair["view"][0]), float(pair["turned"][2, 0]), *pair["turned"].shape]

    assert ask(pair, write) == [99, 99, 5, 2]
    assert not whole.is_shared()
    assert whole.data_ptr() == address
    assert whole[2] == 2


def test_a_shared_tensor_stays_shared() -> None:
    shared = torch.zeros(3).share_memory_()
    ask(shared, lambda tensor: float(tensor.add_(1)[0]))
    assert shared.tolist() == [2, 2, 2]  # both samples


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_parameters_gradients_and_strange_tensors_arrive_as_they_were() -> None:
    things = [
        torch.nn.Parameter(torch.ones(2)),
        torch.ones(2, requires_grad=True),
        torch.empty(0, 3),
        torch.ones(2, dtype=torch.bfloat16),
        torch.eye(3).to_sparse(),
        torch.ones(3).expand(2, 3),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    ]

    def look(things: Any) -> list[Any]:
        told = []
        for each in things:
            shape = "nested" if each.is_nested else list(each.shape)
            told.append([type(each).__name__, shape, str(each.dtype), each.requires_grad])
        return [*told, float(things[4].to_dense().sum()), list(things[5].stride())]

    assert ask(things, look) == look(things)


def test_a_memory_map_is_mapped_anew_however_large(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(20 * 1024**3)  # holes: nothing is on the disk
        file.seek(8 * 1000)
        file.write(np.arange(6, dtype=np.int64).tobytes())
    large = np.memmap(path, np.int64, "r")
    things = {"all": large, "part": large[1000:1006].reshape(2, 3)[:, 1:]}

    def look(things: Any) -> list[Any]:
        grown = psutil.Process().memory_info().rss
        kinds = [type(things[name]).__name__ for name in ("all", "part")]
        return [*kinds, things["all"][1002], things["part"].tolist(), len(things["all"]), grown]

    *told, rss = ask(things, look)
    assert told == ["memmap", "memmap", 2, [[1, 2], [4, 5]], 20 * 1024**3 // 8]
    assert rss < 2 * 1024**3


@pytest.mark.parametrize("kind", ["text", "bytes"])
def test_a_file_open_for_reading_is_opened_anew_at_its_position(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("first second third")
    with open(path) if kind == "text" else open(path, "rb") as file:
        file.read(6)
        read = ask(file, lambda file: [file.read(6), type(file).__name__])
        assert file.read(6) in ("second", b"second")  # here it is where it was
    expected = {"text": ["second", "TextIOWrapper"], "bytes": [b"second", "BufferedReader"]}
    assert read == expected[kind]


@pytest.mark.parametrize("method", METHODS)
def test_locks_and_values_of_the_same_context_are_the_same_there(method: str) -> None:
    context = multiprocessing.get_context(method)
    things = context.Lock(), context.Value("i", 0)

    def count(things: Any) -> int:
        with things[0]:
            things[1].value += 1
        return 1

    ask(things, count, method)
    assert things[1].value == 2


UNSENDABLE = {
    "a generator": lambda folder: (n for n in range(3)),
    "a file open for writing": lambda folder: open(folder / "log", "w"),  # noqa: SIM115
    "a lock of another context": lambda folder: multiprocessing.get_context("fork").Lock(),
    "a deleted file": lambda folder: deleted(folder),
}


def deleted(folder: Path) -> Any:
    path = folder / "gone"
    path.write_text("text")
    file = open(path)  # noqa: SIM115
    path.unlink()
    return file


@pytest.mark.parametrize("what", UNSENDABLE)
def test_what_cannot_be_sent_is_named_by_its_path_before_anything_starts(
    what: str, tmp_path: Path
) -> None:
    dataset = Numbers()
    thing = UNSENDABLE[what](tmp_path)
    dataset.readers = [1, {"inner": thing}]
    began = time.monotonic()
    with pytest.raises(TransportFailed) as caught:
        iter(DataLoader(dataset, num_workers=2, multiprocessing_context="spawn"))
    assert time.monotonic() - began < 10
    text = str(caught.value)
    assert f'dataset.readers[1]["inner"] is a {type(thing).__name__} (' in text
    assert "no worker was started" in text
    assert "__getstate__" in text
    if hasattr(thing, "close"):
        thing.close()


def refusal_of(dataset: Any) -> str:
    with pytest.raises(TransportFailed) as caught:
        iter(DataLoader(dataset, num_workers=2, multiprocessing_context="spawn"))
    return str(caught.value)


@pytest.mark.filterwarnings("ignore:antifreeze. dataset.own holds an open socket")
def test_an_event_loop_is_named_itself_and_a_fork_is_no_way_out() -> None:
    dataset: Any = Numbers()
    dataset.own = {"loop": asyncio.new_event_loop()}
    try:
        text = refusal_of(dataset)
    finally:
        dataset.own["loop"].close()
    assert 'dataset.own["loop"] is a _UnixSelectorEventLoop (' in text
    assert 'dataset.own["loop"] = antifreeze.per_worker(make_it)' in text
    assert 'multiprocessing_context="fork"' not in text


def test_a_long_path_to_what_cannot_be_sent_is_shortened() -> None:
    dataset: Any = Numbers()
    inner: Any = (number for number in range(3))
    for _ in range(60):
        inner = {"nested": inner}
    dataset.inner = inner
    text = refusal_of(dataset)
    assert 'dataset.inner["nested"]["nested"]' in text and " ... " in text
    assert len(text.splitlines()[0]) < 300


IN_A_GLOBAL = """
    import itertools
    TABLE = {"rows": [1, (number for number in range(3))]}

    def look(index):
        return TABLE["rows"][0] + index

    class Looks(Numbers):
        def __getitem__(self, index):
            return look(index)

    done = threading.Event()
    lock = threading.Lock()

    def hold():
        with lock:
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    Looks.lock = lock
    say(*[int(batch) for batch in DataLoader(Looks(4), num_workers=2)])
    done.set()
"""


def test_a_global_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    with program(tmp_path, IN_A_GLOBAL) as process:
        returned, out, err = finish(process)
    assert (returned, out) == (0, "1 2 3 4\n")
    assert '__main__.TABLE["rows"][1] is a generator (' in err


SCRIPT = """
    class Pair:
        def __init__(self, number):
            self.number = number

    class Pairs(Numbers):
        def __getitem__(self, index):
            return Pair(index)

    if __name__ == "__main__":
        import multiprocessing
        multiprocessing.set_start_method("spawn")
        for pair in DataLoader(Pairs(4), None, num_workers=2, collate_fn=lambda row: row):
            assert type(pair) is Pair, type(pair)
            print(pair.number)
"""


def test_classes_of_the_script_itself_are_the_same_on_both_sides(tmp_path: Path) -> None:
    with program(tmp_path, SCRIPT) as process:
        assert finish(process) == (0, "0\n1\n2\n3\n", "")
