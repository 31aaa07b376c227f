"""LMDB environments that were opened before the fork: each worker has its own in their place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from antifreeze import DataLoader
from antifreeze._processes.starting import inherited_handles
from antifreeze._worker.private_lmdb_environments import reopen, to_reopen

lmdb = pytest.importorskip("lmdb")
ROWS = 400  # for one worker, too, more than the table of readers has slots
WARNED = "is an LMDB environment"
pytestmark = pytest.mark.skipif(
    lmdb.__version__.startswith("2."), reason="it cannot be opened anew in a forked process"
)


@pytest.fixture(autouse=True)
def nothing_told_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inherited_handles, "_told", set())


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "rows")
    with lmdb.open(path, map_size=1 << 24) as env, env.begin(write=True) as rows:
        for index in range(ROWS):
            rows.put(b"%06d" % index, b"%d" % index)
    return path


@pytest.fixture
def env(path: str) -> Iterator[Any]:
    with lmdb.open(path, readonly=True) as env:
        yield env


class Rows:
    """Reads a row for each sample, by what it holds."""

    def __init__(self, read: Callable[[Any, int], int], **held: Any) -> None:
        self.__dict__.update(held)
        self.read = read

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> int:
        return self.read(self, index)


def row(env: Any, index: int, **db: Any) -> int:
    with env.begin(**db) as rows:
        return int(rows.get(b"%06d" % index))


def own_row(env: Any, index: int) -> int:
    """Read a row; fail where that is done in the name of another process."""
    with env.begin() as rows:
        assert os.getpid() in readers(env), f"{os.getpid()} is not among {env.readers()}"
        return int(rows.get(b"%06d" % index))


def readers(env: Any) -> list[int]:
    return [int(line.split()[0]) for line in env.readers().splitlines()[1:] if line.strip()]


def loader_of(dataset: Any, workers: int = 2, **more: Any) -> DataLoader[Any]:
    return DataLoader(dataset, 8, num_workers=workers, multiprocessing_context="fork", **more)


def load(loader: Any, epochs: int = 1) -> list[int]:
    """Load everything, with no word of any warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "antifreeze: ")
        return [row for _ in range(epochs) for row in torch.cat(list(loader)).tolist()]


def write(path: str, words: str) -> None:
    """Have another process write: LMDB opens nothing twice in one."""
    program = f"import lmdb\nenv = lmdb.open({path!r}, map_size=1 << 24, max_dbs=4)\n{words}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# ---- what is read --------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_every_worker_reads_by_an_environment_of_its_own(
    env: Any, workers: int, persistent: bool
) -> None:
    dataset = Rows(lambda rows, index: own_row(rows.env, index), env=env)
    assert dataset[3] == 3  # used here before
    loader = loader_of(dataset, workers, persistent_workers=persistent)
    assert load(loader, epochs=3) == 3 * list(range(ROWS))
    assert dataset.env is env  # here nothing has changed
    assert readers(env).count(os.getpid()) <= 1  # py-lmdb 1 keeps one for its next transaction
    assert dataset[3] == 3


def test_one_that_takes_the_place_of_a_dead_one_has_its_own_as_well(
    env: Any, tmp_path: Path
) -> None:
    def read(rows: Any, index: int) -> int:
        with rows.env.begin() as now:  # open when it dies
            if index == 200 and not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            assert now.get(b"%06d" % index)
        return own_row(rows.env, index)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the death
        got = torch.cat(list(loader_of(Rows(read, env=env)))).tolist()
    assert got == list(range(ROWS))
    assert (tmp_path / "died").exists()
    assert readers(env).count(os.getpid()) <= 1


def test_workers_that_end_in_a_transaction_do_not_fill_the_table_in_the_long_run(path: str) -> None:
    def read(rows: Any, index: int) -> int:
        rows.now = rows.env.begin()  # still open when the worker ends
        return int(rows.now.get(b"%06d" % index))

    with lmdb.open(path, readonly=True, max_readers=126) as env:
        loader = loader_of(Rows(read, env=env), workers=4)
        assert load(loader, epochs=6) == 6 * list(range(ROWS))
        assert len(readers(env)) <= 12


class Slotted:
    __slots__ = ("env", "never_set")

    def __init__(self, env: Any) -> None:
        self.env = env


@pytest.mark.parametrize(
    ("held", "found"),
    [
        (lambda env: {"first": env}, lambda held: held["first"]),
        (lambda env: [0, env], lambda held: held[1]),
        (lambda env: deque([env]), lambda held: held[0]),
        (Slotted, lambda held: held.env),
        (lambda env: [{"deep": Slotted(env)}], lambda held: held[0]["deep"].env),
    ],
)
def test_it_is_found_in_dicts_lists_slots_and_objects(env: Any, held: Any, found: Any) -> None:
    dataset = Rows(lambda rows, index: own_row(found(rows.held), index), held=held(env))
    assert load(loader_of(dataset)) == list(range(ROWS))


def test_two_attributes_that_hold_one_environment_hold_one_in_workers(env: Any) -> None:
    def read(rows: Any, index: int) -> int:
        assert rows.first is rows.others[0] is rows.others[1]
        return own_row(rows.others[0], index)

    assert load(loader_of(Rows(read, first=env, others=[env, env]))) == list(range(ROWS))


def test_two_environments_stay_two(env: Any, tmp_path: Path) -> None:
    env.copy(str(Path(tmp_path / "copy").mkdir() or tmp_path / "copy"))
    write(str(tmp_path / "copy"), "with env.begin(write=True) as t: t.put(b'000003', b'333')")
    with lmdb.open(str(tmp_path / "copy"), readonly=True, readahead=False) as other:
        dataset = Rows(
            lambda rows, index: own_row(rows.env, index) + own_row(rows.other, index),
            env=env,
            other=other,
        )
        expected = [2 * index for index in range(ROWS)]
        expected[3] = 336
        assert load(loader_of(dataset)) == expected


def test_what_it_was_opened_with_is_kept(path: str) -> None:
    def read(rows: Any, index: int) -> int:
        told = rows.env.info()
        assert (rows.env.path(), rows.env.flags()) == (rows.path, rows.flags)
        assert (told["map_size"], told["max_readers"]) == (rows.size, 50)
        with pytest.raises(lmdb.ReadonlyError):
            rows.env.begin(write=True)
        return own_row(rows.env, index)

    Path(path, "lock.mdb").unlink()  # else it says how many readers there may be
    how: dict[str, Any] = {"readahead": False, "map_size": 1 << 25, "max_readers": 50}
    with lmdb.open(path, readonly=True, **how) as env:
        size = env.info()["map_size"]
        dataset = Rows(read, env=env, path=path, flags=env.flags(), size=size)
        assert load(loader_of(dataset)) == list(range(ROWS))


def test_a_single_file_is_opened_anew_as_such(path: str) -> None:
    with lmdb.open(f"{path}/data.mdb", subdir=False, readonly=True) as env:
        dataset = Rows(lambda rows, index: own_row(rows.env, index), env=env)
        assert load(loader_of(dataset)) == list(range(ROWS))


def test_a_program_with_other_threads_that_read_is_no_exception(env: Any) -> None:
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            assert row(env, 7) == 7

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        dataset = Rows(lambda rows, index: own_row(rows.env, index), env=env)
        assert load(loader_of(dataset), epochs=3) == 3 * list(range(ROWS))
    finally:
        over.set()
        thread.join()


# ---- named databases -----------------------------------------------------------------------------


@pytest.fixture
def named(tmp_path: Path) -> Iterator[Any]:
    """An environment with two databases of different shapes, and two of the same."""
    path = str(tmp_path / "named")
    with lmdb.open(path, map_size=1 << 24, max_dbs=4) as env:
        for name, extra in ((b"plain", 0), (b"negative", 5), (b"twin", 9), (b"other", 9)):
            db = env.open_db(name)
            with env.begin(db, write=True) as rows:
                for index in range(ROWS + extra):
                    sign = -1 if name == b"negative" else 1
                    rows.put(b"%06d" % index, b"%d" % (sign * index))
    with lmdb.open(path, readonly=True, max_dbs=4) as env:
        yield env


def test_handles_of_named_databases_are_opened_anew_by_name(named: Any) -> None:
    main, plain, negative = named.open_db(), named.open_db(b"plain"), named.open_db(b"negative")

    def read(rows: Any, index: int) -> int:
        with rows.env.begin(rows.main) as now:
            assert now.stat()["entries"] == 4
        return row(rows.env, index, db=rows.db) - row(rows.env, index, db=rows.dbs["negative"])

    dataset = Rows(read, env=named, main=main, db=plain, dbs={"negative": negative})
    assert load(loader_of(dataset), epochs=2) == 2 * [2 * index for index in range(ROWS)]
    assert readers(named).count(os.getpid()) <= 1


def test_named_databases_can_be_opened_in_workers(named: Any) -> None:
    dataset = Rows(lambda rows, i: row(rows.env, i, db=rows.env.open_db(b"twin")), env=named)
    assert load(loader_of(dataset)) == list(range(ROWS))


def test_handles_that_may_be_of_either_of_two_are_left_alone(named: Any) -> None:
    dataset = Rows(lambda rows, index: index, env=named, twin=named.open_db(b"twin"))
    assert to_reopen(dataset) == ()
    with pytest.warns(UserWarning, match=WARNED):
        assert torch.cat(list(loader_of(dataset))).tolist() == list(range(ROWS))


# ---- what others do meanwhile --------------------------------------------------------------------


def test_what_others_write_is_seen_and_an_open_writer_disturbs_nobody(env: Any, path: str) -> None:
    dataset = Rows(lambda rows, index: own_row(rows.env, index), env=env)
    loader = loader_of(dataset, persistent_workers=True)
    assert load(loader) == list(range(ROWS))
    write(path, "with env.begin(write=True) as t: t.put(b'000003', b'333')")
    changed = [*range(3), 333, *range(4, ROWS)]
    assert load(loader) == changed
    holding = (
        f"import lmdb, sys; env = lmdb.open({path!r}, map_size=1 << 24)\n"
        "with env.begin(write=True) as t:\n"
        "    t.put(b'000003', b'3333'); print('written', flush=True); sys.stdin.read(); t.abort()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"written\n"
        assert load(loader) == changed
        assert load(loader_of(dataset)) == changed
        writer.communicate(timeout=60)
    assert dataset[3] == 333


def test_a_transaction_of_the_main_process_keeps_its_slot_and_what_it_sees(
    env: Any, path: str
) -> None:
    before = env.begin()
    dataset = Rows(lambda rows, index: own_row(rows.env, index), env=env)
    for _ in range(3):
        load(loader_of(dataset, workers=4))
    assert readers(env).count(os.getpid()) == 1
    write(
        path,
        "for n in range(50):\n"
        "    with env.begin(write=True) as t:\n"
        f"        for i in range({ROWS}): t.put(b'%06d' % i, b'%d' % -n)",
    )
    assert [int(before.get(b"%06d" % index)) for index in range(ROWS)] == list(range(ROWS))
    before.abort()
    del before
    assert dataset[3] == -49


def test_a_worker_may_close_what_it_has_and_open_it_again(env: Any, path: str) -> None:
    def begin(_: int) -> None:
        dataset.env.close()
        dataset.env = lmdb.open(path, readonly=True)

    dataset: Any = Rows(lambda rows, index: own_row(rows.env, index), env=env)
    assert load(loader_of(dataset, worker_init_fn=begin)) == list(range(ROWS))
    assert row(env, 3) == 3


def test_no_worker_opens_a_file_twice(env: Any, path: str) -> None:
    if not hasattr(lmdb, "_envid"):
        pytest.skip("this py-lmdb does not care")

    def read(rows: Any, index: int) -> int:
        with pytest.raises(lmdb.Error, match="already open in this process"):
            lmdb.open(path, readonly=True)
        return own_row(rows.env, index)

    assert load(loader_of(Rows(read, env=env))) == list(range(ROWS))


# ---- what is left alone --------------------------------------------------------------------------


def left_alone(dataset: Any) -> None:
    """Check that workers inherit what there is, and that it is named."""
    assert to_reopen(dataset) == ()
    with pytest.warns(UserWarning, match="antifreeze: dataset.* an LMDB environment"):
        list(loader_of(dataset))


def same(rows: Any, index: int) -> int:
    assert id(rows.env) == rows.known
    return index


@pytest.mark.parametrize("how", [{"readonly": True, "lock": False}, {"map_size": 1 << 24}])
def test_one_that_does_not_lock_and_one_that_writes_are_left_alone(
    path: str, how: dict[str, Any]
) -> None:
    with lmdb.open(path, **how) as env:
        left_alone(Rows(same, env=env, known=id(env)))
        assert row(env, 3) == 3
        if not env.flags()["readonly"]:
            with env.begin(write=True) as rows:
                rows.put(b"000003", b"333")
            assert row(env, 3) == 333


def test_one_whose_transaction_or_cursor_the_dataset_holds_is_left_alone(env: Any) -> None:
    with env.begin() as now, now.cursor() as cursor:
        left_alone(Rows(same, env=env, known=id(env), now=now))
        assert to_reopen(Rows(same, env=env, cursor=cursor)) == ()
        assert to_reopen(Rows(same, env=env, some=[iter(cursor)])) == ()


def test_one_in_a_place_that_cannot_be_set_is_left_alone(env: Any) -> None:
    left_alone(Rows(same, env=env, known=id(env), others=(env,)))
    assert to_reopen(Rows(same, env=env, begin=env.begin)) == ()
    assert to_reopen(Rows(lambda rows, index: row(env, index), env=env)) == ()
    assert to_reopen(Rows(same, others={env})) == ()
    assert to_reopen(Rows(same, many=[env] * 50)) == ()


def test_one_whose_file_is_another_meanwhile_is_left_alone(env: Any, path: str) -> None:
    dataset = Rows(same, env=env, known=id(env))
    (judged,) = to_reopen(dataset)
    assert judged.inherited is env
    for name in ("data.mdb", "lock.mdb"):
        Path(path, name).rename(Path(path, f"old-{name}"))
    assert to_reopen(dataset) == ()  # there is none
    write(path, "with env.begin(write=True) as t: t.put(b'000003', b'333')")
    left_alone(dataset)
    reopen((replace(judged, pid=0),), dataset)  # in a worker that comes later
    assert dataset.env is env
    for name in ("data.mdb", "lock.mdb"):
        Path(path, f"old-{name}").unlink()
    assert to_reopen(dataset) == ()


def test_one_that_is_closed_is_nothing_to_open(path: str) -> None:
    env = lmdb.open(path, readonly=True)
    env.close()
    assert to_reopen(Rows(same, env=env)) == ()


def test_one_opened_by_a_relative_path_is_opened_only_where_that_leads_to_it(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with lmdb.open("rows", readonly=True) as env:
        dataset = Rows(lambda rows, index: own_row(rows.env, index), env=env)
        assert load(loader_of(dataset)) == list(range(ROWS))
        monkeypatch.chdir("/")
        assert to_reopen(dataset) == ()


# ---- what is said --------------------------------------------------------------------------------


def test_too_few_slots_for_all_workers_are_told_as_that(path: str) -> None:
    def read(rows: Any, index: int) -> int:
        rows.open.append(rows.env.begin())
        return index

    with lmdb.open(path, readonly=True) as env, pytest.raises(lmdb.ReadersFullError) as caught:
        load(loader_of(Rows(read, env=env, open=[])))
    notes = "\n".join(caught.value.__notes__)
    assert "open it with a larger max_readers" in notes
