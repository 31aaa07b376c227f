"""Whether a process holds locks that a fork of it would hold as well."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

import pytest

from antifreeze._worker import private_file_offsets
from antifreeze._worker.private_file_offsets import may_hold_locks

F_OFD_SETLK = 37  # Python names it from 3.13 on
WHOLE_FILE = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@pytest.fixture(autouse=True)
def nothing_locked_before() -> None:
    assert not may_hold_locks()


def test_a_flock_counts_until_it_is_released(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        assert not may_hold_locks()
        fcntl.flock(file, fcntl.LOCK_SH)
        assert may_hold_locks()
        fcntl.flock(file, fcntl.LOCK_UN)
        assert not may_hold_locks()


def test_a_locked_folder_counts(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        assert may_hold_locks()
    finally:
        os.close(folder)


def test_a_lock_of_an_open_file_description_counts(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        fcntl.fcntl(file, F_OFD_SETLK, WHOLE_FILE)
        assert may_hold_locks()


def test_a_lock_of_the_process_does_not_count(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert not may_hold_locks()


def test_locks_of_other_programs_do_not_count_and_inherited_ones_do(tmp_path: Path) -> None:
    with open(tmp_path / "inherited", "w") as inherited:
        told, tells = os.pipe()
        on, go_on = os.pipe()
        child = os.fork()
        if not child:
            fcntl.flock(inherited, fcntl.LOCK_EX)  # the kernel names the child as its owner
            other = open(tmp_path / "other", "w")  # noqa: SIM115
            fcntl.fcntl(other, F_OFD_SETLK, WHOLE_FILE)
            os.write(tells, b"x")
            os.read(on, 1)
            fcntl.flock(inherited, fcntl.LOCK_UN)
            os.write(tells, b"x")
            os.read(on, 1)
            os._exit(0)
        try:
            os.read(told, 1)
            assert may_hold_locks()
            os.write(go_on, b"x")
            os.read(told, 1)
            assert not may_hold_locks()  # the other one's lock is still there
        finally:
            os.write(go_on, b"xx")
            os.waitpid(child, 0)
            for number in (told, tells, on, go_on):
                os.close(number)


def test_with_very_many_files_nobody_looks() -> None:
    assert may_hold_locks(most_files=2)


def test_the_kernel_is_not_asked_for_the_locks_of_the_whole_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = []
    real = os.open

    def watched(path: str, *args: int) -> int:
        opened.append(path)
        return real(path, *args)

    monkeypatch.setattr(private_file_offsets.os, "open", watched)
    may_hold_locks()
    assert opened
    assert "/proc/locks" not in opened
