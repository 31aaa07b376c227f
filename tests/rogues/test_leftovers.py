"""However a program ends, nothing of it stays: no process, no memory, no descriptor, no file."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from ..patience import PATIENCE_S
from ..repetition import some_of
from .programs import PRELUDE, all_gone

GONE_S = 2.0  # the promise after SIGKILL of the main process; a test allows five times that
MARK = "ANTIFREEZE_TEST_PROGRAM"

LARGE = """
    import gc, subprocess
    from antifreeze._engine import main_process_monitor
    from antifreeze._worker import deferred_work as errands
    torch.set_num_threads(1)

    class Large(Numbers):
        def __getitem__(self, index):
            time.sleep(self.nap_s)
            return torch.full((64 * 1024,), index, dtype=torch.int32)   # 256 KiB

    def ours(pid="self"):
        # Our memory in a process: how many mappings, how many descriptors.
        with open(f"/proc/{pid}/maps") as lines:
            mapped = sum("memfd:antifreeze" in line for line in lines)
        opened = 0
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                opened += "memfd:antifreeze" in os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                pass
        return mapped, opened

    def descriptors():
        # A process that was told to leave is seen off by a thread; another answers who asks from
        # outside, while there are loops.
        main_process_monitor.rest()
        errands.rest()
        for thread in threading.enumerate():
            if thread.name in ("antifreeze-errands", "antifreeze-bystander"):
                thread.join(30)
        return sorted(os.listdir("/proc/self/fd"), key=int)
"""


@dataclass
class Room:
    """A program in a session of its own, with a temporary folder and a /dev/shm of its own."""

    process: subprocess.Popen[str]
    mark: str
    temporary: Path
    shared: Path

    def members(self) -> list[int]:
        """List the living processes that carry the program's mark or are in its group."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if (
                    process.environ().get(MARK) == self.mark
                    or os.getpgid(process.pid) == self.process.pid
                ):
                    found.append(process.pid)
        return found

    def files(self) -> list[str]:
        return [*os.listdir(self.temporary), *os.listdir(self.shared)]

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextlib.contextmanager
def mounts_of_its_own() -> Iterator[int | None]:
    """Keep a mount namespace with an empty /dev/shm; give its holder's pid, None if impossible."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        yield None
        return
    command = "mount -t tmpfs -o size=64m none /dev/shm && echo ready && exec sleep 600"
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert holder.stdout is not None
    try:
        yield holder.pid if holder.stdout.readline().strip() == "ready" else None
    finally:
        holder.kill()
        holder.communicate()


@contextlib.contextmanager
def room(folder: Path, code: str) -> Iterator[Room]:
    script, temporary = folder / "program.py", folder / "temporary"
    script.write_text(PRELUDE + textwrap.dedent(LARGE + code))
    temporary.mkdir()
    mark = uuid.uuid4().hex
    with mounts_of_its_own() as holder:
        enter = [] if holder is None else ["nsenter", "--mount", f"--target={holder}"]
        shared = folder / "no mounts"
        if holder is None:  # then only the temporary folder is looked at
            shared.mkdir()
        else:
            shared = Path(f"/proc/{holder}/root/dev/shm")
        process = subprocess.Popen(
            [*enter, sys.executable, str(script)],
            env={**os.environ, "TMPDIR": str(temporary), MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        it = Room(process, mark, temporary, shared)
        try:
            yield it
        finally:
            for pid in it.members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.communicate()


def memory_of(pids: list[int]) -> set[str]:
    """List the memory files of ours that these processes map or hold open, by inode."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                if "memfd:antifreeze" in line:
                    found.add(line.split()[4])
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if "memfd:antifreeze" in os.readlink(f"/proc/{pid}/fd/{name}"):
                        found.add(str(os.stat(f"/proc/{pid}/fd/{name}").st_ino))
    return found


def wait_until_empty(it: Room, within_s: float) -> float:
    """Wait until no process of the program is left; give the seconds it took."""
    began = time.monotonic()
    while (left := it.members()) and time.monotonic() < began + within_s:
        time.sleep(0.05)
    assert not left, f"left: {left}"
    return time.monotonic() - began


# What the program does in its loop, the signal it is sent while in it, and how it then ends.
ENDINGS: dict[str, tuple[str, int | None, int]] = {
    "the end": ("pass", None, 0),
    "an exception": ("raise RuntimeError('mine')", None, 1),
    "os._exit": ("os._exit(6)", None, 6),
    "SIGTERM": ("time.sleep(100)", signal.SIGTERM, -signal.SIGTERM),
    "SIGKILL": ("time.sleep(100)", signal.SIGKILL, -signal.SIGKILL),
    "Ctrl-C": ("time.sleep(100)", signal.SIGINT, -signal.SIGINT),
    "break": ("break", None, 0),
    "sys.exit": ("sys.exit(5)", None, 5),
}


# Those that end as the first two do: in `make test-all`.
@pytest.mark.parametrize("ending", some_of(ENDINGS, 6))
def test_no_process_no_memory_and_no_file_outlives_the_program(ending: str, tmp_path: Path) -> None:
    act, number, wanted = ENDINGS[ending]
    code = f"""
    kept = []
    loader = DataLoader(Large(40), batch_size=2, num_workers=2, persistent_workers=True)
    for place, batch in enumerate(loader):
        kept.append(batch)
        if place == 10:
            say("in the loop", *ours())
            {act}
    say("after it", len(kept))
    """
    with room(tmp_path, code) as it:
        assert it.line().startswith("in the loop")
        if number is not None:
            members = it.members()
            assert len(members) >= 3  # main and its workers: what is looked for can be found
            memory = memory_of(members)
            assert memory  # and so can their memory
            if ending == "Ctrl-C":
                os.killpg(it.process.pid, number)
            else:
                it.process.send_signal(number)
        _, err = it.process.communicate(timeout=PATIENCE_S)
        assert it.process.returncode == wanted, err
        assert wait_until_empty(it, PATIENCE_S) < 5 * GONE_S
        assert it.files() == []
        if number is not None:
            assert not memory & memory_of(psutil.pids())
        if ending in ("an exception", "Ctrl-C"):
            assert err.count("Traceback (most recent call last)") == 1
        else:
            assert err == ""


@pytest.mark.parametrize(
    "state", ["asleep in a sample", "with the GIL held in a sample", "full of batches", "stopped"]
)
def test_workers_of_a_killed_program_are_gone_in_seconds(state: str, tmp_path: Path) -> None:
    code = f"""
    import ctypes
    class Busy(Large):
        def __getitem__(self, index):
            if index >= 8 and "asleep" in {state!r}:
                time.sleep(600)
            if index >= 8 and "GIL" in {state!r}:
                ctypes.PyDLL(None).sleep(600)
            return super().__getitem__(index)
    iterator = iter(DataLoader(Busy(4000), batch_size=2, num_workers=2, prefetch_factor=8))
    kept = [next(iterator), next(iterator)]
    time.sleep(0.3)
    say(*[worker.pid for worker in iterator._workers])
    time.sleep(600)
    """
    with room(tmp_path, code) as it:
        pids = [int(pid) for pid in it.line().split()]
        assert len(pids) == 2
        if state == "stopped":
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
        memory = memory_of(it.members())
        assert memory
        it.process.kill()
        assert all_gone(pids, within_s=5 * GONE_S)
        it.process.wait(PATIENCE_S)
        wait_until_empty(it, 5 * GONE_S)
        assert it.files() == []
        assert not memory & memory_of(psutil.pids())


def test_a_loop_that_ended_leaves_no_memory_in_the_program_that_goes_on(tmp_path: Path) -> None:
    code = """
    def loop(leave, **arguments):
        loader = DataLoader(Large(40), batch_size=2, num_workers=2, **arguments)
        try:
            for place, batch in enumerate(loader):
                if place == 10:
                    assert ours()[0] > 0, "nothing of ours is mapped"
                    if leave == "break":
                        break
                    if leave == "raise":
                        raise ValueError("mine")
                    if leave == "kept":
                        return batch
        except ValueError:
            pass

    loop("end")     # once for what is made once
    before = descriptors()
    for arguments in ({}, {"persistent_workers": True}):
        for leave in ("end", "break", "raise"):
            loop(leave, **arguments)
            gc.collect()
            assert descriptors() == before, (leave, arguments, before, descriptors())
            assert ours() == (0, 0), (leave, arguments, ours())
        # A batch that was kept keeps itself: one piece of memory, no descriptor.
        batch = loop("kept", **arguments)
        gc.collect()
        assert descriptors() == before
        assert ours()[0] <= 1 and ours()[1] == 0, ours()
        assert batch[:, -1].tolist() == [20, 21]
        del batch
        gc.collect()
        assert ours() == (0, 0), ours()
    say("clean")
    """
    with room(tmp_path, code) as it:
        out, err = it.process.communicate(timeout=PATIENCE_S)
        assert (it.process.returncode, out, err) == (0, "clean\n", "")
        assert it.files() == []


def test_a_program_started_by_the_user_inherits_nothing_of_ours(tmp_path: Path) -> None:
    code = """
    iterator = iter(DataLoader(Large(400), batch_size=2, num_workers=2))
    kept = [next(iterator) for _ in range(5)]
    assert ours()[0] > 0
    started = subprocess.Popen(["sleep", "600"], close_fds=False)
    listed = {os.readlink(f"/proc/{started.pid}/fd/{name}")
              for name in os.listdir(f"/proc/{started.pid}/fd") if int(name) > 2}
    say(started.pid, *ours(started.pid), len(listed))
    time.sleep(600)
    """
    with room(tmp_path, code) as it:
        started, mapped, opened, descriptors = map(int, it.line().split())
        assert (mapped, opened, descriptors) == (0, 0, 0)
        it.process.kill()
        it.process.wait(PATIENCE_S)
        assert all_gone([pid for pid in it.members() if pid != started], within_s=5 * GONE_S)
        assert it.members() == [started]
        os.kill(started, signal.SIGKILL)


def test_a_forked_child_that_stays_holds_its_batch_and_no_descriptor(tmp_path: Path) -> None:
    code = """
    iterator = iter(DataLoader(Large(400), batch_size=2, num_workers=2))
    for _ in range(5):
        batch = next(iterator)
    child = os.fork()
    if child == 0:
        main = os.getppid()
        while os.getppid() == main:     # until the main process is dead
            time.sleep(0.05)
        say(*batch[:, -1].tolist(), ours()[1])
        del batch
        os._exit(0)
    say("forked", child)
    time.sleep(600)
    """
    with room(tmp_path, code) as it:
        word, child = it.line().split()
        assert word == "forked"
        workers = [pid for pid in it.members() if pid not in (it.process.pid, int(child))]
        assert len(workers) == 3  # and their zygote
        it.process.kill()
        assert it.line() == "8 9 0"
        assert all_gone([*workers, int(child)], within_s=5 * GONE_S)
        it.process.wait(PATIENCE_S)
        wait_until_empty(it, 5 * GONE_S)
        assert it.files() == []
