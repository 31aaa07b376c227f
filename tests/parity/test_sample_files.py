"""An error of a sample names its file, where that is known without running the user's code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import ConcatDataset, IterableDataset, Subset

from antifreeze import DataLoader
from antifreeze._loading.sample_file_names import file_in_dataset, file_of
from antifreeze.errors import WorkerCrashed

from .observe import error_of, notes, whole_text

FILES = [f"/data/{number:02}.jpg" for number in range(20)]


class Listed:
    """A dataset as most are written."""

    def __init__(self, paths: Any = FILES, bad: int = 7) -> None:
        self.paths, self.bad = paths, bad

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        path = self.paths[index]
        if index == self.bad:
            return decode(path)
        return index


def decode(name: Any) -> int:
    raise OSError("image file is truncated")


def fetch_nothing() -> int:
    raise OSError("image file is truncated")


def raised_by(call: Any, *given: Any) -> BaseException:
    try:
        call(*given)
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


# --- the traceback -----------------------------------------------------------------------------


def test_a_local_variable_of_getitem_that_is_a_path_is_the_file() -> None:
    assert file_of(raised_by(Listed().__getitem__, 7), None, None) == "/data/07.jpg"
    paths = [Path(each) for each in FILES]
    assert file_of(raised_by(Listed(paths).__getitem__, 7), None, None) == "/data/07.jpg"


def test_of_several_files_the_one_that_was_handed_on_is_named() -> None:
    def load(image: str, mask: str, which: int) -> int:
        caption, secret = "a dog / a cat", "hunter2"
        return decode((image, mask)[which]) if which < 2 else len(caption + secret) * decode(0)

    assert file_of(raised_by(load, "a/i.jpg", "a/m.png", 1), None, None) == "a/m.png"
    assert file_of(raised_by(load, "a/i.jpg", "a/m.png", 2), None, None) == "a/i.jpg, a/m.png"


def test_other_variables_are_never_named() -> None:
    def load(caption: str, key: str, row: dict[str, str]) -> int:
        return decode(0)

    given = "a dog / a cat", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", {"path": "/data/x.jpg"}
    assert file_of(raised_by(load, *given), None, None) == ""


# --- the dataset -------------------------------------------------------------------------------


class Pairs:
    """As torchvision's ImageFolder, with the list one call away."""

    def __init__(self) -> None:
        self.classes = ["cats.txt", "dogs.txt"] * 10
        self.samples = [(path, 0) for path in FILES]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.load(index), self.classes[index % 2]

    def load(self, at: int) -> str:
        path, _ = self.samples[at]
        return path


class Heir(Pairs):
    pass


class Sharded(Listed):
    def __getitem__(self, index: int) -> Any:
        shard = index // 3
        return self.paths[shard]


class Reordered(Listed):
    def __getitem__(self, index: int) -> Any:
        index = 19 - index
        return self.paths[index]


class Called(BaseException):
    """The user's code was called: not an Exception, which would be passed over."""


class Watchful(Listed):
    """Whatever is called of it, beyond loading, is a mistake."""

    def __init__(self) -> None:
        self.paths = _OwnList(FILES)

    def __len__(self) -> int:
        raise Called("len() was called")

    def __getattr__(self, name: str) -> Any:
        raise Called(f"{name} was asked for")

    @property
    def files(self) -> Any:
        raise Called("a property was read")

    def __getitem__(self, index: int) -> Any:
        return self.files[index], self.paths[index], self.elsewhere[index]


class _OwnList(list[str]):
    def __getitem__(self, index: Any) -> Any:
        raise Called("an item was asked for")


@pytest.mark.parametrize(
    ("dataset", "index", "file"),
    [
        (Listed(), 3, "/data/03.jpg"),
        (Listed(tuple(FILES)), -1, "/data/19.jpg"),
        (Listed(numpy.array(FILES)), numpy.int64(3), "/data/03.jpg"),
        (Listed([Path(each) for each in FILES]), torch.tensor(3), "/data/03.jpg"),
        (Pairs(), 3, "/data/03.jpg"),
        (Heir(), 3, "/data/03.jpg"),
        (Subset(Listed(), [9, 3]), 1, "/data/03.jpg"),
        (Subset(Listed(), torch.tensor([9, 3])), 1, "/data/03.jpg"),
        (ConcatDataset([Listed(), Pairs()]), 23, "/data/03.jpg"),
        (Subset(ConcatDataset([Listed(), Listed()]), range(20, 40)), 3, "/data/03.jpg"),
        (Listed(), 99, ""),
        (Listed(), "3", ""),
        (Listed([f"{number} items" for number in range(20)]), 3, ""),
        (Sharded(), 3, ""),
        (Reordered(), 3, ""),
        (FILES, 3, ""),
        (None, 3, ""),
    ],
)
def test_the_file_that_a_dataset_lists_for_a_sample(dataset: Any, index: Any, file: str) -> None:
    assert file_in_dataset(dataset, index) == file


def test_nothing_of_the_users_is_called() -> None:
    assert file_in_dataset(Watchful(), 3) == ""


# --- what the loop gets ------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batch_size", [4, None])
def test_an_error_and_its_fault_name_the_file(workers: int, batch_size: int | None) -> None:
    dataset: Any = Subset(Listed(), range(20))
    loader = DataLoader(dataset, batch_size=batch_size, num_workers=workers)
    assert "antifreeze: file: /data/07.jpg" in notes(error_of(loader))
    if batch_size:
        assert loader.faults[-1].file == "/data/07.jpg"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_is_left_out_is_written_down_with_its_file(
    workers: int, tmp_path: Path
) -> None:
    log = tmp_path / "faults.jsonl"
    dataset: Any = Listed()
    loader = DataLoader(dataset, 4, num_workers=workers, on_error="skip", fault_log=log)
    assert sum(len(batch) for batch in loader) == 19
    (written,) = map(json.loads, log.read_text().splitlines())
    assert written["file"] == loader.faults[0].file == "/data/07.jpg"


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        for path in ["a/1.jpg", "a/2.jpg"]:
            yield decode(path) if "2" in path else 1


def test_an_error_of_a_stream_names_the_file() -> None:
    assert "antifreeze: file: a/2.jpg" in notes(error_of(DataLoader(Stream(), num_workers=1)))


class Deadly(Listed):
    def __getitem__(self, index: int) -> int:
        if self.paths[index] == "/data/07.jpg":
            os._exit(5)
        return index


def test_a_sample_that_ends_its_worker_is_named_with_its_file() -> None:
    dataset: Any = Deadly()
    loader = DataLoader(dataset, 4, num_workers=1)
    error = error_of(loader)
    assert type(error) is WorkerCrashed
    assert "antifreeze: file: /data/07.jpg" in notes(error)
    assert {fault.file for fault in loader.faults} == {"/data/07.jpg"}


@pytest.mark.parametrize("workers", [0, 1])
def test_no_file_is_named_if_the_user_does_not_want_it(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIFREEZE_REDACT", "1")
    dataset: Any = Missing()
    loader = DataLoader(dataset, 4, num_workers=workers)
    assert "/data" not in notes(error_of(loader))
    (fault,) = loader.faults
    assert fault.file == "" and "/data" not in fault.exception + fault.traceback
    assert "in __getitem__" in fault.traceback


class Missing(Listed):
    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise ValueError(f"there is no {self.paths[index]}")
        return index


def test_the_file_of_faults_has_no_secrets_of_urls(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    dataset: Any = Missing([f"https://me:secret@host/{number}.jpg?s=secret" for number in range(8)])
    error = error_of(DataLoader(dataset, 4, fault_log=log))
    assert "secret" in whole_text(error)  # its author's own words
    assert "https://host/7.jpg" in log.read_text() and "secret" not in log.read_text()


def test_a_file_that_the_error_names_itself_is_not_named_twice() -> None:
    dataset: Any = Missing()
    loader = DataLoader(dataset, 4)
    error = error_of(loader)
    assert str(error) == "there is no /data/07.jpg" and "file:" not in notes(error)
    assert loader.faults[0].file == "/data/07.jpg"
