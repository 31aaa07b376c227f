"""A dataset that has not changed is not sent again; one that has, in whatever way, is."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from antifreeze import DataLoader
from antifreeze._core.limits import LIMITS
from antifreeze._engine import main_process_monitor
from antifreeze._linux.available_memory import Available
from antifreeze._processes.starting import reused_zygote as kept_zygotes
from antifreeze._processes.starting import zygote
from antifreeze._transport.memory import MemoryShort
from antifreeze._worker import deferred_work

from ..conftest import clean_process_pid
from ..patience import PATIENCE_S

SAMPLES = 8


class Numbers:
    """A dataset of parts that tests change."""

    factor = 1

    def __init__(self) -> None:
        self.names = [f"name {place}" for place in range(100)]
        self.tensor = torch.zeros(50_000)  # it travels beside the stream
        self.array = np.zeros(100)
        self.add: Any = _nothing

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, float, float, int, str, str]:
        return (
            index * self.factor + self.add(),
            float(self.tensor.sum()),
            float(self.array.sum()),
            len(self.names),
            os.environ.get("OF_THIS_TEST", ""),
            SETTINGS["mode"],
        )


@pytest.fixture(scope="module", autouse=True)
def libraries_are_imported() -> None:
    """Have this process import what a first epoch does: the next one sends the settings of that.

    A resource tracker of earlier tests waits at a pipe that workers have: then nobody is kept.
    """
    resource_tracker._resource_tracker._stop()
    loader = loader_of(Numbers())
    epoch(loader)
    epoch(loader)
    del loader
    give_up = time.monotonic() + PATIENCE_S
    while any(each.name.startswith("antifreeze") for each in threading.enumerate()):
        assert time.monotonic() < give_up
        main_process_monitor.rest()
        deferred_work.rest()  # who is there before a test is not waited for after it
        time.sleep(0.02)


SETTINGS = {"mode": "train"}


def _nothing() -> int:
    return 0


def _one() -> int:
    return 1


def kept() -> list[psutil.Process]:
    """Return the processes that hold a dataset between epochs."""
    found = []
    for each in (
        psutil.Process(clean_process_pid()).children(recursive=True) if clean_process_pid() else []
    ):
        try:
            if each.name() == "af_kept" and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
        except psutil.NoSuchProcess:
            continue
    return found


def soon_kept(count: int = 1) -> list[psutil.Process]:
    """Wait until so many processes are kept: they are a moment after the end of an epoch."""
    give_up = time.monotonic() + PATIENCE_S
    while len(found := kept()) != count and time.monotonic() < give_up:
        time.sleep(0.01)
    assert len(found) == count
    return found


def loader_of(dataset: Any, **options: Any) -> DataLoader[Any]:
    options = {"num_workers": 2, "multiprocessing_context": "forkserver", **options}
    return DataLoader(dataset, 2, **options)


def epoch(loader: DataLoader[Any]) -> list[str]:
    return [str(batch) for batch in loader]


def expected(dataset: Any) -> list[str]:
    return [str(batch) for batch in DataLoader(dataset, 2)]


def change_factor(dataset: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Numbers, "factor", 3)


def change_method(dataset: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Numbers, "__getitem__", lambda self, index: (index, self.factor))


def change_tensor(dataset: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.tensor[-1] = 1


def change_array(dataset: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.array[0] = -0.5


def grow_list(dataset: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.names.append("more")


def change_function(dataset: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.add = _one


def change_environment(dataset: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THIS_TEST", "set")


def change_global(dataset: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "mode", "test")


CHANGES = [
    change_factor,
    change_method,
    change_tensor,
    change_array,
    grow_list,
    change_function,
    change_environment,
    change_global,
]


def test_a_dataset_that_has_not_changed_is_sent_once() -> None:
    dataset = Numbers()
    loader = loader_of(dataset)
    wanted = expected(dataset)
    assert epoch(loader) == wanted
    (first,) = soon_kept()
    for _ in range(3):
        assert epoch(loader) == wanted
        assert soon_kept() == [first]
    del loader
    gc.collect()
    assert soon_kept(0) == []


class Telling:
    """A dataset that tells its program of each sample."""

    def __init__(self, end: Any) -> None:
        self.end = end

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        self.end.send(index)
        return index


def test_who_reads_from_workers_sees_their_end_when_the_epoch_is_over() -> None:
    reader, writer = multiprocessing.Pipe(duplex=False)
    loader = loader_of(Telling(writer))
    assert len(epoch(loader)) == SAMPLES / 2
    writer.close()
    told = [reader.recv() for _ in range(SAMPLES)]
    assert sorted(told) == list(range(SAMPLES))
    assert reader.poll(PATIENCE_S)
    with pytest.raises(EOFError):  # nobody holds the other end
        reader.recv()


class Serving(Numbers):
    def __init__(self) -> None:
        super().__init__()
        self.socket = socket.create_server(("127.0.0.1", 0))


@pytest.mark.filterwarnings("ignore:antifreeze. dataset")
def test_a_port_is_free_when_the_program_has_closed_it() -> None:
    dataset = Serving()
    address = dataset.socket.getsockname()
    loader = loader_of(dataset)
    epoch(loader)
    dataset.socket.close()
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(address, PATIENCE_S).close()
        except ConnectionRefusedError:
            return
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_only_so_much_memory_is_kept_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = expected(Numbers())
    first, second = loader_of(Numbers()), loader_of(Numbers())
    assert epoch(first) == wanted
    (held,) = soon_kept()
    size = sum(each.bytes for each in kept_zygotes._all)
    little = Available(LIMITS.starting.kept_zygote_share * size + size, "in this test")
    monkeypatch.setattr(kept_zygotes, "available", lambda: little)
    assert epoch(second) == wanted
    assert epoch(first) == wanted
    assert soon_kept() == [held]


def test_what_is_kept_is_given_back_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = expected(Numbers())
    first, second = loader_of(Numbers()), loader_of(Numbers())
    assert epoch(first) == wanted
    soon_kept()
    pack, tries = zygote.pack, []

    def short_once(*arguments: Any) -> Any:
        tries.append(len(kept_zygotes._all))
        if len(tries) == 1:
            raise MemoryShort(1, Available(0, "in this test"))
        return pack(*arguments)

    monkeypatch.setattr(zygote, "pack", short_once)
    assert epoch(second) == wanted
    assert tries == [1, 0]
    assert epoch(first) == wanted


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_two_epochs_is_seen(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Numbers()
    loader = loader_of(dataset)
    before = epoch(loader)
    assert before == epoch(loader) == expected(dataset)
    change(dataset, monkeypatch)
    assert epoch(loader) == expected(dataset) != before
    assert epoch(loader) == expected(dataset)


def test_random_changes_between_epochs_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    dice, dataset = random.Random(5), Numbers()
    loader = loader_of(dataset)
    for _ in range(12):
        with pytest.MonkeyPatch.context() as patch:
            for change in dice.sample(CHANGES, dice.randrange(3)):
                change(dataset, patch)
            assert epoch(loader) == expected(dataset)


class InFile:
    """A dataset that reads what was opened in the main process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open()

    def open(self) -> None:
        self.file = self.path.open("rb")
        self.map = np.memmap(self.path, np.uint8, "r")

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, int]:
        self.file.seek(index)
        return self.file.read(1)[0], int(self.map[index])


def test_another_file_under_the_same_path_is_read(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"a" * 4096)
    dataset = InFile(path)
    loader = loader_of(dataset)
    before = epoch(loader)
    assert before == epoch(loader)
    dataset.file.close()
    (tmp_path / "new").write_bytes(b"b" * 4096)
    (tmp_path / "new").rename(path)
    dataset.open()
    assert epoch(loader) == expected(dataset) != before
    dataset.file.close()


class Opens:
    """A dataset that opens something of its own in each worker."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.__setstate__(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, opened_by=os.getpid())

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, bool, str]:
        return index, self.opened_by == os.getpid(), Path(self.path).read_text()


def test_what_each_worker_opens_is_opened_in_each_epoch(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("first")
    dataset = Opens(path)
    loader = loader_of(dataset, worker_init_fn=None)
    wanted = expected(dataset)
    assert epoch(loader) == wanted
    (first,) = soon_kept()
    assert epoch(loader) == wanted and soon_kept() == [first]
    path.write_text("second")
    assert epoch(loader) == expected(dataset) != wanted
    del dataset.opened_by
    assert epoch(loader) == epoch(loader)


def test_draws_differ_between_epochs_as_ever() -> None:
    class Draws:
        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, index: int) -> float:
            return float(torch.rand(()))

    def three(**options: Any) -> list[list[str]]:
        torch.manual_seed(3)
        loader = loader_of(Draws(), **options)
        return [epoch(loader) for _ in range(3)]

    sent = three()
    assert sent == three(multiprocessing_context="fork")
    assert len({str(each) for each in sent}) == 3


def test_who_is_kept_may_die_between_epochs_and_within() -> None:
    loader = loader_of(Numbers())
    wanted = epoch(loader)
    soon_kept()[0].kill()
    assert epoch(loader) == wanted
    iterator = iter(loader)
    got = [str(next(iterator))]
    soon_kept()[0].kill()
    got += [str(batch) for batch in iterator]
    assert got == epoch(loader) == wanted
    assert loader.faults == []


def test_who_is_kept_may_die_while_it_is_asked() -> None:
    loader = loader_of(Numbers())
    wanted = epoch(loader)
    for _ in range(3):
        (process,) = soon_kept()
        iterator = iter(loader)
        process.kill()
        assert [str(batch) for batch in iterator] == wanted
        assert epoch(loader) == wanted


def test_a_worker_that_is_killed_is_replaced_from_what_was_kept() -> None:
    dataset = Numbers()
    loader = loader_of(dataset)
    wanted = epoch(loader)
    assert epoch(loader) == wanted
    for _ in range(2):
        got = []
        for batch in loader:
            if not got:
                os.kill(_a_worker(), signal.SIGKILL)
            got.append(str(batch))
        assert got == wanted


def _a_worker() -> int:
    (process,) = soon_kept()
    return next(
        each.pid for each in process.children(recursive=True) if each.name().startswith("af_worker")
    )


def test_a_loop_that_is_left_early_keeps_it_too() -> None:
    dataset = Numbers()
    loader = loader_of(dataset)
    for _ in range(3):
        for batch in loader:
            first = str(batch)
            break
    assert first == expected(dataset)[0]
    assert len(soon_kept()) == 1


def test_the_quarantine_of_an_epoch_is_that_of_the_loader_now(tmp_path: Path) -> None:
    dataset = Numbers()
    loader = loader_of(dataset, on_error="skip")
    assert len(epoch(loader)) == 4
    loader._quarantined = frozenset({0, 1})
    assert len("".join(epoch(loader))) < len("".join(expected(dataset)))
    assert len(soon_kept()) == 1
