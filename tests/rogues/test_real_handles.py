"""HDF5 files and LMDB environments, opened before there were workers: what is said, what comes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import antifreeze
from antifreeze import DataLoader
from antifreeze._processes.starting import inherited_handles

ROWS = 200


@pytest.fixture(autouse=True)
def nothing_told_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inherited_handles, "_told", set())


def load(dataset: Any) -> tuple[list[int], list[str]]:
    """Load everything, by forked workers; give it, and the warnings."""
    loader: DataLoader[Any] = DataLoader(dataset, 4, num_workers=2, multiprocessing_context="fork")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = torch.cat(list(loader)).tolist()
    return got, [str(each.message) for each in caught]


class Rows:
    """Reads a row for each sample, from what it was given or opens."""

    def __init__(self, read: Callable[[Any, int], int], **handles: Any) -> None:
        self.__dict__.update(handles)
        self.read = read

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> int:
        return self.read(self, index)


# ---- HDF5 ----------------------------------------------------------------------------------------


@pytest.fixture
def h5_path(tmp_path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset(
            "x", data=np.repeat(np.arange(ROWS), 64).reshape(ROWS, 64), chunks=(8, 64)
        )
    return tmp_path / "rows.h5"


def test_an_hdf5_file_is_named_once_and_read_rightly_by_forked_workers(h5_path: Path) -> None:
    import h5py

    with h5py.File(h5_path, "r") as file:
        dataset = Rows(lambda rows, index: int(rows.x[index, 3]), file=file, x=file["x"])
        got, told = load(dataset)
        assert got == list(range(ROWS))
    (text,) = told
    assert text.startswith(
        "antifreeze: dataset.file is an HDF5 file (h5py.File), opened before the workers: all"
        " inherit it, and two that use it at once can get each other's data."
    )
    assert "dataset.file = antifreeze.per_worker(open_it)" in text


def test_a_closed_hdf5_file_is_not_worth_a_word(h5_path: Path) -> None:
    import h5py

    file = h5py.File(h5_path, "r")
    file.close()
    assert load(Rows(lambda rows, index: index, file=file)) == (list(range(ROWS)), [])


def test_an_hdf5_file_for_each_worker_gives_right_rows_and_no_word(h5_path: Path) -> None:
    import h5py

    file = antifreeze.per_worker(functools.partial(h5py.File, h5_path, "r"))
    dataset = Rows(lambda rows, index: int(rows.file()["x"][index, 3]), file=file)
    try:
        assert dataset[3] == 3  # opened here as well
        assert load(dataset) == (list(range(ROWS)), [])
    finally:
        file.close()


# ---- LMDB ----------------------------------------------------------------------------------------


@pytest.fixture
def lmdb_path(tmp_path: Path) -> str:
    lmdb = pytest.importorskip("lmdb")
    path = str(tmp_path / "rows")
    with lmdb.open(path, map_size=1 << 24) as env, env.begin(write=True) as rows:
        for index in range(ROWS):
            rows.put(b"%06d" % index, b"%d" % index)
    return path


def of_env(env: Any, index: int) -> int:
    with env.begin() as rows:
        return int(rows.get(b"%06d" % index))


def test_an_lmdb_environment_is_named_whatever_its_class_says_of_itself(lmdb_path: str) -> None:
    import lmdb

    with lmdb.open(lmdb_path, readonly=True, lock=False) as env:
        dataset = Rows(lambda rows, index: of_env(rows.env, index), env=env)
        assert dataset[3] == 3  # used here before
        got, told = load(dataset)
        assert got == list(range(ROWS))  # nothing is locked, and nothing written
    (text,) = told
    assert text.startswith("antifreeze: dataset.env is an LMDB environment (lmdb.Environment)")
    assert "dataset.env = antifreeze.per_worker(open_it)" in text


def test_an_lmdb_environment_that_locks_and_is_not_opened_anew_gives_right_rows_or_an_error(
    lmdb_path: str,
) -> None:
    import lmdb

    with lmdb.open(lmdb_path, readonly=True) as env:
        # Where it cannot be set, it stays (see test_lmdb_environments).
        dataset = Rows(lambda rows, index: of_env(rows.env[0], index), env=(env,))
        loader: DataLoader[Any] = DataLoader(
            dataset,
            4,
            num_workers=2,
            multiprocessing_context="fork",
        )
        with pytest.warns(UserWarning, match=r"dataset\.env holds an LMDB environment"):
            iterator = iter(loader)
        got = []
        try:
            for batch in iterator:
                got += batch.tolist()
        except lmdb.Error as error:  # its table of readers is full of this process's forks
            notes = "\n".join(error.__notes__)
            assert "in worker" in notes
            assert "an LMDB environment that locks cannot be used on both sides of a fork" in notes
            assert "lock=False" in notes and "antifreeze.per_worker(open_it)" in notes
        assert got == list(range(len(got)))


def test_an_lmdb_environment_for_each_worker_gives_right_rows_and_no_word(lmdb_path: str) -> None:
    import lmdb

    env = antifreeze.per_worker(functools.partial(lmdb.open, lmdb_path, readonly=True))
    dataset = Rows(lambda rows, index: of_env(rows.env(), index), env=env)
    assert load(dataset) == (list(range(ROWS)), [])
