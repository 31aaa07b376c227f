"""What every test is checked for: processes, threads and descriptors it leaves behind."""

from __future__ import annotations

import contextlib
import gc
import glob
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from antifreeze._engine import main_process_monitor
from antifreeze._processes.starting import clean_process
from antifreeze._worker import deferred_work

from . import forked_programs

SETTLE_S = 25.0  # a process that was killed needs a moment to be gone, on a busy machine more
QUICK_START = str(Path(__file__).parent / "quick_start")  # for every Python that a test starts

inherited = os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [inherited, QUICK_START]))


def pytest_collection_finish() -> None:
    """Collect what was dropped so far: later, it is not looked for any more."""
    gc.collect()


@pytest.fixture(autouse=True)
def nothing_learnt_before() -> Iterator[None]:
    """Forget what loaders of earlier tests have learnt of this process: each test is a program."""
    yield
    method = sys.modules.get("antifreeze._processes.starting.start_method")
    if method is not None:
        for learnt in (method._stuck, method._unfit, method._turned):
            learnt.clear()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    gc.freeze()  # each test looks for garbage: among all that was imported it takes 0.1 s and more
    before = descendants(os.getpid())
    threads = set(threading.enumerate())
    descriptors = _descriptors()
    yield
    gc.collect()
    left = _left(before, threads)
    deadline = time.monotonic() + SETTLE_S
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = _left(before, threads)
    assert not left, f"left behind: {left}"
    more = _more(descriptors)
    assert not more, f"descriptors left open: {more}"


def _by_psutil(pid: int) -> set[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return set()


def descendants(pid: int) -> set[int]:
    """Return children of a process, theirs, and so on; psutil looks at all processes for that."""
    found: set[int] = set()
    for tasks in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(tasks) as file:  # else it has ended
            found.update(map(int, file.read().split()))
    return found.union(*map(descendants, found))


if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):  # as the kernel was built
    descendants = _by_psutil


def _more(descriptors: dict[int, str]) -> dict[int, str]:
    """Return the descriptors of ours that are there beside those."""
    found = _descriptors()
    return {fd: what for fd, what in found.items() if fd not in descriptors and _is_ours(what)}


def _left(before: set[int], threads: set[threading.Thread]) -> list[str]:
    multiprocessing.active_children()  # reaps what has ended
    main_process_monitor.rest()  # it would see within a second that there is no loop left
    deferred_work.rest()  # likewise
    left = []
    for pid in descendants(os.getpid()) - before:
        with contextlib.suppress(psutil.NoSuchProcess):
            if not _is_service(child := psutil.Process(pid)):
                left.append(f"{child}")
    for thread in threading.enumerate():
        if thread not in threads and thread.name.startswith("antifreeze"):
            left.append(f"{thread}")
    return left


def _is_service(child: psutil.Process) -> bool:
    """Whether it stays for all tests (fork server, resource tracker, clean process ...)."""
    if child.pid in (clean_process_pid(), forked_programs.origin_pid()):
        return True
    try:
        command = " ".join(child.cmdline())
    except psutil.Error:
        return True
    return "resource_tracker" in command or "forkserver" in command


def clean_process_pid() -> int | None:
    return clean_process._present[1].pid if clean_process.is_there() else None


def _descriptors() -> dict[int, str]:
    found = {}
    of_clean_process = clean_process._present[1]._pidfd.number if clean_process.is_there() else None
    for name in os.listdir("/proc/self/fd"):
        if int(name) == of_clean_process:
            continue
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that listed the folder
    return found


def _is_ours(what: str) -> bool:
    return "antifreeze" in what or "eventfd" in what or "pidfd" in what
