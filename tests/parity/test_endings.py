"""How programs end, by themselves, by Ctrl-C, by SIGKILL; and what a worker's death costs."""

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import IterableDataset, get_worker_info

from .observe import LoaderClass, error_of, wait_until
from .programs import PAIRS, Introspective, MapRows, as_list, mark, pairs
from .scripts import run_script, start_script

# --- whole programs ----------------------------------------------------------------------------

HEALTHY = """
import torch
from torch.utils.data import IterableDataset

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return {"row": torch.full((100,), index), "name": str(index)}

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(7))

if __name__ == "__main__":
    for arguments in (
        {"num_workers": 0},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 1, "multiprocessing_context": "spawn"},
    ):
        loader = DataLoader(Rows(), batch_size=8, shuffle=True, **arguments)
        for epoch in range(1 + (arguments["num_workers"] == 2)):
            assert len(list(loader)) == 5
        for batch in loader:
            break
        kept = iter(DataLoader(Stream(), batch_size=2, **arguments))
        next(kept)
    alive = iter(DataLoader(Rows(), num_workers=2))
    next(alive)
    print("done")
"""


def test_a_healthy_program_writes_nothing_to_stderr(tmp_path: Path) -> None:
    # It ends with live iterators on purpose: ending is part of being healthy. (Torch's loader
    # aborts there now and then, on a busy machine.)
    assert run_script(tmp_path, "antifreeze", HEALTHY) == (0, "done\n", "")


TALKING = """
import sys

class Rows:
    def __len__(self):
        return 3
    def __getitem__(self, index):
        print("sample", index)
        print("warning", index, file=sys.stderr)
        return index

if __name__ == "__main__":
    print(len(list(DataLoader(Rows(), num_workers=1))))
"""


def test_what_a_worker_prints_is_printed(which: str, tmp_path: Path) -> None:
    # Into a pipe, so that it sits in the worker's buffer until the worker ends.
    code, out, err = run_script(tmp_path, which, TALKING)
    assert code == 0
    assert sorted(out.splitlines()) == ["3", "sample 0", "sample 1", "sample 2"]
    assert err.splitlines() == ["warning 0", "warning 1", "warning 2"]


INTERRUPTED = """
import time

class Rows:
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        if index >= SLOW_FROM:
            time.sleep(300)
        return index

if __name__ == "__main__":
    loader = DataLoader(Rows(), batch_size=4, num_workers=2, PERSISTENT)
    for number, batch in enumerate(loader):
        if number == 3:
            print("ready", flush=True)
        time.sleep(0.01)
"""


@pytest.mark.parametrize("slow_from", [100_000, 16], ids=["in_the_step", "while_waiting"])
@pytest.mark.parametrize("persistent", ["", "persistent_workers=True"], ids=["plain", "persistent"])
def test_ctrl_c_is_one_traceback_and_nothing_left(
    slow_from: int, persistent: str, ours: LoaderClass, tmp_path: Path
) -> None:
    # Ours only: torch's program mostly does the same, and now and then stays for ever.
    body = INTERRUPTED.replace("SLOW_FROM", str(slow_from)).replace("PERSISTENT", persistent)
    with start_script(tmp_path, "antifreeze", body) as script:
        assert script.read_line() == "ready"
        script.signal_group(signal.SIGINT)
        code, _, err = script.finish(within_s=60)
        assert code == -signal.SIGINT
        assert err.startswith("Traceback (most recent call last):")
        assert err.count("Traceback (most recent call last)") == 1
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert wait_until(lambda: not script.members(), within_s=30), script.members()


@pytest.mark.parametrize("slow_from", [100_000, 16], ids=["busy", "stuck_in_a_sample"])
def test_when_the_program_is_killed_its_workers_end_too(
    slow_from: int, ours: LoaderClass, tmp_path: Path
) -> None:
    # Ours only: a torch worker inside a long sample, or with a full pipe, stays for ever.
    body = INTERRUPTED.replace("SLOW_FROM", str(slow_from)).replace("PERSISTENT", "")
    with start_script(tmp_path, "antifreeze", body) as script:
        assert script.read_line() == "ready"
        assert len(script.members()) >= 3
        script.process.kill()
        assert wait_until(lambda: not script.members(), within_s=30), script.members()


# --- a worker dies (ours only: torch ends the run, with one of several messages) ---------------


@dataclass
class DiesOnce:
    """A dataset in which one sample kills its process, the first time it is asked for."""

    flag: Path
    deadly: int
    length: int = 40

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.deadly and not self.flag.exists():
            self.flag.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("deadly", [0, 17, 39])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_costs_nothing_in_a_map_style_run(
    workers: int,
    deadly: int,
    persistent: bool,
    ours: LoaderClass,
    tmp_path: Path,
    no_new_children: Callable[[], None],
) -> None:
    dataset = DiesOnce(tmp_path / "died", deadly)
    loader = ours(
        dataset,
        batch_size=3,
        num_workers=workers,
        persistent_workers=persistent,
        collate_fn=as_list,
    )
    samples = [index for batch in loader for index in batch]
    assert samples == list(range(40))
    assert dataset.flag.exists()
    assert [index for batch in loader for index in batch] == samples
    del loader
    no_new_children()


def test_a_worker_killed_from_outside_costs_nothing_in_a_map_style_run(
    ours: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    loader = ours(MapRows(300), num_workers=2, collate_fn=as_list)
    iterator = iter(loader)
    seen = []
    for batch in iterator:
        seen.append(batch[0])
        if len(seen) in (20, 150):
            os.kill(iterator._workers[len(seen) % 2].pid, signal.SIGKILL)
    assert seen == list(range(300))
    del iterator, loader
    no_new_children()


def test_a_persistent_worker_killed_between_epochs_is_replaced(ours: LoaderClass) -> None:
    loader = pairs(ours, 2, persistent_workers=True)
    assert list(loader) == PAIRS
    os.kill(loader._iterator._workers[1].pid, signal.SIGKILL)
    assert list(loader) == PAIRS
    assert list(loader) == PAIRS


def test_a_replaced_worker_has_its_number_and_its_start_again(
    ours: LoaderClass, tmp_path: Path
) -> None:
    dataset = Replaced(tmp_path / "died")
    loader = ours(dataset, batch_size=None, num_workers=2, worker_init_fn=mark, collate_fn=as_list)
    samples = list(loader)
    assert [sample["index"] for sample in samples] == list(range(8))
    for sample in samples:
        assert sample["worker"] in (0, 1)
        assert sample["of"] == 2
        assert sample["own"]
        assert sample["marked"][:2] == ("worker", sample["worker"])
    assert len({sample["pid"] for sample in samples}) == 3


class Replaced(Introspective):
    """The introspective dataset; the worker of sample 3 dies once, having loaded others."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 3 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@dataclass
class DyingStream(IterableDataset):
    """A stream whose worker 1 is killed after two values."""

    note: Path

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        for number in range(6):
            if info.id == 1 and number == 2:
                self.note.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            yield 100 * info.id + number


def test_a_killed_worker_of_an_iterable_dataset_is_torchs_error_with_its_pid(
    ours: LoaderClass, tmp_path: Path, no_new_children: Callable[[], None]
) -> None:
    stream = DyingStream(tmp_path / "pid")
    loader = ours(stream, batch_size=None, num_workers=2, collate_fn=as_list)
    seen: list[int] = []
    error = error_of(seen.append(number) for number in loader)
    assert isinstance(error, RuntimeError)
    pid = stream.note.read_text()
    assert str(error).startswith(f"DataLoader worker (pid {pid}) is killed by signal: Killed")
    # What was loaded before is not lost.
    assert seen[:4] == [0, 100, 1, 101]
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    del loader
    no_new_children()
