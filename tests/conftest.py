"""What every test is checked for: processes, threads and descriptors it leaves behind."""

from __future__ import annotations

import gc
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

from . import stem

SETTLE_S = 5.0  # a process that was killed needs a moment to be gone
QUICK_START = str(Path(__file__).parent / "quick_start")  # for every Python that a test starts

inherited = os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [inherited, QUICK_START]))


def pytest_collection_finish() -> None:
    """Never look for garbage among what was imported: it takes 0.1 s, and each test looks."""
    gc.collect()
    gc.freeze()


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
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    threads = set(threading.enumerate())
    descriptors = _descriptors()
    yield
    gc.collect()
    left = _left(me, before, threads)
    deadline = time.monotonic() + SETTLE_S
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = _left(me, before, threads)
    assert not left, f"left behind: {left}"
    more = {fd: what for fd, what in _descriptors().items() if fd not in descriptors}
    ours = {fd: what for fd, what in more.items() if _is_ours(what)}
    assert not ours, f"descriptors left open: {ours}"


def _left(me: psutil.Process, before: set[int], threads: set[threading.Thread]) -> list[str]:
    multiprocessing.active_children()  # reaps what has ended
    main_process_monitor.rest()  # it would see within a second that there is no loop left
    deferred_work.rest()  # likewise
    left = []
    for child in me.children(recursive=True):
        if child.pid in before or _is_service(child):
            continue
        left.append(f"{child}")
    for thread in threading.enumerate():
        if thread not in threads and thread.name.startswith("antifreeze"):
            left.append(f"{thread}")
    return left


def _is_service(child: psutil.Process) -> bool:
    """Whether it stays for the program (fork server, resource tracker, clean process, stem)."""
    if child.pid in (clean_process_pid(), stem.pid()):
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
