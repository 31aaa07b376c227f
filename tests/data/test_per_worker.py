"""A handle that each process opens for itself."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import pytest

from antifreeze import DataLoader, per_worker


class Rows:
    def __init__(self, path: Path) -> None:
        self.rows = per_worker(lambda: sqlite3.connect(path))

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[int, int]:
        (found,) = self.rows().execute("select number from rows where number = ?", (index,))
        return found[0], os.getpid()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.db"
    with contextlib.closing(sqlite3.connect(path)) as rows:
        rows.execute("create table rows (number integer)")
        rows.executemany("insert into rows values (?)", [(number,) for number in range(40)])
        rows.commit()
    return path


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_database_that_the_main_process_has_used_before(table: Path, method: str) -> None:
    dataset = Rows(table)
    assert dataset[3][0] == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader: DataLoader[Any] = DataLoader(
            dataset,
            4,
            num_workers=2,
            multiprocessing_context=method,
        )
        batches = list(loader)
    assert [int(number) for numbers, _ in batches for number in numbers] == list(range(40))
    assert len({int(pid) for _, pids in batches for pid in pids}) == 2
    assert dataset[4][0] == 4  # it still speaks to its own
    dataset.rows.close()


def test_it_is_opened_once_and_on_first_use() -> None:
    opened: list[int] = []

    def open_it() -> list[int]:
        opened.append(os.getpid())
        return opened

    handle = per_worker(open_it)
    assert "not open here" in repr(handle)
    assert opened == []
    assert handle() is handle() is opened
    assert opened == [os.getpid()]
    assert "open here" in repr(handle)


def test_close_closes_and_the_next_call_opens_anew(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("words")
    handle = per_worker(lambda: open(tmp_path / "text"))  # noqa: SIM115
    first = handle()
    handle.close()
    assert first.closed
    handle.close()  # nothing to do
    assert handle().read() == "words"
    handle.close()


def test_a_child_leaves_alone_what_its_parent_has_opened(tmp_path: Path) -> None:
    class Session:
        closed = 0

        def close(self) -> None:
            Session.closed += 1

    handle = per_worker(Session)
    ours = handle()
    child = os.fork()
    if child == 0:
        theirs = handle()
        handle.close()
        os._exit(0 if theirs is not ours and Session.closed == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert handle() is ours


def test_a_copy_and_a_pickle_open_their_own() -> None:
    handle = per_worker(list)
    mine = handle()
    for other in (copy.copy(handle), copy.deepcopy(handle), pickle.loads(pickle.dumps(handle))):
        assert other() == [] and other() is not mine


def test_what_is_no_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not a str: per_worker"):
        per_worker("rows.db")
