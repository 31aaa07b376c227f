"""A worker from a clean process sees what a forked one would: one test for each thing."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import resource
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from torch.utils.data._utils.collate import default_collate_fn_map

from antifreeze import DataLoader
from antifreeze._processes.replication import module_state
from antifreeze._processes.starting import clean_process

from ..parity.observe import wait_until
from ..patience import PATIENCE_S
from . import settings
from .clean import another_thread, ask

Undo = Callable[[], object]


@pytest.fixture(autouse=True)
def a_clean_process_from_before() -> Iterator[None]:
    """Have it started before anything is changed: what it sees it was told."""
    clean_process.present()
    yield


def _variable() -> Undo:
    os.environ["OF_THIS_TEST"] = "set later"
    return lambda: os.environ.pop("OF_THIS_TEST")


def _directory() -> Undo:
    before = os.getcwd()
    os.chdir("/usr")
    return lambda: os.chdir(before)


def _path() -> Undo:
    sys.path.append("/nowhere/at/all")
    return lambda: sys.path.remove("/nowhere/at/all")


def _argv() -> Undo:
    sys.argv.append("--an-argument")
    return lambda: sys.argv.remove("--an-argument")


def _umask() -> Undo:
    before = os.umask(0o027)
    return lambda: os.umask(before)


def _read_umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def _limit() -> Undo:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 7, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _filters() -> Undo:
    before = list(warnings.filters)
    warnings.filterwarnings("ignore", "of this test")
    return lambda: warnings.filters.__setitem__(slice(None), before)


def _is_an_error() -> bool:
    try:
        warnings.warn("of this test", stacklevel=1)
    except UserWarning:
        return True
    return False


def _log_level() -> Undo:
    logger = logging.getLogger("of.this.test")
    logger.setLevel(logging.ERROR)
    return lambda: logger.setLevel(logging.NOTSET)


def _cores() -> Undo:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    return lambda: os.sched_setaffinity(0, before)


def _recursion() -> Undo:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 777)
    return lambda: sys.setrecursionlimit(before)


def _collector() -> Undo:
    before = gc.get_threshold()
    gc.set_threshold(5_000, 20, 30)
    return lambda: gc.set_threshold(*before)


def _socket_timeout() -> Undo:
    socket.setdefaulttimeout(12.5)
    return lambda: socket.setdefaulttimeout(None)


def _zone() -> Undo:
    os.environ["TZ"] = "Asia/Kathmandu"
    time.tzset()

    def undo() -> None:
        del os.environ["TZ"]
        time.tzset()

    return undo


def _dtype() -> Undo:
    torch.set_default_dtype(torch.float64)
    return lambda: torch.set_default_dtype(torch.float32)


def _strategy() -> Undo:
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    return lambda: torch.multiprocessing.set_sharing_strategy(before)


def _deterministic() -> Undo:
    torch.use_deterministic_algorithms(True, warn_only=True)
    return lambda: torch.use_deterministic_algorithms(False)


def _device() -> Undo:
    torch.set_default_device("cpu:0")
    return lambda: torch.set_default_device(None)


def _without_gradients() -> Undo:
    torch.set_grad_enabled(False)
    return lambda: torch.set_grad_enabled(True)


def _truncated() -> Undo:
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    return lambda: setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", False)


def _largest_image() -> Undo:
    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    return lambda: setattr(Image, "MAX_IMAGE_PIXELS", before)


def _errors_of_numpy() -> Undo:
    before = np.seterr(all="raise")
    return lambda: np.seterr(**before)


def _digits() -> Undo:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(10_000)
    return lambda: sys.set_int_max_str_digits(before)


class OwnFormat:
    """What a program adds to a library's registry."""


def _registered() -> Undo:
    Image.register_mime("OWN", "image/own")
    Image.register_save("OWN", OwnFormat)
    Image.init()
    return lambda: (Image.SAVE.pop("OWN"), Image.MIME.pop("OWN"))


def _collated() -> Undo:
    default_collate_fn_map[OwnFormat] = lambda batch, collate_fn_map=None: 1
    return lambda: default_collate_fn_map.pop(OwnFormat)


def _own_number() -> Undo:
    settings.SIZE = 64
    return lambda: setattr(settings, "SIZE", 32)


def _own_table() -> Undo:
    settings.TABLE["added"] = [1, 2]
    return lambda: settings.TABLE.pop("added")


def _own_class() -> Undo:
    settings.Config.root = "/data/elsewhere"
    return lambda: setattr(settings.Config, "root", "/data")


# What the program changes, and how a worker sees it.
CHANGES: dict[str, tuple[Callable[[], Undo], Callable[[], Any]]] = {
    "an environment variable": (_variable, lambda: os.environ.get("OF_THIS_TEST")),
    "an environment variable, for C": (_variable, lambda: _from_c("OF_THIS_TEST")),
    "the working directory": (_directory, os.getcwd),
    "sys.path": (_path, lambda: "/nowhere/at/all" in sys.path),
    "sys.argv": (_argv, lambda: list(sys.argv)),
    "the umask": (_umask, _read_umask),
    "a resource limit": (_limit, lambda: resource.getrlimit(resource.RLIMIT_NOFILE)),
    "the cores it may use": (_cores, lambda: os.sched_getaffinity(0)),
    "warning filters": (_filters, _is_an_error),
    "a logger's level": (_log_level, lambda: logging.getLogger("of.this.test").level),
    "the recursion limit": (_recursion, sys.getrecursionlimit),
    "the garbage collector": (_collector, gc.get_threshold),
    "the timeout of sockets": (_socket_timeout, socket.getdefaulttimeout),
    "the time zone": (_zone, lambda: time.strftime("%z")),
    "torch's default dtype": (_dtype, lambda: torch.ones(1).dtype),
    "torch's sharing strategy": (_strategy, torch.multiprocessing.get_sharing_strategy),
    "torch's deterministic mode": (
        _deterministic,
        torch.is_deterministic_algorithms_warn_only_enabled,
    ),
    "torch's default device": (_device, torch.get_default_device),
    "gradients switched off": (_without_gradients, torch.is_grad_enabled),
    "a setting of a library": (_truncated, lambda: ImageFile.LOAD_TRUNCATED_IMAGES),
    "a setting of a library, to None": (_largest_image, lambda: Image.MAX_IMAGE_PIXELS),
    "numpy's way with errors": (_errors_of_numpy, np.geterr),
    "how long integers may be": (_digits, sys.get_int_max_str_digits),
    "an own format in a library's registry": (
        _registered,
        lambda: (sorted(Image.OPEN), sorted(Image.SAVE), len(Image.ID), "OWN" in Image.MIME),
    ),
    "an own kind in torch's registry": (_collated, lambda: OwnFormat in default_collate_fn_map),
    "a number in a module of the program": (_own_number, lambda: settings.SIZE),
    "a dict in a module of the program": (_own_table, lambda: dict(settings.TABLE)),
    "a name taken from a module before": (_own_table, lambda: dict(settings.same_table())),
    "a class in a module of the program": (_own_class, lambda: settings.Config.root),
}


def _from_c(name: str) -> bytes | None:
    import ctypes

    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    value: bytes | None = getenv(name.encode())
    return value


@pytest.mark.parametrize("what", CHANGES)
def test_a_worker_from_a_clean_process_sees_what_the_program_has_set(what: str) -> None:
    change, look = CHANGES[what]
    before = look()
    undo = change()
    try:
        here = look()
        assert here != before, "nothing was changed"
        there = ask(None, lambda nothing: (os.getpid(), look()))
        assert there[0] != os.getpid()
        assert there[1] == here
    finally:
        undo()


def test_what_a_worker_logs_goes_where_the_program_logs(tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "log")
    handler.setFormatter(logging.Formatter("%(levelname)s by %(processName)s: %(message)s"))
    logger = logging.getLogger("of.this.test.too")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        logger.info("begun")

        def tell(nothing: None) -> int:
            logging.getLogger("of.this.test.too").info("loading")
            return 1

        ask(None, tell)
        logger.info("done")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        handler.close()
    first, *loaded, last = (tmp_path / "log").read_text().splitlines()
    assert (first, last) == ("INFO by MainProcess: begun", "INFO by MainProcess: done")
    assert loaded == ["INFO by antifreeze worker 0: loading"] * 2


def test_a_module_that_only_the_worker_imports_gets_its_settings_then() -> None:
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        found = ask(
            None, lambda nothing: __import__("PIL.ImageFile").ImageFile.LOAD_TRUNCATED_IMAGES
        )
        assert found is True
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False


def test_named_shared_memory_is_not_taken_away_by_a_worker_that_looked_at_it() -> None:
    from multiprocessing import shared_memory

    shared = shared_memory.SharedMemory(create=True, size=16)
    try:
        shared.buf[0] = 7
        assert ask(shared, lambda there: there.buf[0]) == 7
        time.sleep(0.5)  # for a tracker of the worker's own to clean up, if it had one
        again = shared_memory.SharedMemory(shared.name)
        assert again.buf[0] == 7
        again.close()
    finally:
        shared.close()
        shared.unlink()


def test_a_signal_to_its_parent_reaches_the_program() -> None:
    import signal

    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        ask(None, lambda nothing: os.kill(os.getppid(), signal.SIGUSR1) or time.sleep(0.05))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen


def test_what_cannot_be_carried_over_is_a_reason_to_fork_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader, writer = os.pipe()
    with open(reader), open(writer, "w") as stream:
        handler = logging.StreamHandler(stream)  # nobody else could open that
        logging.getLogger("of.this.test").addHandler(handler)
        try:
            with another_thread():
                loader: DataLoader[Any] = DataLoader([1, 2], None, num_workers=1)
                assert list(loader) == [1, 2]
                assert list(loader) == [1, 2]
        finally:
            logging.getLogger("of.this.test").removeHandler(handler)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "antifreeze"]
    assert "are forked from this process although another thread runs here" in line
    assert "logging handler" in line


def test_what_the_program_has_put_into_its_own_modules_is_there_whatever_it_is() -> None:
    settings.HOLDER = settings.Holder()  # it was None
    try:
        assert ask(settings.Holding(), lambda there: there[0]) == "it is there"
        held = ask(settings.HOLDER, lambda there: (there is settings.HOLDER, type(there).__name__))
        assert held == (True, "Holder")
    finally:
        settings.HOLDER = None


def test_functions_of_a_module_see_each_others_changes_there_too() -> None:
    def count(nothing: None) -> tuple[int, int]:
        settings.count_up()
        settings.count_up()
        return settings.COUNT, settings.counted()

    assert ask(None, count) == (2, 2)
    assert settings.COUNT == 0


def test_what_of_a_module_was_not_sent_is_imported_when_it_is_asked_for() -> None:
    def ask_by_name(nothing: None) -> str:
        from .settings import LATE

        return LATE

    assert ask(None, ask_by_name) == "not named by anybody"


def test_an_authkey_for_managers_is_carried() -> None:
    with multiprocessing.Manager() as manager:
        shared = manager.list([1, 2, 3])

        def add(proxy: Any) -> list[int]:
            proxy.append(4)
            return list(proxy)

        assert ask(shared, add)[:4] == [1, 2, 3, 4]
        assert list(shared) == [1, 2, 3, 4, 4]


def _debug(thing: Any) -> bool:
    return torch.version.debug


def test_only_libraries_that_differ_are_sent_and_those_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ask(None, _debug) is False
    assert wait_until(lambda: clean_process.present().known(), within_s=PATIENCE_S)
    known = clean_process.present().known()
    assert "torch.version" in module_state.collect({})
    assert "torch.version" not in module_state.collect(known)
    with monkeypatch.context() as changed:
        changed.setattr(torch.version, "debug", True)
        assert module_state.collect(known)["torch.version"]["debug"] is True
        assert ask(None, _debug) is True
    assert ask(None, _debug) is False
