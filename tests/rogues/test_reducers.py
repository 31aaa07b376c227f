"""Things in a dataset that pickle would turn into something else: they arrive as what they were."""

from __future__ import annotations

import ctypes
import functools
import gzip
import io
import mmap
import multiprocessing
import operator
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze import DataLoader
from antifreeze._processes.starting import clean_process
from antifreeze.errors import TransportFailed

from .clean import Asked, another_thread, ask
from .programs import all_gone, finish, line, program


class Special(torch.Tensor):
    """A subclass, as torchvision has."""


def forked(thing: Any, question: Any) -> Any:
    """Ask a forked worker, which is told in one line; give its answer."""
    with another_thread():
        loader: DataLoader[Any] = DataLoader(
            Asked(thing, question),
            None,
            num_workers=1,
            collate_fn=lambda row: row,
        )
        first, _ = list(loader)
    return first


# ---- tensors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["subclass", "storage", "conjugated"])
def test_memory_behind_other_kinds_of_tensors_is_not_moved_either(what: str) -> None:
    array = np.zeros(50_000, np.float32)
    plain = torch.from_numpy(array)
    things: dict[str, Any] = {
        "subclass": lambda: plain.as_subclass(Special),
        "storage": plain.untyped_storage,
        "conjugated": lambda: torch.view_as_complex(plain.view(-1, 2)).conj(),
    }
    thing = things[what]()
    address = plain.data_ptr()
    told = ask(thing, lambda there: (type(there).__name__, len(there)))
    assert told == (type(thing).__name__, len(thing))
    assert not plain.is_shared() and plain.data_ptr() == address
    array[0] = 7
    assert plain[0] == 7


def test_views_through_a_subclass_and_a_bare_storage_stay_views() -> None:
    plain = torch.zeros(10)
    things = [plain.as_subclass(Special), plain[3:], plain.untyped_storage()]

    def write(there: Any) -> tuple[float, int]:
        there[0][3] = 1.5
        return float(there[1][0]), int(there[2].data_ptr() == there[0].data_ptr())

    assert ask(things, write) == (1.5, 1)


def test_empty_tensors_are_not_each_other_and_small_ones_can_grow() -> None:
    things = [torch.empty(0), torch.empty(0), torch.zeros(3)]

    def fill(there: Any) -> list[Any]:
        torch.add(torch.tensor([1.0, 2.0]), 0, out=there[0])
        torch.add(torch.tensor([7.0, 8.0]), 0, out=there[1])
        there[2].resize_(6).fill_(4)
        return [each.tolist() for each in there]

    assert ask(things, fill) == [[1, 2], [7, 8], [4] * 6]


def test_tensors_arrive_where_another_device_is_the_default() -> None:
    tensor = torch.arange(20_000)
    torch.set_default_device("cpu:0")
    try:
        assert ask([tensor, torch.empty(0)], lambda there: there[0].sum().item()) == sum(
            range(20_000)
        )
    finally:
        torch.set_default_device(None)


def test_more_descriptors_than_one_message_takes() -> None:
    shared = [torch.full((2,), number).share_memory_() for number in range(450)]
    answer = ask(shared, lambda there: [int(each[0]) for each in there])
    assert answer == list(range(450))
    loader = DataLoader(shared, None, num_workers=1, multiprocessing_context="spawn")
    assert sum(int(each[0]) for each in loader) == sum(range(450))


class Shares:
    """What it is pickled as exists only while it is pickled."""

    def __getstate__(self) -> Any:
        return [torch.full((4,), number).share_memory_() for number in range(5)]

    def __setstate__(self, state: Any) -> None:
        self.sums = [int(each.sum()) for each in state]


def test_descriptors_of_what_is_gone_when_all_is_packed() -> None:
    assert ask(Shares(), lambda there: there.sums) == [0, 4, 8, 12, 16]


# ---- arrays --------------------------------------------------------------------------------------


def add_one(there: Any) -> int:
    there[0] += 1
    return int(there[0])


def test_an_array_in_named_shared_memory_stays_shared() -> None:
    shared = shared_memory.SharedMemory(create=True, size=800)
    try:
        array: Any = np.ndarray((100,), np.int64, shared.buf)
        array[:] = 0
        assert ask(array, add_one) == 1
        assert array[0] == 2  # both samples
        assert ask(array[::2][10:], add_one) == 1
        assert array[20] == 2
        assert ask(torch.from_numpy(array), add_one) == 3
        assert array[0] == 4
        del array
    finally:
        shared.close()
        shared.unlink()


SHARED: dict[str, Any] = {
    "an anonymous map": lambda: np.frombuffer(mmap.mmap(-1, 4096), np.int64),
    "a map of a file without a name": lambda: nameless(),
    "memory of multiprocessing": lambda: np.frombuffer(
        multiprocessing.Array("q", 10, lock=False), np.int64
    ),
    "a tensor over an anonymous map": lambda: torch.frombuffer(
        mmap.mmap(-1, 4096), dtype=torch.int64
    ),
    "an array over a shared tensor": lambda: (
        torch.zeros(10, dtype=torch.int64).share_memory_().numpy()
    ),
}


def nameless() -> Any:
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.int64, shape=(10,))


@pytest.mark.parametrize("what", SHARED)
def test_shared_memory_without_a_name_forces_a_fork(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    array = SHARED[what]()
    assert forked(array, add_one) == 1
    assert int(array[0]) == 2
    (text,) = [record.getMessage() for record in caplog.records if record.name == "antifreeze"]
    assert "dataset.thing" in text


def test_a_field_of_a_structured_memory_map_ends_where_it_ends(tmp_path: Path) -> None:
    kind = np.dtype([("x", "f8"), ("y", "i4")])
    records = np.zeros(342, kind)
    records["x"], records["y"] = np.arange(342), 5
    records.tofile(tmp_path / "records")
    mapped = np.memmap(tmp_path / "records", kind, "r")
    views = [mapped["x"], mapped["y"], mapped[::-1], mapped[10:20]]

    def look(there: Any) -> list[Any]:
        firsts = [float(there[0][-1]), int(there[1][-1]), float(there[2][0]["x"])]
        kinds = [type(each).__name__ for each in there]
        return [*firsts, float(there[3][0]["x"]), Path(there[3].filename).name, kinds]

    assert ask(views, look) == [341, 5, 341, 10, "records", ["memmap"] * 4]


def test_a_memory_map_whose_file_was_replaced_is_not_another_file(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"a" * 5000)
    mapped = np.memmap(path, np.uint8, "r")
    (tmp_path / "new").write_bytes(b"b" * 5000)
    os.replace(tmp_path / "new", path)
    assert forked(mapped, lambda there: chr(there[0])) == "a"


def test_a_text_file_is_not_translated_otherwise(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\r\ntwo\r\n")
    with open(tmp_path / "lines", newline="") as file:
        assert forked(file, lambda there: there.readline()) == "one\r\n"


ODD: dict[str, Any] = {
    "objects": np.array([{"a": 1}, "two", None], dtype=object),
    "structured": np.array([(1, 2.5)], dtype=[("n", "i4"), ("f", "f8")]),
    "fortran": np.asfortranarray(np.arange(60_000).reshape(200, 300)),
    "zero-dimensional": np.array(5),
    "empty": np.empty((0, 3)),
    "backwards": np.arange(100_000)[::-1],
    "every other": np.arange(100_000)[::2],
    "masked": np.ma.masked_array([1, 2, 3], mask=[False, True, False]),
    "strings": np.array(["a", "bcd"]),
    "dates": np.array(["2026-01-01"], dtype="datetime64[D]"),
    "large read-only": np.broadcast_to(np.arange(3), (4, 3)),
}


@pytest.mark.parametrize("what", ODD)
def test_arrays_of_odd_kinds(what: str) -> None:
    array = ODD[what]

    def look(there: Any) -> Any:
        flags = there.flags.f_contiguous, there.flags.c_contiguous
        return type(there).__name__, str(there.dtype), there.shape, there.tolist(), flags

    here, there = look(array), ask(array, look)
    assert there[:4] == here[:4]
    if what == "fortran":
        assert there[4] == here[4]


# ---- the script ----------------------------------------------------------------------------------

DECORATED = """
    import functools, pickle

    def logged(function):
        @functools.wraps(function)
        def wrapper(*arguments):
            return function(*arguments)
        return wrapper

    @logged
    def double(number):
        return 2 * number

    class Doubles(Numbers):
        def __getitem__(self, index):
            return double, double(index)

    threading.Thread(target=__import__("ctypes").CDLL(None).sleep, args=(1,)).start()
    loader = DataLoader(Doubles(2), None, num_workers=1, collate_fn=lambda row: row)
    say(*[number for function, number in loader if function is double])
"""


def test_a_decorated_function_of_the_script_is_the_same_on_both_sides(tmp_path: Path) -> None:
    with program(tmp_path, DECORATED) as process:
        assert finish(process) == (0, "0 2\n", "")


# ---- while a zygote opens ----------------------------------------------------------------------


class SlowToOpen:
    def __init__(self, told: Path) -> None:
        self.told = told

    def __setstate__(self, state: Any) -> None:
        state["told"].write_text(str(os.getpid()))
        time.sleep(60)

    def __getstate__(self) -> Any:
        return self.__dict__

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        return index


OPENING = """
    sys.path.insert(0, sys.argv[0].rpartition("/")[0])
    from pathlib import Path
    class Slow(Numbers):
        def __getstate__(self):
            return {"slow": True}
        def __setstate__(self, state):
            say(os.getpid(), os.getppid())
            time.sleep(60)

    threading.Thread(target=__import__("ctypes").CDLL(None).sleep, args=(60,), daemon=True).start()
    iter(DataLoader(Slow(), num_workers=1)).__next__()
"""


def test_a_zygote_that_is_opening_goes_with_the_program(tmp_path: Path) -> None:
    with program(tmp_path, OPENING) as process:
        pids = [int(pid) for pid in line(process).split()]
        assert len(pids) == 2, finish(process)
        process.kill()
        assert all_gone(pids)


class Fails:
    def __init__(self, size: int) -> None:
        self.size = size

    def __setstate__(self, state: Any) -> None:
        raise ValueError("x" * state["size"])

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("size", [10, 500_000])
def test_a_dataset_that_does_not_open_is_forked_and_its_error_told_in_short(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    with another_thread():
        assert [int(each) for each in DataLoader(Fails(size), num_workers=1)] == [0, 1]
    (text,) = [record.getMessage() for record in caplog.records if record.name == "antifreeze"]
    assert "ValueError: xxx" in text
    assert len(text) < 5000


class RunsPrograms:
    def __setstate__(self, state: Any) -> None:
        self.code = subprocess.run(["/bin/false"], check=False).returncode

    def __getstate__(self) -> Any:
        return {"nothing": 1}


def test_exit_codes_of_programs_that_a_dataset_runs_while_it_opens() -> None:
    assert ask(RunsPrograms(), lambda there: there.code) == 1


# ---- the same in every epoch ---------------------------------------------------------------------

MODE = """
    folder = sys.argv[0].rpartition("/")[0]
    import site, sysconfig

    class Mode(Numbers):
        def __getitem__(self, index):
            import colorsys_mode
            return colorsys_mode.MODE

    def opened():
        import colorsys_mode

    class Opens(Mode):
        def __getstate__(self):
            return {"length": 1}
        def __setstate__(self, state):
            opened()
            self.__dict__.update(state)

    threading.Thread(target=__import__("ctypes").CDLL(None).sleep, args=(5,), daemon=True).start()
    loader = DataLoader(Opens(1), None, num_workers=1, collate_fn=lambda row: row)
    os.environ["MY_MODE"] = "on"
    for _ in range(3):
        say(*loader)
        time.sleep(0.5)
"""


def test_libraries_are_imported_as_the_program_would_now_in_every_epoch(tmp_path: Path) -> None:
    # Stands for an installed library: the clean process imports those, and nothing of the program.
    library = tmp_path / "site" / "colorsys_mode.py"
    library.parent.mkdir()
    library.write_text("import os\nMODE = os.environ.get('MY_MODE', 'off')\n")
    code = f"import site; site.addsitedir({str(library.parent)!r})\n"
    with program(tmp_path, code + MODE.replace("\n    ", "\n")) as process:
        assert finish(process)[:2] == (0, "on\n" * 3)


# ---- programs for which it is hard to start one --------------------------------------------------


def test_what_is_no_string_in_the_path() -> None:
    sys.path.append(Path("/nowhere"))
    clean_process.end()
    try:
        assert ask(1, lambda there: there + 1) == 2
    finally:
        sys.path.pop()


def test_no_interpreter_to_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from multiprocessing import spawn

    clean_process.end()
    monkeypatch.setattr(spawn, "get_executable", lambda: None)
    assert forked(1, lambda there: there + 1) == 2
    assert "a clean process ends before it is ready" in caplog.text
    loader = DataLoader([1], num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(TransportFailed, match="no clean process could be had"):
        iter(loader)


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    code = """
        os.mkdir("inner")
        os.chdir("inner")
        sys.path.insert(0, "")
        os.rmdir(os.getcwd())
        threading.Thread(target=__import__("ctypes").CDLL(None).sleep, args=(1,)).start()
        say(len(list(DataLoader(Numbers(3), num_workers=1))))
    """
    with program(tmp_path, code, cwd=tmp_path) as process:
        assert finish(process)[:2] == (0, "3\n")


def test_a_collection_that_closes_a_loader_while_a_clean_process_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import gc

    clean_process.end()
    with another_thread():
        abandoned: list[Any] = [iter(DataLoader(range(10), num_workers=1))]
        abandoned.append(abandoned)
        first = clean_process._present
        assert first is not None
        os.kill(first[1].pid, signal.SIGSTOP)  # its zygote is not there, and never will be
        del abandoned
        rights = clean_process.rights

        def collects() -> Any:
            gc.collect()
            return rights()

        monkeypatch.setattr(clean_process, "rights", collects)
        assert clean_process.present() is not None
        os.kill(first[1].pid, signal.SIGKILL)


def test_a_socket_that_is_sent_is_shared_and_that_is_said(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.warns(UserWarning, match="an open socket"):
        theirs.sendall(b"ab")
        assert ask(ours, lambda there: there.recv(1)) == b"a"


def test_functions_that_remember_go_along() -> None:
    @functools.lru_cache
    def square(number: int) -> int:
        return number * number

    assert ask(square, lambda there: there(12)) == 144


@pytest.mark.parametrize("bound", [None, 3, 100])
@pytest.mark.parametrize("typed", [False, True])
def test_what_functions_remember_goes_along(bound: int | None, typed: bool) -> None:
    @functools.lru_cache(bound, typed)
    def settings(*names: Any, **options: Any) -> types.SimpleNamespace:
        return types.SimpleNamespace(value=0)

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((1,), {}),
        ((1.0,), {}),
        (("name",), {}),
        ((("a", "b"),), {}),
        ((1, None), {"scale": 2}),
        ((), {"scale": 2, "shift": (3,)}),
    ]
    for value, (names, options) in enumerate(calls):
        settings(*names, **options).value = value + 1
    settings.calls = 7

    def told(there: Any) -> list[int]:
        return [there.calls, *(there(*names, **options).value for names, options in calls[::-1])]

    here = told(settings)
    assert len(set(here)) > 3  # what was not remembered is 0
    for value, (names, options) in enumerate(calls):
        settings(*names, **options).value = value + 1
    assert ask(settings, told) == here


class Configured:
    scale = 1

    @classmethod
    @functools.lru_cache
    def only(cls) -> Configured:
        return cls()


def test_the_only_object_of_a_class_is_the_one_of_the_program() -> None:
    Configured.only().scale = 50
    try:
        assert ask(None, lambda nothing: Configured.only().scale) == 50
    finally:
        Configured.only.cache_clear()


@pytest.mark.parametrize(
    "module",
    ["cudnn", "mkldnn", "mps", "opt_einsum", "quantized", "cuda.matmul", "flags_frozen"],
)
def test_torchs_own_kinds_of_modules_are_found(module: str) -> None:
    assert ask(operator.attrgetter(module)(torch.backends), lambda there: type(there).__name__)


def test_seeding_as_most_programs_do_it_can_be_sent() -> None:
    def seed(worker: int) -> None:
        torch.backends.cudnn.deterministic = True
        torch.manual_seed(worker)

    assert ask(None, lambda nothing: torch.ops.aten.add(1, 2), worker_init_fn=seed) == 3


LIBC = ctypes.CDLL(None)
LIBC.getenv.restype = ctypes.c_char_p


def test_a_library_that_ctypes_has_loaded_goes_along_with_what_was_told_of_it() -> None:
    assert ask(None, lambda nothing: LIBC.getenv(b"HOME")) == os.environ["HOME"].encode()


# ---- arrays that share ---------------------------------------------------------------------------


def test_views_of_one_array_stay_views_of_one_array() -> None:
    whole = np.zeros((4, 5))
    things = [whole, whole[1:3], whole.T, whole[::-1, ::2], whole.ravel()]

    def write(there: Any) -> list[float]:
        there[0][1, 2] = 7
        told = [float(there[1][0, 2]), float(there[2][2, 1]), float(there[3][2, 1])]
        return [*told, float(there[4][7])]

    assert ask(things, write) == [7, 7, 7, 7]
    assert whole.sum() == 0


def test_a_window_that_slides_over_an_array_is_not_blown_up() -> None:
    array = np.arange(1_000_000, dtype=np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(array, 500)  # 4 GB, if it were copied
    began = time.monotonic()
    told = ask(windows, lambda there: (there.shape, float(there[10, 3]), there.flags.writeable))
    assert told == ((999_501, 500), 13.0, False)
    assert time.monotonic() - began < 30


def test_an_array_and_a_tensor_of_the_same_memory_stay_so() -> None:
    array = np.zeros(10)
    pair = [array, torch.from_numpy(array)]

    def write(there: Any) -> float:
        there[0][0] += 1
        return float(there[1][0])

    assert ask(pair, write) == 1


class Tagged(np.ndarray):
    """A subclass, with an attribute."""

    tag = ""


def test_attributes_of_arrays_and_tensors_are_not_lost() -> None:
    tensor = torch.ones(3)
    tensor.label = "mine"
    assert ask(tensor, lambda there: there.label) == "mine"
    array = np.ones(3).view(Tagged)
    array.tag = "yours"
    assert forked(array, lambda there: there.tag) == "yours"
    graded = torch.ones(3, requires_grad=True)
    graded.sum().backward()
    assert forked(graded, lambda there: there.grad.tolist()) == [1, 1, 1]


def test_a_file_that_is_read_through_another_is_not_read_without_it(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "packed.gz", "wb") as packed:
        packed.write(b"inside")
    with gzip.open(tmp_path / "packed.gz") as opened, io.BufferedReader(opened) as reader:
        assert forked(reader, lambda there: there.read(6)) == b"inside"


def test_a_chain_of_things_too_long_to_pickle_is_no_crash() -> None:
    chain: list[Any] = []
    for _ in range(200_000):
        chain = [chain]
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    try:
        assert forked(chain, len) == 1
        assert sys.getrecursionlimit() == 1_000_000
    finally:
        sys.setrecursionlimit(before)
        while chain:
            chain = chain[0]


# ---- zygotes that do not get ready -------------------------------------------------------------


class Leaves:
    """Ends the process that opens it."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __setstate__(self, state: Any) -> None:
        if state["how"] == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGSEGV)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("how", ["exit", "crash"])
def test_a_dataset_that_ends_the_process_that_opens_it_is_forked(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with another_thread():
        loader: DataLoader[Any] = DataLoader(Leaves(how), num_workers=1)
        assert [int(each) for each in loader] == [0, 1]
        assert [int(each) for each in loader] == [0, 1]
    assert caplog.text.count("are forked from this process although") == 1
    ended = "ended with exit code 3" if how == "exit" else "was killed by signal 11"
    assert f"{ended} while it opened the dataset" in caplog.text


def test_what_was_refused_once_is_not_packed_for_the_next_loader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dataset = Asked((number for number in range(3)), lambda thing: 1)
    with another_thread():
        for _ in range(3):
            loader: DataLoader[Any] = DataLoader(dataset, None, num_workers=1)
            assert list(loader) == [1, 1]
    assert caplog.text.count("are forked from this process although") == 1


# ---- the program's own code ----------------------------------------------------------------------

MODULE = """
import logging, os
print("imported", flush=True)
logging.getLogger("program").addHandler(logging.FileHandler("train.log", mode="w"))
os.environ["SIZE"] = "of the module"
TABLE = {}

class Rows:
    scale = 1

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return TABLE["rows"][index] * self.scale, os.environ["SIZE"], version()

def version():
    return 1
"""
IMPORTS = """
    import logging
    import inner
    logging.getLogger("program").warning("first line")
    inner.TABLE["rows"] = [10, 20]
    inner.Rows.scale = 3
    os.environ["SIZE"] = "of the script"
    threading.Thread(target=__import__("ctypes").CDLL(None).sleep, args=(8,), daemon=True).start()
    loader = DataLoader(inner.Rows(), None, num_workers=1, collate_fn=lambda row: row)
    say(*loader)
    with open("inner.py", "a") as file:                # edited meanwhile
        file.write("def version(): return 2")
    say(*loader)
    say(open("train.log").read())
"""


def test_modules_of_the_program_are_sent_as_they_are_and_not_imported(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text(MODULE)
    with program(tmp_path, IMPORTS, cwd=tmp_path) as process:
        code, out, err = finish(process)
    rows = "(30, 'of the script', 1) (60, 'of the script', 1)\n"
    assert (code, out, err) == (0, "imported\n" + 2 * rows + "first line\n\n", "")


BY_NAME = """
    import functools
    TOP = 4

    class Outer:
        class Inner:
            def __init__(self, number):
                self.number = number

    class Unnamed:
        pass

    @functools.lru_cache
    def cached(number):
        return number * number

    class Looks(Numbers):
        def __getitem__(self, index):
            kind = getattr(sys.modules[__name__], "Unnamed")
            (top,) = [globals()[name] for name in ("TOP",)]
            return Outer.Inner(cached(top) + index), kind()

    if __name__ == "__main__":
        threading.Thread(target=__import__("ctypes").CDLL(None).sleep, args=(1,)).start()
        for method in (None, "spawn"):
            loader = DataLoader(Looks(2), None, num_workers=1, multiprocessing_context=method,
                                collate_fn=lambda row: row)
            say(*[inner.number for inner, other in loader
                  if type(inner) is Outer.Inner and type(other) is Unnamed])
"""


def test_what_a_script_looks_up_by_name(tmp_path: Path) -> None:
    with program(tmp_path, BY_NAME) as process:
        assert finish(process) == (0, "16 17\n16 17\n", "")


IN_A_CHILD = """
    import torch.multiprocessing

    class Mine(Numbers):
        def __getitem__(self, index):
            return index * 10

    def rank(number):
        say(*[int(batch) for batch in DataLoader(Mine(3), num_workers=1)])

    if __name__ == "__main__":
        torch.multiprocessing.spawn(rank, nprocs=1)
"""


def test_a_loader_in_a_process_that_torch_has_spawned(tmp_path: Path) -> None:
    with program(tmp_path, IN_A_CHILD) as process:
        assert finish(process) == (0, "0 10 20\n", "")
