"""Workers that do not answer, do not leave, or are stopped: nobody waits for them for long."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from antifreeze import DataLoader
from antifreeze.errors import LoaderClosed, WorkerHung

from .programs import finish, line, program

LEAVE_S = 0.5  # the promise; a test allows five times that


class Naps:
    def __init__(self, nap_s: float, stubborn: bool = False) -> None:
        self.nap_s, self.stubborn = nap_s, stubborn

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if self.stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if index >= 2:
            time.sleep(self.nap_s)
        return index


@pytest.mark.parametrize("stubborn", [False, True], ids=["busy", "ignores SIGTERM"])
def test_leaving_a_loop_does_not_wait_for_busy_workers(stubborn: bool) -> None:
    iterator = iter(DataLoader(Naps(60, stubborn), num_workers=2))
    next(iterator)
    workers = iterator._workers
    before = time.monotonic()
    del iterator
    assert time.monotonic() - before < 5 * LEAVE_S
    assert not any(worker.is_alive() for worker in workers)


class Converts:
    """A program is started for each sample, and does not end."""

    def __init__(self, folder: Path, *, apart: bool) -> None:
        self.folder, self.apart = folder, apart

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        command = ["sh", "-c", "sleep 90 & echo $! $$; wait"]
        started = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=self.apart)
        assert started.stdout is not None
        (self.folder / f"new{index}").write_bytes(started.stdout.readline())
        (self.folder / f"new{index}").rename(self.folder / f"pids{index}")
        return started.wait()


@pytest.mark.parametrize("timeout", [None, 1.5], ids=["loop left", "sample_timeout"])
@pytest.mark.parametrize("apart", [False, True], ids=["its own", "in a session of its own"])
def test_what_a_worker_has_started_goes_with_it_if_it_is_ended_by_force(
    tmp_path: Path, timeout: float | None, apart: bool
) -> None:
    loader = DataLoader(Converts(tmp_path, apart=apart), num_workers=1, sample_timeout=timeout)
    iterator = iter(loader)
    if timeout is not None:
        with pytest.raises(WorkerHung):
            next(iterator)
    else:
        while not (tmp_path / "pids0").exists():
            time.sleep(0.01)
    iterator._shutdown_workers()
    pids = [int(pid) for path in tmp_path.glob("pids*") for pid in path.read_text().split()]
    assert pids
    give_up = time.monotonic() + 10
    while not apart and any(map(is_running, pids)) and time.monotonic() < give_up:
        time.sleep(0.01)
    left = [pid for pid in pids if is_running(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == (pids if apart else [])


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_stopped_worker_is_a_timeout_and_can_be_left() -> None:
    iterator = iter(DataLoader(Naps(0), num_workers=1, timeout=1))
    next(iterator)
    os.kill(iterator._workers[0].pid, signal.SIGSTOP)
    with pytest.raises(WorkerHung, match="DataLoader timed out after 1 seconds") as caught:
        for _ in range(100):
            next(iterator)
    assert f"(pid {iterator._workers[0].pid})" in str(caught.value)
    before = time.monotonic()
    del caught
    iterator._shutdown_workers()
    assert time.monotonic() - before < 5 * LEAVE_S


def test_a_loop_left_by_an_error_keeps_no_worker_although_nothing_is_collected() -> None:
    def loop() -> list[int]:
        iterator = iter(DataLoader(Naps(60), num_workers=2, timeout=1))
        pids = [worker.pid for worker in iterator._workers]
        with contextlib.suppress(WorkerHung):
            while True:
                next(iterator)
        return pids

    gc.disable()
    try:
        pids = loop()
        give_up = time.monotonic() + 5 * LEAVE_S
        while any(map(is_running, pids)) and time.monotonic() < give_up:
            time.sleep(0.01)
        assert not any(map(is_running, pids))
    finally:
        gc.enable()


def test_a_stopped_worker_that_goes_on_again_has_lost_nothing() -> None:
    iterator = iter(DataLoader(Naps(0), batch_size=5, num_workers=1, timeout=1))
    got = next(iterator).tolist()
    pid = iterator._workers[0].pid
    os.kill(pid, signal.SIGSTOP)
    while True:
        try:
            got += next(iterator).tolist()
        except WorkerHung:
            os.kill(pid, signal.SIGCONT)
        except StopIteration:
            break
    assert got == list(range(100))


def test_closing_from_another_thread_wakes_the_loop() -> None:
    iterator = iter(DataLoader(Naps(60), num_workers=1))
    next(iterator)
    next(iterator)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            next(iterator)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    before = time.monotonic()
    iterator._shutdown_workers()
    thread.join(30)
    assert time.monotonic() - before < 5 * LEAVE_S
    assert isinstance(raised[0], LoaderClosed)


def test_the_program_ends_although_workers_hold_the_gil_for_ever(tmp_path: Path) -> None:
    code = """
        import ctypes
        class HoldsTheGil(Numbers):
            def __getitem__(self, index):
                if index > 1:
                    ctypes.PyDLL(None).sleep(60)    # PyDLL: the GIL is kept
                return index
        iterator = iter(DataLoader(HoldsTheGil(), num_workers=2))
        next(iterator); next(iterator)
        time.sleep(0.3)
        say("leaving")
    """
    with program(tmp_path, code) as process:
        assert line(process) == "leaving"
        before = time.monotonic()
        returned, _, err = finish(process)
        assert (returned, err) == (0, "")
        assert time.monotonic() - before < 30


@pytest.mark.parametrize("forked", ["60", "0"])  # by the main process, or by the zygote
@pytest.mark.parametrize("index", [6, 7])  # of the first worker, or of the second
def test_a_worker_that_closes_every_descriptor_is_replaced(
    tmp_path: Path, index: int, forked: str
) -> None:
    code = f"""
        from dataclasses import replace
        from antifreeze._core.limits import LIMITS
        starting = replace(LIMITS.starting, first_workers_cpu_s={forked})
        class Loader(DataLoader):
            _limits = replace(LIMITS, starting=starting)
        class ClosesAll(Numbers):
            def __getitem__(self, index):
                if index == {index} and not os.path.exists(sys.argv[0] + ".done"):
                    open(sys.argv[0] + ".done", "w").close()
                    os.closerange(3, 4096)
                    time.sleep(60)
                return index
        got = [int(i) for i in Loader(ClosesAll(40), num_workers=2)]
        assert got == list(range(40)), got
        say("all")
    """
    with program(tmp_path, code) as process:
        returned, out, err = finish(process)
    assert (returned, out) == (0, "all\n")
    assert err.count("\n") == 1  # one line says what happened
    assert err.startswith("antifreeze: DataLoader worker (pid ") and err.endswith(
        "The worker is replaced.\n"
    )


def test_keeping_every_batch_costs_no_descriptors(tmp_path: Path) -> None:
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        class Large(Numbers):
            def __getitem__(self, index):
                return torch.full((40_000,), index)
        kept = list(DataLoader(Large(200), batch_size=1, num_workers=2))
        assert [int(batch[0, 0]) for batch in kept] == list(range(200))
        say("kept")
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "kept\n", "")
