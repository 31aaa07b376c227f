"""What `ps` and `top` call our processes."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from antifreeze import DataLoader

from ..conftest import clean_process_pid
from .clean import another_thread, is_clean

SETTLE_S = 10.0


def names(pid: int) -> list[str]:
    """Give the names of the threads of a process, as the kernel has them, its own first."""
    tasks = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: task.name != str(pid))
    return [(task / "comm").read_text().strip() for task in tasks]


def named_as_they_are(workers: list[list[str]]) -> bool:
    """Tell whether all have their own names: who is born bears that of its parent for a moment."""
    processes = [each[0] for each in workers]
    threads = {each for names in workers for each in names[1:]}
    return processes == ["af_worker_0", "af_worker_1"] and threads <= {"antifreeze"}


@pytest.mark.parametrize("clean", [False, True])
def test_each_process_of_ours_has_a_name_of_its_own(clean: bool) -> None:
    before = names(os.getpid())[0]
    beside: AbstractContextManager[None] = another_thread() if clean else nullcontext()
    with beside:
        iterator = iter(DataLoader(list(range(100)), num_workers=2))
        next(iterator)
        workers = [worker.pid for worker in iterator._workers]
        give_up = time.monotonic() + SETTLE_S
        while not named_as_they_are(own := [names(pid) for pid in workers]):
            assert time.monotonic() < give_up, own
            time.sleep(0.05)
        zygote = iterator._driver.backend._source._present.pid
        while names(zygote) != ["af_zygote"]:  # it is forked after the first workers
            assert time.monotonic() < give_up, names(zygote)
            time.sleep(0.05)
        assert is_clean(iterator) is clean
        if clean:
            assert names(clean_process_pid() or 0)[0] == "af_clean"
    assert names(os.getpid())[0] == before
