"""What a worker finalizes at its end: what a worker of the torch that is installed does.

Since 2.14 those of spawn and forkserver let go of their dataset. Before, only what a spawned worker
has made itself is finalized, as Python ends. Forked workers, of either loader, finalize nothing:
what they have is a copy of the main process's own dataset, which is still in use.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import weakref
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset

from antifreeze import DataLoader
from antifreeze._processes.starting import start_method
from antifreeze._torch_internals import releases_dataset

from ..torch_versions import WORKERS_RELEASE_DATASET

CLEAN = ["spawn", "forkserver"]
as_since_2_14 = pytest.mark.usefixtures("releases")
LEAVING_S = 5.0  # that a worker without work has to leave (`Limits.stop_idle_s`)


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers do what they do with torch 2.14 and later, whichever torch this is."""
    monkeypatch.setattr(start_method, "releases_dataset", lambda: True)


def write(folder: Path, what: str) -> None:
    with open(folder / f"{os.getpid()}", "a") as file:
        file.write(f"{what}\n")


def written(folder: Path) -> list[list[str]]:
    """Return what each process has written, the main process left out."""
    return [
        file.read_text().split()
        for file in sorted(folder.iterdir())
        if file.name != str(os.getpid())
    ]


class Part:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __del__(self) -> None:
        write(self.folder, "part")


class Numbers:
    """Has parts of its own, and finalizers of both kinds."""

    def __init__(self, folder: Path, *, in_a_cycle: bool = False) -> None:
        self.folder, self.part, self.watched = folder, Part(folder), False
        self.itself = self if in_a_cycle else None

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        if not self.watched:
            self.watched = True
            weakref.finalize(self, write, self.folder, "finalize")
        return index

    def __del__(self) -> None:
        write(self.folder, "del")


class Stream(IterableDataset):
    def __init__(self, folder: Path) -> None:
        self.part = Part(folder)

    def __iter__(self) -> Any:
        return iter(range(6))


class Fails(Numbers):
    def __getitem__(self, index: int) -> int:
        raise ValueError("a bad sample")


class Hangs(Numbers):
    def __del__(self) -> None:
        if not hasattr(self, "here"):
            write(self.folder, "del")
            time.sleep(600)


class Raises(Numbers):
    def __del__(self) -> None:
        if not hasattr(self, "here"):
            write(self.folder, "del")
            raise RuntimeError("in a finalizer")


def loop(
    dataset: Any, method: Any, *, workers: int = 2, kind: Any = DataLoader, **more: Any
) -> list[int]:
    loader = kind(dataset, num_workers=workers, multiprocessing_context=method, **more)
    return [int(number) for batch in loader for number in batch]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("method", ["fork", *CLEAN])
def test_workers_finalize_what_those_of_the_installed_torch_do(
    tmp_path: Path, method: str, persistent: bool
) -> None:
    said = []
    for kind in (TorchLoader, DataLoader):
        folder = tmp_path / kind.__module__
        folder.mkdir()
        more = {"kind": kind, "persistent_workers": persistent, "workers": 1}
        assert loop(Numbers(folder), method, **more) == list(range(6))
        said.append(written(folder))
    theirs, ours = said
    assert ours == theirs


def test_it_is_known_what_the_installed_torch_does() -> None:
    assert releases_dataset() == WORKERS_RELEASE_DATASET


@as_since_2_14
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("method", CLEAN)
def test_finalizers_of_a_dataset_run_in_each_worker(
    tmp_path: Path, method: str, persistent: bool
) -> None:
    dataset = Numbers(tmp_path)
    assert loop(dataset, method, persistent_workers=persistent, batch_size=3) == list(range(6))
    assert written(tmp_path) == [["del", "finalize", "part"]] * 2
    assert dataset.part.folder == tmp_path  # that of the main process is as it was


@as_since_2_14
@pytest.mark.parametrize("method", CLEAN)
def test_a_dataset_in_a_cycle_is_found(tmp_path: Path, method: str) -> None:
    assert loop(Numbers(tmp_path, in_a_cycle=True), method, workers=1) == list(range(6))
    (said,) = written(tmp_path)
    assert sorted(said) == ["del", "finalize", "part"]


@as_since_2_14
@pytest.mark.parametrize("method", CLEAN)
def test_parts_of_a_stream_are_finalized(tmp_path: Path, method: str) -> None:
    assert loop(Stream(tmp_path), method, workers=1) == list(range(6))
    assert written(tmp_path) == [["part"]]


def test_forked_workers_finalize_nothing(tmp_path: Path) -> None:
    dataset = Numbers(tmp_path)
    assert loop(dataset, "fork") == list(range(6))
    assert loop(dataset, None) == list(range(6))
    assert written(tmp_path) == []


class OwnContext(SpawnContext):
    """One that may start its processes anywhere: they do not come from a process of ours."""


@as_since_2_14
def test_workers_of_a_context_of_the_users_own_do_the_same(tmp_path: Path) -> None:
    assert loop(Numbers(tmp_path), OwnContext(), workers=1) == list(range(6))
    assert written(tmp_path) == [["del", "finalize", "part"]]


@as_since_2_14
def test_a_context_itself_counts_as_its_name(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    assert loop(Numbers(tmp_path), context, workers=1) == list(range(6))
    assert written(tmp_path) == [["del", "finalize", "part"]]


@as_since_2_14
def test_a_worker_that_failed_lets_go_of_its_dataset_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a bad sample"):
        loop(Fails(tmp_path), "spawn", workers=1)
    deadline = time.monotonic() + LEAVING_S
    while not written(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert written(tmp_path) == [["del", "part"]]


@as_since_2_14
def test_a_finalizer_that_hangs_does_not_keep_its_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = Hangs(tmp_path)
    began = time.monotonic()
    assert loop(dataset, "spawn", workers=1) == list(range(6))
    assert time.monotonic() - began < 6 * LEAVING_S  # and not 600
    assert written(tmp_path) == [["del"]]
    assert "did not leave" in caplog.text
    (worker,) = (int(file.name) for file in tmp_path.iterdir())
    assert not Path(f"/proc/{worker}").exists()
    dataset.here = True


@as_since_2_14
def test_a_finalizer_that_raises_ends_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dataset = Raises(tmp_path)
    assert loop(dataset, "spawn", workers=1) == list(range(6))
    assert written(tmp_path) == [["del", "finalize", "part"]]
    assert "RuntimeError: in a finalizer" in capfd.readouterr().err  # as Python says it
    dataset.here = True
