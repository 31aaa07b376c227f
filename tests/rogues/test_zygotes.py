"""Where workers come from: what a zygote gives them, and what happens when it is gone itself."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import signal
import socket
import sqlite3
import time
import warnings
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from antifreeze import DataLoader

from ..other_limits import other_limits
from ..patience import PATIENCE_S
from .programs import all_gone, finish, is_alive, line, program

RESTART_S = 0.05  # the promise for a replaced worker; a test allows five times that


class Numbers:
    def __init__(self, length: int = 400, nap_s: float = 0.0) -> None:
        self.length, self.nap_s = length, nap_s

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        time.sleep(self.nap_s)
        return index


def zygote_of(iterator: Any) -> int:
    """Give the pid of the process that the workers were forked from."""
    (pid,) = {psutil.Process(worker.pid).ppid() for worker in iterator._workers}
    assert psutil.Process(pid).ppid() == os.getpid()
    return int(pid)


class ByZygote(DataLoader[Any]):
    """All workers are forked by the zygote, as those are that come later."""

    _limits = other_limits(starting={"first_workers_cpu_s": 0.0})


class Impatient(DataLoader[Any]):
    """Forked workers have a second to begin."""

    _limits = other_limits(starting={"forked_s": 1.0})


def test_all_workers_come_from_one_process_that_is_not_the_main_one() -> None:
    iterator = iter(ByZygote(Numbers(nap_s=0.01), num_workers=3))
    zygote = psutil.Process(zygote_of(iterator))
    assert zygote.ppid() == os.getpid()
    assert zygote.num_threads() == 1
    own = {child.pid for child in psutil.Process().children()}
    assert zygote.pid in own
    assert not own & {worker.pid for worker in iterator._workers}


@pytest.mark.parametrize("force", [signal.SIGKILL, signal.SIGTERM])
def test_a_zygote_that_dies_is_replaced_and_nothing_is_lost(
    force: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    iterator = iter(ByZygote(Numbers(nap_s=0.002), 10, num_workers=2))
    got, zygotes, workers = [], [], []
    for place, batch in enumerate(iterator):
        got += batch.tolist()
        if place in (5, 15):
            zygotes.append(zygote_of(iterator))
            workers += [worker.pid for worker in iterator._workers]
            os.kill(zygotes[-1], force)
            assert all_gone(zygotes[-1:])  # it may have to wait for a processor to die on
    assert got == list(range(400))
    assert len(set(zygotes)) == 2
    assert all_gone(zygotes + workers)
    said = [record.getMessage() for record in caplog.records if record.name == "antifreeze"]
    assert len(said) == 4  # each of two workers, twice
    for text, zygote in zip(said, [zygotes[0]] * 2 + [zygotes[1]] * 2, strict=True):
        assert f"ended: its zygote (pid {zygote}) was killed by signal {force.value}." in text
        assert "held no batch" in text  # whatever it worked on is not to blame


def test_a_sample_is_not_blamed_for_the_deaths_of_zygotes() -> None:
    # Each sample may end two workers at most; these three deaths are not its own.
    iterator = iter(ByZygote(Numbers(16, nap_s=0.1), num_workers=1))
    got, zygotes = [], []
    for batch in iterator:
        got.append(int(batch))
        if len(zygotes) < 3 and is_new(iterator, zygotes):
            zygotes.append(zygote_of(iterator))
            kill_with_workers(iterator)
    assert got == list(range(16))
    assert len(set(zygotes)) == 3


def kill_with_workers(iterator: Any) -> None:
    """Kill a zygote, and see its workers go with it: they may still deliver meanwhile."""
    pids = [zygote_of(iterator), *(worker.pid for worker in iterator._workers)]
    os.kill(pids[0], signal.SIGKILL)
    assert all_gone(pids)


def is_new(iterator: Any, zygotes: list[int]) -> bool:
    """Say whether workers have come up since these zygotes were killed: the loop may have got
    what was ready."""
    pids = [worker.pid for worker in iterator._workers]
    return all(map(is_alive, pids)) and zygote_of(iterator) not in zygotes


def test_a_zygote_killed_between_two_epochs_of_persistent_workers() -> None:
    loader = ByZygote(Numbers(), 10, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert torch.cat(list(loader)).tolist() == list(range(400))
        kill_with_workers(loader._iterator)
    assert torch.cat(list(loader)).tolist() == list(range(400))
    os.kill(zygote_of(loader._iterator), signal.SIGKILL)  # and goes while the epoch begins
    assert torch.cat(list(loader)).tolist() == list(range(400))
    loader._iterator = None


def test_a_zygote_that_does_not_answer_is_replaced() -> None:
    iterator: Any = iter(Impatient(Numbers(nap_s=0.02), 10, num_workers=2))
    got = next(iterator).tolist()
    while iterator._workers[1].pid is None:  # not yet there, on a busy machine
        got += next(iterator).tolist()
    zygote = iterator._driver.backend._source.parent.acting_pid
    os.kill(zygote, signal.SIGSTOP)
    os.kill(iterator._workers[1].pid, signal.SIGKILL)
    for batch in iterator:
        got += batch.tolist()
    assert got == list(range(400))
    assert all_gone([zygote])


def test_a_replaced_worker_is_there_at_once_whatever_the_main_process_has_become() -> None:
    loader = DataLoader(Numbers(4000, nap_s=0.001), 4, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    ballast = torch.ones(256 * 1024 * 1024)  # 1 GiB, after the zygote was made
    taken = []
    for _ in range(5):
        worker = iterator._workers[0]
        worker.kill()
        worker.join(30)
        began = time.monotonic()
        while iterator._workers[0].pid in (worker.pid, None):
            next(iterator)
        taken.append(time.monotonic() - began)
    assert min(taken) < 5 * RESTART_S, taken  # the others: of a machine that is busy
    assert ballast[-1] == 1
    iterator._shutdown_workers()


def test_zygotes_and_workers_go_with_a_main_process_that_is_killed(tmp_path: Path) -> None:
    code = """
        import psutil
        loader = DataLoader(Numbers(nap_s=30), num_workers=2)   # busy in a sample
        box = []
        thread = threading.Thread(target=lambda: box.append(iter(loader)))
        thread.start()
        thread.join()                                  # whoever started them is gone
        [worker.pid for worker in box[0]._workers]
        if os.fork() == 0:                             # and somebody holds everything open
            time.sleep(60)
            os._exit(0)
        say(*[child.pid for child in psutil.Process().children(recursive=True)
              if child.name().startswith("af_")])
        time.sleep(60)
    """
    with program(tmp_path, code) as process:
        pids = [int(pid) for pid in line(process).split()]
        assert len(pids) == 3, finish(process)  # zygote and two workers
        process.kill()
        assert all_gone(pids)


# ---- what a worker is given, and what not -------------------------------------------------------


class Shared(Numbers):
    """Holds what can only be inherited."""

    def __init__(self) -> None:
        super().__init__(40)
        self.lock = multiprocessing.Lock()
        self.value = multiprocessing.Value("i", 0)
        self.queue: multiprocessing.Queue[int] = multiprocessing.Queue()
        self.tensor = torch.zeros(40).share_memory_()
        self.transform = lambda number: number + 1

    def __getitem__(self, index: int) -> int:
        with self.lock:
            self.value.value += 1
        self.tensor[index] = index
        if index == 7:
            self.queue.put(7)
            self.queue.close()
            self.queue.join_thread()
        return self.transform(index)


def test_locks_queues_values_and_shared_tensors_are_the_same_in_all_workers() -> None:
    dataset = Shared()
    batches = list(DataLoader(dataset, 4, num_workers=3))
    assert torch.cat(batches).tolist() == list(range(1, 41))
    assert dataset.value.value == 40
    assert dataset.tensor.tolist() == list(range(40))
    assert dataset.queue.get(timeout=PATIENCE_S) == 7
    dataset.queue.close()
    dataset.queue.join_thread()


class Lines(Numbers):
    """Reads a file that was opened before there were workers."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(300)
        path.write_text("".join(f"{number:05d}\n" for number in range(300)))
        self.file = open(path, "rb" if kind == "bytes" else "r")  # noqa: SIM115
        if kind == "descriptor":
            self.number = os.open(path, os.O_RDONLY)
        self.kind = kind

    def __getitem__(self, index: int) -> int:
        if self.kind == "descriptor":
            os.lseek(self.number, 6 * index, os.SEEK_SET)
            time.sleep(0.0005)  # long enough for a sibling to move a shared position
            return int(os.read(self.number, 6))
        self.file.seek(6 * index)
        time.sleep(0.0005)
        return int(self.file.read(6))


class ReadsOn(Numbers):
    """Reads on from where the file was, as long as there is something."""

    def __init__(self, path: Path) -> None:
        super().__init__(50)
        path.write_bytes(bytes(range(200)))
        self.file = open(path, "rb", buffering=0)  # noqa: SIM115
        self.file.read(100)

    def __getitem__(self, index: int) -> int:
        return self.file.read(1)[0]


def test_a_worker_reads_on_where_the_file_was_at_the_fork(tmp_path: Path) -> None:
    for _ in range(10):
        dataset = ReadsOn(tmp_path / "bytes")
        iterator = iter(DataLoader(dataset, None, num_workers=1))
        dataset.file.read(50)  # at once
        assert [int(byte) for byte in iterator] == list(range(100, 150))
        dataset.file.close()


def test_a_program_that_ignores_its_children_loses_no_zygote(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        iterator = iter(DataLoader(Numbers(200, nap_s=0.002), 4, num_workers=2))
        got = next(iterator).tolist()
        zygote = zygote_of(iterator)
        iterator._workers[0].kill()
        for batch in iterator:
            got += batch.tolist()
            if len(got) == 100:
                assert zygote_of(iterator) == zygote
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert got == list(range(200))
    assert "is killed by signal: Killed." in caplog.text


@pytest.mark.parametrize("kind", ["text", "bytes", "descriptor"])
def test_each_worker_has_its_own_position_in_an_inherited_file(kind: str, tmp_path: Path) -> None:
    dataset = Lines(tmp_path / "lines", kind)
    iterator = iter(DataLoader(dataset, 5, num_workers=3))
    dataset.file.read(100)  # nor does the main process move them, right from the start
    got = []
    for batch in iterator:
        got += batch.tolist()
        dataset.file.read(1)
    assert got == list(range(300))
    dataset.file.close()
    if kind == "descriptor":
        os.close(dataset.number)


def test_a_lock_on_a_file_is_free_as_soon_as_the_loop_is_over(tmp_path: Path) -> None:
    for _ in range(20):  # its zygote, which has inherited the lock, must be gone by then
        dataset = Numbers(4)
        with open(tmp_path / "locked", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            dataset.file = file
            list(DataLoader(dataset, num_workers=1))


def test_connections_that_workers_would_share_are_named_once(tmp_path: Path) -> None:
    dataset = Numbers(4)
    with socket.socket() as sock, contextlib.closing(sqlite3.connect(tmp_path / "rows")) as rows:
        dataset.readers = [None, {"sock": sock}]
        dataset.rows = rows
        with pytest.warns(UserWarning) as told:
            list(DataLoader(dataset, num_workers=1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            list(DataLoader(dataset, num_workers=1))
            list(DataLoader(Numbers(4)))
    texts = sorted(str(warning.message) for warning in told)
    assert len(texts) == 2
    assert "dataset.readers holds an open socket (dataset.readers[1]['sock'])" in texts[0]
    assert "dataset.rows is a database connection (sqlite3.Connection)" in texts[1]
    assert {Path(warning.filename).name for warning in told} == {Path(__file__).name}


class Scored(Numbers):
    def __getitem__(self, index: int) -> int:
        return int(Path("/proc/self/oom_score_adj").read_text())


def test_the_kernel_takes_a_worker_before_its_zygote_when_memory_runs_out() -> None:
    iterator: Any = iter(DataLoader(Scored(4, nap_s=0.1), num_workers=1))
    mine = int(Path("/proc/self/oom_score_adj").read_text())
    pid = iterator._driver.backend._source.parent.acting_pid
    zygote = int(Path(f"/proc/{pid}/oom_score_adj").read_text())
    assert zygote == mine
    assert [int(score) for score in iterator] == [max(500, mine)] * 4


HELD = """
    import logging

    class UsesLock(Numbers):
        def __getitem__(self, index):
            logging.getLogger("mine").debug("loading %s", index)
            return index

    handler = logging.StreamHandler(sys.stdout)
    logging.getLogger("mine").addHandler(handler)
    taken, done = threading.Event(), threading.Event()

    def hold():
        handler.acquire()
        taken.set()
        done.wait()

    threading.Thread(target=hold, daemon=True).start()
    taken.wait()
    print(sum(batch.numel() for batch in DataLoader(UsesLock(40), 4, num_workers=2)), flush=True)
    os._exit(0)
"""


def test_a_logging_lock_held_by_another_thread_stops_nobody(tmp_path: Path) -> None:
    with program(tmp_path, HELD) as process:
        assert line(process) == "40", finish(process)


POOLED = """
    torch.set_num_threads(4)
    layer = torch.nn.Linear(512, 512)
    layer(torch.rand(512, 512)).sum().backward()          # the pool has been used
    torch.rand(2_000_000).exp()

    class UsesPool(Numbers):
        def __getitem__(self, index):
            torch.set_num_threads(2)
            return float((torch.rand(512, 512) @ torch.rand(512, 512)).exp().log().sum())

    print(len(list(DataLoader(UsesPool(8), num_workers=2))), flush=True)
    torch.rand(2_000_000).exp()                           # and can still be used here
    layer(torch.rand(512, 512)).sum().backward()
    print("done", flush=True)
"""


def test_an_openmp_pool_used_before_and_in_workers(tmp_path: Path) -> None:
    with program(tmp_path, POOLED) as process:
        assert [line(process), line(process)] == ["8", "done"], finish(process)


CAPPED = """
    import cv2, numpy, threadpoolctl
    os.environ.pop("OMP_NUM_THREADS", None)
    os.environ["MKL_NUM_THREADS"] = "3"
    torch.set_num_threads(2)
    cv2.setNumThreads(4)
    cv2.GaussianBlur(numpy.zeros((2000, 2000), "uint8"), (9, 9), 0)     # its pool is there

    class Pools(Numbers):
        def __getitem__(self, index):
            blurred = cv2.GaussianBlur(numpy.zeros((2000, 2000), "uint8"), (9, 9), 0)
            numpy.ones((300, 300)) @ numpy.ones((300, 300))
            counts = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
            assert len(counts) >= 2, threadpoolctl.threadpool_info()
            variables = [os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")]
            return [torch.get_num_threads(), cv2.getNumThreads(), max(counts), *variables]

    def loosen(worker):
        torch.set_num_threads(2)
        cv2.setNumThreads(2)

    for arguments in ({}, {"worker_init_fn": loosen}):
        print(*next(iter(DataLoader(Pools(4), None, num_workers=2, **arguments))), flush=True)
    print(cv2.getNumThreads(), torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS"))
    blas = threadpoolctl.ThreadpoolController().select(user_api="blas").info()
    assert blas and blas[0]["num_threads"] == os.cpu_count(), blas
"""


def test_pools_are_capped_in_workers_and_an_init_function_wins(tmp_path: Path) -> None:
    with program(tmp_path, CAPPED) as process:
        code, out, err = finish(process)
    assert (code, err) == (0, "")
    capped, loosened, main = out.splitlines()
    assert capped == "1 1 1 1 3"
    assert loosened.split()[:2] == ["2", "2"]
    assert main == "4 2 None"


UNGUARDED = """
    factor = 3

    def build():
        class Local(Numbers):
            def __init__(self):
                super().__init__(12)
                self.transform = lambda number: number * factor
            def __getitem__(self, index):
                return self.transform(index)
        return Local()

    print([int(batch) for batch in DataLoader(build(), num_workers=2)], flush=True)
"""


def test_a_script_without_a_main_guard_with_local_classes_and_lambdas(tmp_path: Path) -> None:
    with program(tmp_path, UNGUARDED) as process:
        code, out, err = finish(process)
    assert (code, out, err) == (0, f"{[3 * n for n in range(12)]}\n", "")


AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="the limit is of a user with no processes")
REFUSED = """
    import logging, resource, warnings
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    os.setgid(54321)
    os.setuid(54321)
    warnings.simplefilter("ignore")    # of too many workers
    resource.setrlimit(resource.RLIMIT_NPROC, ({processes}, {processes}))
    loader = DataLoader(Numbers(400, nap_s=0.002), batch_size=10, num_workers=3)
    try:
        for epoch in range(2):
            assert torch.cat(list(loader)).tolist() == list(range(400))
            say("epoch", epoch)
    except RuntimeError as error:
        say(type(error).__name__, error)
"""


@AS_ROOT
def test_a_machine_that_gives_fewer_processes_gets_fewer_workers(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with program(tmp_path, REFUSED.format(processes=5)) as process:
        code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert "epoch 0" in out and "epoch 1" in out
    refusals = [text for text in out.splitlines() if "could not be started" in text]
    # The main process, up to two threads of ours, two or three workers; in two epochs.
    assert 1 <= len(refusals) <= 4
    assert all("Resource temporarily unavailable" in text for text in refusals)
    assert all("The others go on without it" in text for text in refusals)


@AS_ROOT
def test_a_machine_that_gives_no_process_at_all_is_an_error_that_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with program(tmp_path, REFUSED.format(processes=1)) as process:
        code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert "WorkerNeverStarted" in out
    assert "Resource temporarily unavailable" in out
    assert "ulimit -u" in out
