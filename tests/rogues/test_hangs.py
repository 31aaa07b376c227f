"""Samples that do not come back: what is said about them, how soon, and who loads them instead."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import IterableDataset

from antifreeze import DataLoader
from antifreeze._core.limits import LIMITS
from antifreeze.errors import WorkerHung

from ..other_limits import other_limits
from .programs import finish, program

HANG_AT = 5
LONG_S = 1000.0


class Rogue:
    """Loads its index, but for one sample: that does something else first, every time or once."""

    def __init__(self, deed: Callable[[], object], once: Path | None = None) -> None:
        self.deed, self.once = deed, once

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == HANG_AT and (self.once is None or not self.once.exists()):
            if self.once is not None:
                self.once.touch()
            self.deed()  # the line that is waited for
        return index


def line_of(word: str) -> int:
    """Find a line of this file."""
    text = Path(__file__).read_text().splitlines()
    (found,) = [number for number, line in enumerate(text, 1) if line.rstrip().endswith(word)]
    return found


SOON = other_limits(
    stalls={
        "reported_s": (3.0, 20.0, 100.0, 600.0),
        "examined_s": 0.5,
        "moved_s": 2.0,
        "spun_s": 2.0,
        "moving_s": 4.0,
        "cpu_s": 0.03,  # a look is 0.2 s, a tick of the kernel 0.01 s
    },
    looks={"workers_s": 0.2, "own_s": 0.25},
)


class SoonLoader(DataLoader[Any]):
    """Everything happens sooner, but not so soon that a busy machine counts as stillness."""

    _limits = SOON


def reported(
    dataset: Any,
    caplog: pytest.LogCaptureFixture,
    within_s: float = 60.0,
    context: str | None = None,
) -> str:
    """Loop until somebody is reported; give what was said."""
    caplog.set_level(logging.INFO, "antifreeze")
    loader = SoonLoader(dataset, batch_size=3, num_workers=2, multiprocessing_context=context)
    iterator = iter(loader)
    thread = threading.Thread(target=lambda: list(_until_closed(iterator)), name="loop")
    thread.start()
    give_up = time.monotonic() + within_s
    try:
        while time.monotonic() < give_up:
            found = [r.getMessage() for r in caplog.records if "waiting" in r.getMessage()]
            if found:
                return found[0]
            time.sleep(0.05)
        raise AssertionError(f"nothing was said in {within_s} s")
    finally:
        iterator._shutdown_workers()
        thread.join(30)


def _until_closed(iterator: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from iterator
    except RuntimeError:
        return


def _sleep() -> None:
    time.sleep(LONG_S)  # sleeps here


def _spin() -> None:
    while True: pass  # spins here  # fmt: skip  # noqa: E701


def _compute() -> None:
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        sum(number for number in range(300_000))
        [number for number in range(300_000) if number % 3]
        for _ in range(300_000):
            pass


def _wait_for_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # waits here


def _keep_the_interpreter() -> None:
    mutex = ctypes.create_string_buffer(64)
    library = ctypes.PyDLL(None)  # calls keep the interpreter's lock
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)  # keeps the GIL here


@pytest.mark.parametrize(
    ("deed", "pulse", "line", "waits_for"),
    [
        (_sleep, "stuck", "# sleeps here", "sleeping"),
        (_wait_for_lock, "deadlocked", "# waits here", "waiting for a lock"),
        (_keep_the_interpreter, "deadlocked", "# keeps the GIL here", "waiting for a lock"),
        (_spin, "running on one line", "# noqa: E701", ""),
    ],
    ids=["sleeps", "waits for a lock", "keeps the interpreter's lock", "spins"],
)
def test_a_report_names_sample_line_and_what_the_kernel_says(
    deed: Callable[[], object],
    pulse: str,
    line: str,
    waits_for: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = reported(Rogue(deed), caplog)
    assert f"sample {HANG_AT} (batch 1)" in said
    assert f"is {pulse}" in said
    assert f"at test_hangs.py:{line_of(line)}, in {deed.__name__}" in said
    assert waits_for in said
    assert re.search(r"worker 1 \(pid \d+\)", said)
    assert "\n" not in said


def test_the_whole_stack_is_told_at_info(caplog: pytest.LogCaptureFixture) -> None:
    reported(Rogue(_sleep), caplog)
    infos = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    (told,) = [each for each in infos if "workers are forked" not in each]
    assert f"line {line_of('# the line that is waited for')}, in __getitem__" in told
    assert f"line {line_of('# sleeps here')}, in _sleep" in told


def test_what_computes_is_left_to_work(caplog: pytest.LogCaptureFixture) -> None:
    said = reported(Rogue(_compute), caplog)
    assert "is slow but moving" in said or "is running at" in said
    assert "It is left to work" in said


def test_a_sample_that_waits_for_a_program_is_as_busy_as_the_program(
    caplog: pytest.LogCaptureFixture,
) -> None:
    code = "import time; end = time.time() + 10\nwhile time.time() < end: sum(range(10_000))"
    said = reported(Rogue(lambda: subprocess.run([sys.executable, "-c", code])), caplog)
    assert "stuck" not in said
    assert "waiting for" in said


def test_the_path_of_a_pipe_that_nobody_writes_to(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = tmp_path / "nobody-writes.fifo"
    os.mkfifo(path)
    keep = os.open(path, os.O_RDWR)
    try:
        said = reported(Rogue(lambda: path.read_bytes()), caplog)
    finally:
        os.close(keep)
    assert f"reading {path}" in said


@pytest.mark.parametrize("timeout_s", [None, LONG_S], ids=["recv", "poll"])
def test_the_peer_of_a_socket_that_does_not_answer(
    timeout_s: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def ask() -> None:
            with socket.create_connection(("127.0.0.1", port), timeout_s) as asked:
                asked.recv(10)

        said = reported(Rogue(ask), caplog)
    assert f"from 127.0.0.1:{port}" in said


def test_a_stopped_worker_is_told_to_go_on_and_the_epoch_is_complete(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "antifreeze")
    deed = lambda: os.kill(os.getpid(), signal.SIGSTOP)  # noqa: E731
    batches = list(SoonLoader(Rogue(deed), num_workers=2))
    assert [int(batch) for batch in batches] == list(range(12))
    assert any("is stopped" in r.getMessage() for r in caplog.records)
    assert not any("replaced" in r.getMessage() for r in caplog.records)


def test_with_a_limit_the_sample_is_loaded_again_elsewhere(tmp_path: Path) -> None:
    loader = DataLoader(
        Rogue(_sleep, tmp_path / "once"), batch_size=3, num_workers=2, sample_timeout=0.5
    )
    began = time.monotonic()
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert time.monotonic() - began < 5 * (0.5 + 0.3)


def test_a_sample_that_hangs_again_is_raised_with_what_was_seen_and_the_rest_goes_on() -> None:
    loader = DataLoader(Rogue(_sleep), batch_size=3, num_workers=2, sample_timeout=0.5)
    iterator, seen = iter(loader), []
    with pytest.raises(WorkerHung) as caught:
        for batch in iterator:
            seen.append(batch.tolist())
    seen += [batch.tolist() for batch in iterator]
    assert seen == [[0, 1, 2], [6, 7, 8], [9, 10, 11]]
    text = str(caught.value)
    assert f"sample {HANG_AT}" in text
    assert "sample_timeout" in text


def test_a_limit_is_for_each_sample_not_for_the_batch() -> None:
    class Slow(Rogue):
        def __getitem__(self, index: int) -> int:
            time.sleep(0.2)
            return index

    loader = DataLoader(Slow(_sleep), batch_size=12, num_workers=1, sample_timeout=1.0)
    assert [batch.tolist() for batch in loader] == [list(range(12))]


@pytest.mark.parametrize("where", ["collate", "init", "__getitems__"])
def test_a_limit_holds_for_all_calls_of_the_users_code(where: str, tmp_path: Path) -> None:
    once = tmp_path / "once"

    def hang_once(*ignored: Any) -> Any:
        if not once.exists():
            once.touch()
            time.sleep(LONG_S)
        return ignored[0] if ignored else None

    class AtOnce(Rogue):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return hang_once(indices)

    dataset = AtOnce(_sleep) if where == "__getitems__" else range(12)
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=4,
        num_workers=1,
        sample_timeout=0.5,
        collate_fn=hang_once if where == "collate" else list,
        worker_init_fn=hang_once if where == "init" else None,
    )
    assert list(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(3)
        time.sleep(LONG_S)
        yield 3


def test_a_stream_that_hangs_is_an_honest_error() -> None:
    iterator = iter(DataLoader(Stream(), batch_size=None, num_workers=1, sample_timeout=0.5))
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(WorkerHung, match="after 3 batches"):
        next(iterator)
    assert list(iterator) == []


def test_a_lock_that_was_held_at_the_fork_does_not_stop_the_epoch(
    tmp_path: Path,
) -> None:
    code = """
    lock = threading.Lock()

    class Locked:
        def __len__(self):
            return 8
        def __getitem__(self, index):
            with lock:
                return index

    if __name__ == "__main__":
        lock.acquire()
        began = time.monotonic()
        print([int(b) for b in DataLoader(Locked(), num_workers=2)])
        print(time.monotonic() - began)
    """
    with program(tmp_path, code) as process:
        code_of, out, err = finish(process)
    assert code_of == 0
    assert out.startswith("[0, 1, 2, 3, 4, 5, 6, 7]")
    assert float(out.split()[-1]) < 5 * 14
    assert "deadlocked at program.py" in err
    assert "no worker got going; all are made anew, in a clean process" in err


def test_nothing_is_said_about_workers_that_are_slow_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Slow(Rogue):
        def __getitem__(self, index: int) -> int:
            time.sleep(1.5 if index == HANG_AT else 0)
            return index

    assert len(list(DataLoader(Slow(_sleep), num_workers=2))) == 12
    assert caplog.records == []


def _event_that_a_timer_sets() -> None:
    event = threading.Event()
    threading.Timer(8.0, event.set).start()
    event.wait()


def _alarm_that_raises() -> None:
    def wake(*ignored: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, wake)
    signal.alarm(8)
    lock = threading.Lock()
    lock.acquire()
    with contextlib.suppress(TimeoutError):
        lock.acquire()


def _event_that_is_set_when_a_child_ends() -> None:
    event = threading.Event()
    signal.signal(signal.SIGCHLD, lambda *ignored: event.set())
    with subprocess.Popen(["sleep", "8"]):
        event.wait()


@pytest.mark.parametrize(
    "deed",
    [_event_that_a_timer_sets, _alarm_that_raises, _event_that_is_set_when_a_child_ends],
)
def test_what_somebody_will_wake_is_no_deadlock(
    deed: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    batches = [int(batch) for batch in DataLoader(Rogue(deed), num_workers=2)]
    assert batches == list(range(12))
    assert not any("deadlocked" in r.getMessage() for r in caplog.records)
    assert not any("replaced." in r.getMessage() for r in caplog.records)


def _give_way(worker: int) -> None:
    """Leave one processor to others, and use no other."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


@pytest.mark.slow
def test_a_worker_that_gets_no_processor_is_not_stuck(caplog: pytest.LogCaptureFixture) -> None:
    code = (
        "import os, time; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "end = time.monotonic() + 6\nwhile time.monotonic() < end: pass"
    )
    with subprocess.Popen([sys.executable, "-c", code]):
        loader = SoonLoader(Rogue(_compute_a_little), num_workers=1, worker_init_fn=_give_way)
        assert [int(batch) for batch in loader] == list(range(12))
    assert loader.faults == []
    assert not any("stuck" in r.getMessage() for r in caplog.records)


def _compute_a_little() -> None:
    end = time.thread_time() + 0.1  # many times what is left for it
    while time.thread_time() < end:
        sum(range(1000))


def test_several_samples_that_hang_in_a_row_are_raised_one_by_one() -> None:
    class Server(Rogue):
        def __getitem__(self, index: int) -> int:
            if 2 <= index < 8:
                time.sleep(LONG_S)
            return index

    iterator, seen, hung = (
        iter(DataLoader(Server(_sleep), num_workers=1, sample_timeout=0.2)),
        [],
        0,
    )
    while True:
        try:
            seen.append(int(next(iterator)))
        except StopIteration:
            break
        except WorkerHung:
            hung += 1
    assert seen == [0, 1, 8, 9, 10, 11]
    assert hung == 6


def test_an_init_function_that_hangs_is_named() -> None:
    loader = DataLoader(
        range(4),
        num_workers=1,
        sample_timeout=0.3,
        worker_init_fn=lambda worker: time.sleep(LONG_S),
    )
    with pytest.raises(WorkerHung, match="worker_init_fn was stuck"):
        list(loader)


def test_healthy_workers_survive_being_watched_very_often() -> None:
    """A stack that is read while its frames change has crashed interpreters."""

    class Busy(Rogue):
        def __len__(self) -> int:
            return 400

        def __getitem__(self, index: int) -> int:
            return sum(sum(range(n)) for n in range(100)) * 0 + index

    loader = DataLoader(Busy(_sleep), num_workers=6, sample_timeout=0.2)
    assert [int(batch) for batch in loader] == list(range(400))
    assert loader.faults == []


class Unpicklable:
    """Hangs when it is packed."""

    def __reduce__(self) -> Any:
        time.sleep(LONG_S)  # packs here


def test_an_object_that_hangs_while_its_batch_is_packed_is_under_the_limit() -> None:
    loader = DataLoader(
        list(range(4)),
        num_workers=1,
        collate_fn=lambda samples: Unpicklable() if samples == [1] else samples,
        # What has moved at its first look, on a busy machine, counts as moving for so long.
        sample_timeout=LIMITS.stalls.moved_s + 3.0,
    )
    iterator = iter(loader)
    assert next(iterator) == [0]
    with pytest.raises(WorkerHung) as caught:
        next(iterator)
    text = str(caught.value)
    place = f"test_hangs.py:{line_of('# packs here')}, in __reduce__"
    assert f"packing samples [1] (batch 1) was stuck at {place}" in text
    assert list(iterator) == [[2], [3]]
