"""A sample that writes to descriptors that are not its own: it is said, and costs itself."""

from __future__ import annotations

import contextlib
import os
import stat

import pytest

from antifreeze import DataLoader
from antifreeze.errors import WorkerCrashed


class Writes:
    """Writes to every socket of the process it is in."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 5:
            for name in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                        os.write(int(name), b"a" * 64)
        return index


def test_its_worker_is_ended_and_the_error_says_why() -> None:
    loader = DataLoader(Writes(), batch_size=4, num_workers=1, multiprocessing_context="fork")
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1, 2, 3]
    with pytest.raises(WorkerCrashed, match="wrote to its channel") as caught:
        next(iterator)
    assert "[4, 5, 6, 7]" in str(caught.value) or "sample 5" in str(caught.value)
    assert next(iterator).tolist() == [8, 9, 10, 11]
