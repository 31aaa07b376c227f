"""What never returns in the main process itself: nothing can be replaced there, but it is said."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import IterableDataset

from antifreeze import DataLoader
from antifreeze._core.limits import LIMITS
from antifreeze._engine import main_process_monitor
from antifreeze._processes.fork_safety import fork_hazards

from ..other_limits import other_limits
from .programs import finish, program

HANG_AT = 5
LENGTH = 12


class Deed:
    """Something that lasts until it is told to end."""

    def __init__(self) -> None:
        self.over = False
        self._end, self._begin = os.pipe()

    def read(self) -> None:
        os.read(self._end, 1)  # reads here

    def compute(self) -> None:
        while not self.over:
            sum(number for number in range(30_000))
            [number for number in range(30_000) if number % 3]

    def use_pool(self) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self.compute).result()

    def end(self) -> None:
        self.over = True
        os.write(self._begin, bytes(10))  # not closed: workers have it, too

    def close(self) -> None:
        os.close(self._begin)
        os.close(self._end)


@pytest.fixture
def deed() -> Iterator[Deed]:
    it = Deed()
    yield it
    it.close()


def lasts(deed: Callable[[], object], index: int = HANG_AT) -> None:
    if index == HANG_AT:
        deed()


class Samples:
    def __init__(self, deed: Callable[[], object]) -> None:
        self.deed = deed

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        lasts(self.deed, index)
        return index


class Listed(Samples):
    def __init__(self, deed: Callable[[], object]) -> None:
        super().__init__(deed)
        self.paths = [f"photos/{index}.jpg" for index in range(LENGTH)]

    def __getitem__(self, index: int) -> int:
        lasts(self.deed, index)
        return len(self.paths[index])


class Whole(Samples):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


class Stream(IterableDataset[int]):
    def __init__(self, deed: Callable[[], object]) -> None:
        self.deed = deed

    def __iter__(self) -> Iterator[int]:
        for index in range(LENGTH):
            lasts(self.deed, index)
            yield index


class SlowToBegin(Stream):
    def __iter__(self) -> Iterator[int]:
        lasts(self.deed)
        return iter(range(LENGTH))


class Batches:
    """A sampler that hangs when it is asked for a batch, or for its iterator."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self.deed = deed

    def __iter__(self) -> Iterator[list[int]]:
        for index in range(LENGTH):
            lasts(self.deed, index)
            yield [index]


class BatchesAtOnce(Batches):
    def __iter__(self) -> Iterator[list[int]]:
        lasts(self.deed)
        return iter([[0], [1]])


SOON = other_limits(
    stalls={
        "reported_s": (3.0, 20.0, 100.0, 600.0),
        "examined_s": 0.5,
        "moved_s": 2.0,
        "cpu_s": 0.03,
        "moving_s": 3.5,
    },
    looks={"main_process_s": 0.2},
)


# What works is told of at a second look, if it was on its way at the first.
AGAIN_SOON = replace(SOON, stalls=replace(SOON.stalls, reported_s=(3.0, 6.0, 100.0, 600.0)))


class SoonLoader(DataLoader[Any]):
    """Everything happens sooner, but not so soon that a busy machine counts as stillness."""

    _limits = SOON


class SoonAtWorkers(SoonLoader):
    """The same, and workers are looked at as often as the main process."""

    _limits = replace(SOON, looks=replace(SOON.looks, workers_s=0.2))


def said(
    make: Callable[[], Any], deed: Deed, caplog: pytest.LogCaptureFixture, more_s: float = 0.0
) -> list[str]:
    """Loop until something is said, and so long beyond; then let the loop end."""
    caplog.set_level(logging.INFO, "antifreeze")
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend(make()), name="loop")
    thread.start()
    give_up = time.monotonic() + 30.0
    try:
        while not (found := _reports(caplog)) and time.monotonic() < give_up:
            time.sleep(0.05)
        time.sleep(more_s)
        found = _reports(caplog)
    finally:
        deed.end()
        thread.join(30)
    assert seen, "the loop goes on when its code does"
    return found


def _reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "antifreeze: waiting" in r.getMessage()]


def of_pid() -> str:
    return rf"antifreeze: waiting \d+ s in this process \(pid {os.getpid()}\): "


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (Samples, rf"sample {HANG_AT} \(batch 1\)"),
        (Whole, r"loading samples \[3, 4, 5\] \(batch 1\)"),
        (Stream, r"the next sample of its stream \(batch 1\)"),
        (SlowToBegin, "preparing the dataset"),
    ],
)
def test_without_workers_it_is_said_what_is_stuck_and_where(
    kind: Any, what: str, deed: Deed, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = kind(deed.read)
    (line,) = said(lambda: SoonLoader(dataset, batch_size=3), deed, caplog)
    (at,) = _lines_with("# reads here")
    where = rf"at {Path(__file__).name}:{at}, in read"
    assert re.match(rf"{of_pid()}{what} is stuck {where} \(reading a pipe; no CPU", line), line
    assert "with num_workers=1 it could be" in line
    assert "\n" not in line
    assert "in lasts" in caplog.text  # the stack, for those who want to know more


def test_without_workers_the_file_of_a_sample_is_named(
    deed: Deed, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = Listed(deed.read)
    (line,) = said(lambda: SoonLoader(dataset, batch_size=3), deed, caplog)
    assert line.endswith(f"(file: photos/{HANG_AT}.jpg)")


def _lines_with(word: str) -> list[int]:
    text = Path(__file__).read_text().splitlines()
    return [number for number, line in enumerate(text, 1) if line.rstrip().endswith(word)]


def test_without_workers_a_collate_function_is_named(
    deed: Deed, caplog: pytest.LogCaptureFixture
) -> None:
    def collate(samples: list[int]) -> list[int]:
        lasts(deed.read, samples[0])
        return samples

    def make() -> Any:
        return SoonLoader(range(LENGTH), batch_size=5, collate_fn=collate)

    (line,) = said(make, deed, caplog)
    assert "collating samples [5, 6, 7, 8, 9] (batch 1) is stuck" in line


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("kind", "batch"), [(Batches, HANG_AT), (BatchesAtOnce, 0)])
def test_a_sampler_that_does_not_return_is_named(
    kind: Any, batch: int, workers: int, deed: Deed, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> Any:
        return SoonLoader(
            range(LENGTH),
            batch_sampler=kind(deed.read),
            num_workers=workers,
        )

    (line,) = said(make, deed, caplog)
    assert re.match(rf"{of_pid()}the sampler \(batch {batch}\) is stuck at ", line), line
    assert "where samplers run" in line
    assert "num_workers" not in line  # it would not help


@pytest.mark.parametrize("way", ["compute", "use_pool"])
def test_what_works_is_said_to_run_or_to_move(
    way: str, deed: Deed, caplog: pytest.LogCaptureFixture
) -> None:
    dataset: Any = Samples(getattr(deed, way))
    loader = SoonLoader(dataset, batch_size=3)
    loader._limits = AGAIN_SOON
    (line,) = said(lambda: loader, deed, caplog)
    assert re.search(rf"sample {HANG_AT} \(batch 1\) is (slow but moving|running) at ", line), line
    assert ("waiting for a lock" in line) == (way == "use_pool")


def test_of_a_loop_inside_a_loop_one_line_is_said(
    deed: Deed, caplog: pytest.LogCaptureFixture
) -> None:
    inner: Any = Samples(deed.read)

    class Outer(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(SoonLoader(inner, batch_size=3))

    (line,) = said(lambda: SoonLoader(Outer(), batch_size=None), deed, caplog, more_s=2.0)
    assert f"sample {HANG_AT} (batch 1) is stuck" in line


def test_who_waits_for_workers_inside_a_loop_without_is_told_of_by_them(
    deed: Deed, caplog: pytest.LogCaptureFixture
) -> None:
    inner: Any = Samples(deed.read)

    class Outer(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            # Forked, whatever the main thread does: the pipe that its sample reads is a number,
            # which means nothing in a clean process.
            loader = SoonAtWorkers(
                inner, batch_size=3, num_workers=1, multiprocessing_context="fork"
            )
            return iter(loader)

    (line,) = said(lambda: SoonLoader(Outer(), batch_size=None), deed, caplog, more_s=2.0)
    assert "for worker 0" in line


def test_a_loop_that_is_away_is_nobodys_business(caplog: pytest.LogCaptureFixture) -> None:
    for _ in SoonLoader(range(2)):
        time.sleep(4.0)
    assert _reports(caplog) == []


def bystanders() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "antifreeze-bystander"]


def test_one_thread_looks_at_all_loops_and_ends_with_the_last_of_them() -> None:
    loops = [iter(DataLoader(range(3))) for _ in range(5)]
    (thread,) = bystanders()
    seen = weakref.ref(loops[0])
    list(loops.pop())
    loops[1]._shutdown_workers()
    assert bystanders() == [thread]
    loops.clear()  # in the middle of their epochs
    gc.collect()
    assert seen() is None
    thread.join(5 * LIMITS.looks.main_process_s)
    assert not thread.is_alive()


def test_a_loop_that_comes_while_the_thread_ends_is_looked_at() -> None:
    for _ in range(200):
        iterator = iter(DataLoader(range(3)))
        assert bystanders()
        del iterator
        main_process_monitor.rest()


def test_the_thread_is_no_reason_against_a_fork() -> None:
    before = fork_hazards.program().threads
    iterator = iter(DataLoader(range(3)))
    assert bystanders()
    assert fork_hazards.program().threads == before
    del iterator


def test_in_ten_seconds_a_program_without_workers_says_what_it_is_stuck_in(tmp_path: Path) -> None:
    code = """
    class Sleeps(Numbers):
        def __getitem__(self, index):
            if index == 5:
                signal.alarm(50)  # it does nothing else in five times the promised time
                time.sleep(1000)
            return index

    def late(number, frame):
        os._exit(3)

    signal.signal(signal.SIGALRM, late)
    for batch in DataLoader(Sleeps(), batch_size=4):
        say(time.monotonic())
    """
    with program(tmp_path, code) as process:
        assert process.stdout is not None and process.stderr is not None
        began = float(process.stdout.readline())
        line = process.stderr.readline()
        assert "sample 5 (batch 1) is stuck at program.py" in line
        assert time.monotonic() - began < 50.0
        process.send_signal(signal.SIGINT)
        assert process.wait(30) not in (0, 3)


def test_a_program_that_leaves_its_loop_ends_at_once_and_without_a_word(tmp_path: Path) -> None:
    code = """
    iterator = iter(DataLoader(Numbers(), batch_size=4))
    next(iterator)
    assert any(each.name == "antifreeze-bystander" for each in threading.enumerate())
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "", "")


def test_a_forked_child_has_no_thread_and_loops_on(tmp_path: Path) -> None:
    code = """
    iterator = iter(DataLoader(Numbers(8), batch_size=4))
    next(iterator)
    child = os.fork()
    if child == 0:
        names = [each.name for each in threading.enumerate()]
        again = len(list(DataLoader(Numbers(8), batch_size=4)))
        say("antifreeze-bystander" in names, len(list(iterator)), again)
        os._exit(0)
    os.waitpid(child, 0)
    say(any(each.name == "antifreeze-bystander" for each in threading.enumerate()))
    """
    with program(tmp_path, code) as process:
        _, out, err = finish(process)
    assert out.split() == ["False", "1", "2", "True"]
    assert err == ""


def test_neither_workers_nor_torchs_own_loader_have_such_a_thread(tmp_path: Path) -> None:
    code = """
    class Nested(Numbers):
        def __getitem__(self, index):
            iterator = iter(DataLoader(Numbers(3)))
            next(iterator)
            return any(each.name == "antifreeze-bystander" for each in threading.enumerate())

    if __name__ == "__main__":
        os.environ["ANTIFREEZE"] = "off"
        say(bool(torch.cat(list(DataLoader(Nested(4)))).any()))
        del os.environ["ANTIFREEZE"]
        say(bool(torch.cat(list(DataLoader(Nested(4), num_workers=2))).any()))
    """
    with program(tmp_path, code) as process:
        _, out, err = finish(process)
    assert out.split() == ["False", "False"], err
