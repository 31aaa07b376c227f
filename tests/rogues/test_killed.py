"""Processes are killed for real: workers, and the main process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import IterableDataset

from antifreeze import DataLoader
from antifreeze.errors import WorkerCrashed, WorkerNeverStarted

from .programs import all_gone, finish, line, program


class Numbers:
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        return index


class DiesAt(Numbers):
    """Ends its own process at one sample, always or once."""

    def __init__(self, index: int, how: str, once: Path | None = None) -> None:
        self.index, self.how, self.once = index, how, once

    def __getitem__(self, index: int) -> int:
        if index == self.index and self._due():
            match self.how:
                case "SIGKILL" | "SIGSEGV" | "SIGTERM" | "SIGABRT":
                    signal.signal(getattr(signal, self.how), signal.SIG_DFL) if (
                        self.how != "SIGKILL"
                    ) else None
                    os.kill(os.getpid(), getattr(signal, self.how))
                case "os._exit":
                    os._exit(3)
                case "sys.exit":
                    raise SystemExit(4)
        return index

    def _due(self) -> bool:
        if self.once is None:
            return True
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


WAYS = ["SIGKILL", "SIGSEGV", "SIGTERM", "SIGABRT", "os._exit", "sys.exit"]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("how", WAYS)
def test_a_worker_that_dies_once_costs_nothing_and_is_reported_once(
    how: str, persistent: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = DiesAt(123, how, once=tmp_path / "mark")
    loader = DataLoader(dataset, batch_size=10, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        assert torch.cat(list(loader)).tolist() == list(range(400))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "antifreeze"]
    assert line.startswith("antifreeze: DataLoader worker (pid ")
    assert "batch 12: samples [120, 121, 122, 123" in line


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("SIGKILL", "is killed by signal: Killed."),
        ("SIGSEGV", "is killed by signal: Segmentation fault."),
        ("os._exit", "exited unexpectedly with exit code 3."),
        ("sys.exit", "exited unexpectedly with exit code 4."),
    ],
)
def test_a_sample_that_always_kills_is_raised_in_its_turn_and_named(how: str, said: str) -> None:
    iterator = iter(DataLoader(DiesAt(123, how), batch_size=10, num_workers=2))
    got = [next(iterator)[0].item() for _ in range(12)]
    assert got == list(range(0, 120, 10))
    with pytest.raises(WorkerCrashed) as caught:
        next(iterator)
    text = str(caught.value)
    assert text.startswith("DataLoader worker (pid ")
    assert said in text.splitlines()[0]
    assert "batch 12: samples [120, 121, 122, 123" in text
    rest = [batch[0].item() for batch in iterator]
    assert rest == list(range(130, 400, 10))


VERDICTS = {
    "raise": "The worker is replaced; the batch is given up, and raised in its turn.",
    "skip": "The worker is replaced; the sample is left out (on_error).",
    "replace": "The worker is replaced, and the sample by another (on_error).",
}


@pytest.mark.parametrize("on_error", VERDICTS)
def test_the_line_about_a_worker_says_what_becomes_of_the_batch(
    on_error: str, caplog: pytest.LogCaptureFixture
) -> None:
    loader = DataLoader(
        DiesAt(2, "os._exit"), 4, sampler=range(4), num_workers=1, on_error=on_error
    )
    try:
        list(loader)
    except WorkerCrashed:
        assert on_error == "raise"
    lines = [each.getMessage() for each in caplog.records if "(pid " in each.getMessage()]
    assert [line.partition("]). ")[2] for line in lines] == [
        "The worker is replaced.",
        VERDICTS[on_error],
    ]


def test_without_batches_one_sample_is_named() -> None:
    with pytest.raises(WorkerCrashed, match=r"was loading batch 3: sample 3\.") as caught:
        list(DataLoader(DiesAt(3, "os._exit"), None, num_workers=1))
    assert "samples" not in str(caught.value)


def _die(worker: int) -> None:
    os._exit(3)


def test_workers_that_die_in_the_init_function_are_said_to() -> None:
    loader = DataLoader(Numbers(), num_workers=2, worker_init_fn=_die)
    with pytest.raises(WorkerNeverStarted) as caught:
        next(iter(loader))
    (first, *_) = str(caught.value).splitlines()
    assert "exited unexpectedly with exit code 3. It was in worker_init_fn." in first
    words = loader.faults[0].exception
    assert words is not None and "was in worker_init_fn." in words


class DiesPacked:
    def __reduce__(self) -> str:
        os._exit(3)


def test_a_worker_that_dies_while_it_packs_is_said_to() -> None:
    collate = lambda samples: DiesPacked()  # noqa: E731
    loader = DataLoader(Numbers(), batch_size=10, num_workers=1, collate_fn=collate)
    with pytest.raises(WorkerCrashed) as caught:
        next(iter(loader))
    assert "was packing batch 0: samples [0, 1, 2" in str(caught.value)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        for number in range(100):
            if info.id == 1 and number == 30:
                os.kill(os.getpid(), signal.SIGKILL)
            yield 1000 * info.id + number


def test_a_stream_that_breaks_off_is_an_honest_error_and_the_others_go_on() -> None:
    iterator = iter(DataLoader(Stream(), batch_size=10, num_workers=2))
    got: list[int] = []
    with pytest.raises(WorkerCrashed) as caught:
        while True:
            got += next(iterator).tolist()
    text = str(caught.value)
    assert "is killed by signal: Killed." in text.splitlines()[0]
    assert "after 7 batches" in text
    for batch in iterator:
        got += batch.tolist()
    assert [n for n in got if n < 1000] == list(range(100))
    assert [n for n in got if n >= 1000] == list(range(1000, 1030))


def test_workers_killed_at_random_moments_from_outside() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2)
    iterator = iter(loader)
    got = []
    for place, batch in enumerate(iterator):
        got += batch.tolist()
        if place % 20 == 10:
            os.kill(iterator._workers[(place // 20) % 2].pid, signal.SIGKILL)
    assert got == list(range(400))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_workers_that_become_another_user_go_with_a_main_process_that_is_killed(
    tmp_path: Path,
) -> None:
    # To be another user makes the kernel forget whose end it is to follow.
    code = """
        class Naps(Numbers):
            def __getitem__(self, index):
                time.sleep(30 if index > 1 else 0)
                return index
        loader = DataLoader(Naps(), num_workers=2, worker_init_fn=lambda worker: os.setuid(65534))
        iterator = iter(loader)
        next(iterator)
        next(iterator)
        say(*[worker.pid for worker in iterator._workers])
        next(iterator)
    """
    with program(tmp_path, code) as process:
        pids = [int(pid) for pid in line(process).split()]
        assert len(pids) == 2
        process.kill()
        assert all_gone(pids, within_s=5)


def test_workers_go_with_a_main_process_that_is_killed(tmp_path: Path) -> None:
    code = """
        loader = DataLoader(Numbers(nap_s=30), num_workers=2)   # busy in a sample
        iterator = iter(loader)
        say(*[worker.pid for worker in iterator._workers])
        next(iterator)
    """
    with program(tmp_path, code) as process:
        pids = [int(pid) for pid in line(process).split()]
        assert len(pids) == 2
        process.kill()
        assert all_gone(pids)


def test_workers_go_even_if_a_child_of_the_user_holds_everything_open(tmp_path: Path) -> None:
    code = """
        loader = DataLoader(Numbers(), num_workers=2)
        iterator = iter(loader)
        next(iterator)
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        say(*[worker.pid for worker in iterator._workers])
        time.sleep(60)
    """
    with program(tmp_path, code) as process:
        pids = [int(pid) for pid in line(process).split()]
        process.kill()
        assert all_gone(pids)


def test_workers_started_from_a_thread_outlive_the_thread_but_not_the_program(
    tmp_path: Path,
) -> None:
    code = """
        loader = DataLoader(Numbers(), batch_size=10, num_workers=2)
        box = []
        thread = threading.Thread(target=lambda: box.append(iter(loader)))
        thread.start()
        thread.join()
        iterator = box[0]
        got = [batch[0].item() for batch, _ in zip(iterator, range(50))]
        assert got == list(range(0, 500, 10))
        say(*[worker.pid for worker in iterator._workers])
        time.sleep(60)
    """
    with program(tmp_path, code) as process:
        pids = [int(pid) for pid in line(process).split()]
        assert len(pids) == 2, finish(process)
        process.kill()
        assert all_gone(pids)


@pytest.mark.parametrize(
    ("ending", "code_wanted"),
    [
        ("pass", 0),
        ("sys.exit(5)", 5),
        ("raise RuntimeError('mine')", 1),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_nothing_is_left_however_the_program_ends(
    ending: str, code_wanted: int, tmp_path: Path
) -> None:
    code = f"""
        loader = DataLoader(Numbers(nap_s=0.5), num_workers=2, persistent_workers=True)
        iterator = iter(loader)
        next(iterator)
        say(*[worker.pid for worker in iterator._workers])
        {ending}
    """
    with program(tmp_path, code) as process:
        pids = [int(pid) for pid in line(process).split()]
        returned, _, err = finish(process)
        assert returned == code_wanted
        assert all_gone(pids)
        if ending.startswith("raise"):
            assert err.count("Traceback") == 1
        else:
            assert err == ""
