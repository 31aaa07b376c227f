"""The first workers, forked from the main process itself: what they share with later ones, and what
becomes of them when one of all these processes is gone."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from antifreeze import DataLoader

from ..other_limits import other_limits
from .programs import all_gone, finish, line, program


class Numbers:
    """Has a parent that it tells of, and something that the main process changes meanwhile."""

    def __init__(self, length: int = 200, nap_s: float = 0.0) -> None:
        self.length, self.nap_s, self.plus = length, nap_s, 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        time.sleep(self.nap_s)
        return index + self.plus


class ForksAll(DataLoader[Any]):
    """Forks all first workers here, however long that takes."""

    _limits = other_limits(starting={"first_workers_cpu_s": 60.0})


class ForksOne(DataLoader[Any]):
    """Forks one worker here, which takes longer than this."""

    _limits = other_limits(starting={"first_workers_cpu_s": 1e-9})


def begun(workers: int = 2, kind: type[DataLoader[Any]] = ForksAll, **options: Any) -> Any:
    dataset: Any = options.pop("dataset", None) or Numbers(nap_s=0.002)
    return iter(kind(dataset, 4, num_workers=workers, **options))


def zygote_pid(iterator: Any) -> int:
    return int(iterator._driver.backend._source.parent.acting_pid)


def parents(iterator: Any) -> set[int]:
    return {psutil.Process(worker.pid).ppid() for worker in iterator._workers}


def samples(iterator: Any) -> list[int]:
    return [number for batch in iterator for number in batch.tolist()]


def test_they_are_children_of_the_main_process_and_the_zygote_is_their_sibling() -> None:
    iterator = begun()
    assert parents(iterator) == {os.getpid()}
    assert psutil.Process(zygote_pid(iterator)).ppid() == os.getpid()
    assert samples(iterator) == list(range(200))


def test_where_forking_takes_long_the_zygote_bears_the_others() -> None:
    iterator = begun(4, ForksOne)
    counts = [psutil.Process(worker.pid).ppid() for worker in iterator._workers]
    assert counts == [os.getpid(), *[zygote_pid(iterator)] * 3]
    assert samples(iterator) == list(range(200))


@pytest.mark.parametrize("force", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_who_replaces_one_is_what_that_was_whatever_the_main_process_has_changed(
    force: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = Numbers(nap_s=0.002)
    iterator = begun(dataset=dataset)
    got = next(iterator).tolist()
    dataset.plus = 1000  # too late for this epoch, also for those who replace others
    victims = [worker.pid for worker in iterator._workers]
    for victim in victims:
        os.kill(victim, force)
    got += samples(iterator)
    assert got == list(range(200))
    told = [record.getMessage() for record in caplog.records if record.name == "antifreeze"]
    assert sum(f"pid {victim}" in text for text in told for victim in victims) == 2
    assert all("killed by signal: " + signal.strsignal(force) in text for text in told), told


def test_the_end_of_the_zygote_is_nothing_to_them(caplog: pytest.LogCaptureFixture) -> None:
    iterator = begun()
    got = next(iterator).tolist()
    pids = [worker.pid for worker in iterator._workers]
    os.kill(zygote_pid(iterator), signal.SIGKILL)
    for place, batch in enumerate(iterator):
        got += batch.tolist()
        if place == 20:
            assert [worker.pid for worker in iterator._workers] == pids
            os.kill(pids[0], signal.SIGKILL)  # who replaces it needs a new zygote
    assert got == list(range(200))
    told = [record.getMessage() for record in caplog.records if record.name == "antifreeze"]
    assert len(told) == 1 and f"pid {pids[0]}" in told[0], told


def test_all_of_them_and_the_zygote_at_once() -> None:
    iterator = begun()
    got = next(iterator).tolist()
    for pid in [*(worker.pid for worker in iterator._workers), zygote_pid(iterator)]:
        os.kill(pid, signal.SIGKILL)
    assert got + samples(iterator) == list(range(200))


def test_persistent_ones_over_epochs_with_deaths_in_between() -> None:
    loader = ForksAll(Numbers(), 4, num_workers=2, persistent_workers=True)
    for _ in range(4):
        iterator: Any = iter(loader)
        assert samples(iterator) == list(range(200))
        os.kill(iterator._workers[0].pid, signal.SIGKILL)
    loader._iterator = None


def ignored() -> Any:
    return signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def handled() -> Any:
    return signal.signal(signal.SIGCHLD, lambda number, frame: None)


def handled_by_a_closure() -> Any:
    def handler(number: int, frame: Any) -> None:
        if number < 0:
            later  # noqa: B018 - a name that has no value yet

    before = signal.signal(signal.SIGCHLD, handler)
    if before is None:
        later = 1
    return before


@pytest.mark.parametrize("take", [ignored, handled, handled_by_a_closure])
def test_where_the_program_takes_the_ends_of_children_there_are_none(
    take: Any, caplog: pytest.LogCaptureFixture
) -> None:
    before = take()
    try:
        iterator = begun()
        assert os.getpid() not in parents(iterator)
        victim = iterator._workers[0].pid
        os.kill(victim, signal.SIGKILL)
        assert samples(iterator) == list(range(200))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert any("SIGKILL" in record.getMessage() for record in caplog.records)  # it is known how


def test_torchs_own_handler_does_not_count_as_one() -> None:
    before = signal.getsignal(signal.SIGCHLD)
    try:
        list(torch.utils.data.DataLoader(Numbers(8), num_workers=1))
        assert callable(signal.getsignal(signal.SIGCHLD))
        iterator = begun()
        assert parents(iterator) == {os.getpid()}
        assert samples(iterator) == list(range(200))
    finally:
        signal.signal(signal.SIGCHLD, before)
        from torch.utils.data._utils import signal_handling

        signal_handling._SIGCHLD_handler_set = False


def test_who_was_taken_by_a_wait_of_the_programs_own_is_replaced_all_the_same() -> None:
    iterator = begun()
    got = next(iterator).tolist()
    victim = iterator._workers[0].pid
    os.kill(victim, signal.SIGKILL)
    assert os.waitpid(victim, 0)[0] == victim
    assert got + samples(iterator) == list(range(200))


def test_multiprocessing_may_look_after_its_children_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    iterator = begun()
    got = next(iterator).tolist()
    victim = iterator._workers[0].pid
    os.kill(victim, signal.SIGKILL)
    assert all_gone([victim]) or victim not in {
        child.pid for child in multiprocessing.active_children()
    }
    multiprocessing.active_children()  # takes its exit status
    got += samples(iterator)
    assert got == list(range(200))
    assert any("SIGKILL" in record.getMessage() for record in caplog.records), caplog.text


def test_no_dead_child_stays_behind(tmp_path: Path) -> None:
    code = """
        import psutil, warnings
        warnings.simplefilter("ignore")    # of too many workers
        loader = DataLoader(Numbers(40), 10, num_workers=3)
        for _ in range(10):
            list(loader)
            next(iter(loader))
        give_up = time.monotonic() + 30
        while psutil.Process().children() and time.monotonic() < give_up:
            time.sleep(0.02)
        say(psutil.Process().children())
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "[]\n", "")


@pytest.mark.parametrize("thread", ["threading.Thread(target=begin)", "None"])
def test_they_go_with_a_main_process_that_is_killed(tmp_path: Path, thread: str) -> None:
    code = f"""
        import psutil
        box = []
        def begin():
            box.append(iter(DataLoader(Numbers(nap_s=30), num_workers=2)))   # busy in a sample
        thread = {thread}
        if thread is None:
            begin()
        else:
            thread.start()
            thread.join()                              # whoever forked them is gone
        say(*[worker.pid for worker in box[0]._workers])
        time.sleep(60)
    """
    with program(tmp_path, code) as process:
        pids = [int(pid) for pid in line(process).split()]
        assert len(pids) == 2, finish(process)
        process.kill()
        assert all_gone(pids)


def test_a_file_that_all_read_from_has_a_position_of_its_own_in_each(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(200)))

    class Reads(Numbers):
        def __init__(self) -> None:
            super().__init__(nap_s=0.001)
            self.file = path.open("rb", buffering=0)
            self.file.seek(3)

        def __getitem__(self, index: int) -> int:
            self.file.seek(index)
            time.sleep(self.nap_s)
            return self.file.read(1)[0]

    dataset = Reads()
    iterator = begun(dataset=dataset)
    got = next(iterator).tolist()
    for batch in iterator:
        got += batch.tolist()
        assert dataset.file.tell() == 3
    assert got == list(range(200))
    dataset.file.close()
