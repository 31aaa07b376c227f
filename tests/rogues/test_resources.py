"""Little room, few descriptors, no memory: our needs stay bounded, and a lack is told."""

from __future__ import annotations

import gc
import os
import re
import resource
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze import DataLoader
from antifreeze.errors import TransportFailed

from ..patience import PATIENCE_S
from .programs import PRELUDE, finish, program

ANSWER_S = 2.0  # the promise for an error that is known at once; a test allows five times that
MIB = 1024 * 1024

QUIET = """
    import warnings
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
"""

# Batches of 4 MB in several shapes; every value says which batch it is of.
BATCHES = f"""
    {QUIET.strip()}

    class Large(Numbers):
        def __getitem__(self, index):
            return torch.full((250_000,), index, dtype=torch.int32)

    class Mixed(Large):
        def __getitem__(self, index):
            return {{"large": super().__getitem__(index), "small": torch.tensor(index), "n": index}}

    class Many(Numbers):
        def __getitem__(self, index):
            return [torch.full((2000,), index * 1000 + part) for part in range(500)]    # 8 MB

    def stack(samples):
        return torch.stack(samples)

    def run(dataset, first, **arguments):
        seen, kept = 0, []
        for batch in DataLoader(dataset, num_workers=4, **arguments):
            kept.append(batch)
            seen += 1
        assert [int(first(batch)) for batch in kept] == list(range(0, 4 * seen, 4)), kept
        return seen
"""

SHAPES = {
    "default collate": "run(Large(60), lambda b: b[0, -1], batch_size=4)",
    "a collate function": "run(Large(60), lambda b: b[0, -1], batch_size=4, collate_fn=stack)",
    "a dict": "run(Mixed(60), lambda b: b['large'][0, -1], batch_size=4)",
    "persistent": "run(Large(60), lambda b: b[0, 0], batch_size=4, persistent_workers=True)",
}


def why_no_mount() -> str | None:
    """Say why a program cannot have a /dev/shm of its own, or None if it can."""
    if shutil.which("unshare") is None:
        return "there is no unshare(1)"
    probe = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=1m none /dev/shm"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=PATIENCE_S)
    return None if done.returncode == 0 else f"no private mount: {done.stderr.strip()}"


def test_batches_of_four_megabytes_where_shared_memory_has_one(tmp_path: Path) -> None:
    if (why := why_no_mount()) is not None:
        pytest.skip(why)
    lines = "".join(f"    say({what!r}, {run})\n" for what, run in SHAPES.items())
    script = tmp_path / "program.py"
    script.write_text(PRELUDE + textwrap.dedent(BATCHES + lines))
    command = f"mount -t tmpfs -o size=1m none /dev/shm && exec {sys.executable} {script}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    wanted = "".join(f"{what} 15\n" for what in SHAPES)
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")


def test_sixty_four_descriptors_are_enough_for_large_batches_and_for_many_tensors(
    tmp_path: Path,
) -> None:
    code = f"""
    {BATCHES.strip()}
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    say({SHAPES["default collate"]})
    say({SHAPES["a dict"]})
    for persistent in (False, True):
        loader = DataLoader(
            Many(16), batch_size=None, num_workers=4, persistent_workers=persistent
        )
        kept = list(loader) + list(loader)
        assert all(
            int(tensor[-1]) == place % 16 * 1000 + part
            for place, batch in enumerate(kept)
            for part, tensor in enumerate(batch)
        )
        say(len(kept), len(os.listdir("/proc/self/fd")) < 64)
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "15\n15\n32 True\n32 True\n", "")


@pytest.mark.parametrize("which", ["long", "unwritable", "a file", "gone while it runs"])
def test_a_temporary_folder_we_could_not_use(which: str, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    match which:
        case "long":
            folder = tmp_path / ("x" * 200)
            folder.mkdir()
        case "unwritable":
            folder = Path("/proc")  # not even root can make a file there
        case "a file":
            folder.write_text("")
        case "gone while it runs":
            folder.mkdir()
    code = f"""
    {BATCHES.strip()}
    import tempfile
    loader = DataLoader(Large(40), batch_size=4, num_workers=4, persistent_workers=True)
    assert len(list(loader)) == 10
    if {which == "gone while it runs"}:
        os.rmdir({str(folder)!r})
    say([int(batch[0, -1]) for batch in loader] == list(range(0, 40, 4)))
    """
    with program(tmp_path, code, env={**os.environ, "TMPDIR": str(folder)}) as process:
        assert finish(process) == (0, "True\n", "")
    if which == "long":
        assert list(folder.iterdir()) == []


# --- flat over time ------------------------------------------------------------------------------

MEASURE = f"""
    {QUIET.strip()}
    import gc, psutil, random, time
    from antifreeze._engine import main_process_monitor
    from antifreeze._worker import deferred_work as errands

    def lines(path):
        with open(path) as file:
            return file.read().splitlines()

    def proportional_kib(pid):
        # Not of files: what others, who come and go, share with us of libraries counts for less.
        own = ("Anonymous:", "Pss_Shmem:")
        found = [text for text in lines(f"/proc/{{pid}}/smaps_rollup") if text.startswith(own)]
        assert len(found) == len(own), found
        return sum(int(text.split()[1]) for text in found)

    def memory_files(pid):
        found = {{}}
        for name in os.listdir(f"/proc/{{pid}}/fd"):
            path = f"/proc/{{pid}}/fd/{{name}}"
            try:
                if "memfd:" in os.readlink(path):
                    status = os.stat(path)
                    found[status.st_dev, status.st_ino] = status.st_blocks // 2
            except OSError:
                continue
        return found

    def measure(workers=()):
        # Descriptors, mappings, KiB: what is mapped, and what an open memory file holds.
        gc.collect()
        main_process_monitor.rest()
        errands.rest()
        for thread in threading.enumerate():       # the last zygote may be about to leave
            if thread.name == "antifreeze-errands":
                thread.join(30)
            if thread.name == "antifreeze-bystander":  # it stays while there are workers
                thread.join(1)
        # Who is about to end still shares our pages, which count for less meanwhile.
        give_up = time.monotonic() + 5
        while not workers and psutil.Process().children(recursive=True):
            if time.monotonic() > give_up:
                break
            time.sleep(0.01)
        pids = [os.getpid(), *[worker.pid for worker in workers]]
        held = {{}}
        for pid in pids:
            held.update(memory_files(pid))
        return (
            sum(len(os.listdir(f"/proc/{{pid}}/fd")) for pid in pids),
            sum(len(lines(f"/proc/{{pid}}/maps")) for pid in pids),
            sum(map(proportional_kib, pids)) + sum(held.values()),
        )

    def check_flat(before, after, descriptors=4, mappings=50, kib=16 * 1024):
        grown = [b - a for a, b in zip(before, after)]
        assert grown[0] <= descriptors, ("descriptors", before, after)
        assert grown[1] <= mappings, ("mappings", before, after)
        assert grown[2] <= kib, ("KiB", before, after)
        say("flat")

    class Large(Numbers):
        def __getitem__(self, index):
            return torch.full((64 * 1024,), index, dtype=torch.int32)   # 256 KiB
"""


def test_two_hundred_short_epochs_with_persistent_workers_leave_nothing(tmp_path: Path) -> None:
    code = f"""
    {MEASURE.strip()}
    loader = DataLoader(
        Large(8), batch_size=2, num_workers=2, persistent_workers=True
    )
    def epochs(count):
        for epoch in range(count):
            for place, batch in enumerate(loader):
                assert int(batch[1, -1]) == 2 * place + 1
                if epoch % 7 == 3 and place == 1:
                    break
    epochs(20)
    before = measure(loader._iterator._workers)
    epochs(200)
    check_flat(before, measure(loader._iterator._workers))
    """
    with program(tmp_path, code) as process:
        returned, out, err = finish(process)
        assert (returned, out) == (0, "flat\n"), err


def test_short_epochs_with_workers_of_their_own_leave_nothing(tmp_path: Path) -> None:
    code = f"""
    {MEASURE.strip()}
    loader = DataLoader(Large(8), batch_size=2, num_workers=2)
    def epochs(count):
        for epoch in range(count):
            for place, batch in enumerate(loader):
                assert int(batch[1, -1]) == 2 * place + 1
                if epoch % 7 == 3 and place == 1:
                    break
    epochs(10)
    before = measure()
    epochs(30)
    check_flat(before, measure(), descriptors=0, kib=6 * 1024)
    """
    with program(tmp_path, code) as process:
        returned, out, err = finish(process)
        assert (returned, out) == (0, "flat\n"), err


def test_batches_of_changing_size_leave_nothing(tmp_path: Path) -> None:
    code = f"""
    {MEASURE.strip()}
    class Sizes(Numbers):
        def __getitem__(self, index):
            count = random.Random(index).choice([256, 4096, 70_000, 300_000, 512 * 1024])
            return torch.full((count - index % 200,), index, dtype=torch.int32)
    iterator = iter(DataLoader(Sizes(900), batch_size=None, num_workers=2))
    held = []
    def take(numbers):
        for number in numbers:
            batch = next(iterator)
            assert int(batch[0]) == int(batch[-1]) == number
            if number % 5 == 0:     # some are kept for a while, so that memory is freed in pieces
                held.append(batch)
            if len(held) > 4:
                assert int(held[0][0]) == int(held[0][-1])
                del held[0]
    take(range(400))
    before = measure(iterator._workers)
    take(range(400, 880))
    check_flat(before, measure(iterator._workers), descriptors=12, kib=40 * 1024)
    """
    with program(tmp_path, code) as process:
        returned, out, err = finish(process)
        assert (returned, out) == (0, "flat\n"), err


def test_five_hundred_tensors_a_batch_leave_nothing(tmp_path: Path) -> None:
    code = f"""
    {MEASURE.strip()}
    class Many(Numbers):
        def __getitem__(self, index):
            return [torch.full((500 + part,), index) for part in range(500)]    # 3 MB
    iterator = iter(DataLoader(Many(120), batch_size=None, num_workers=2))
    def take(numbers):
        for number in numbers:
            batch = next(iterator)
            assert all(int(tensor[-1]) == number for tensor in batch)
    take(range(30))
    before = measure(iterator._workers)
    take(range(30, 110))
    check_flat(before, measure(iterator._workers), kib=32 * 1024)
    """
    with program(tmp_path, code) as process:
        returned, out, err = finish(process)
        assert (returned, out) == (0, "flat\n"), err


def test_what_was_kept_and_dropped_is_given_back(tmp_path: Path) -> None:
    """The C library may keep what was freed, at its own discretion; here it is told not to."""
    code = f"""
    {MEASURE.strip()}
    loader = DataLoader(Large(600), batch_size=2, num_workers=2, persistent_workers=True)
    for batch in loader:
        pass
    del batch
    before = measure(loader._iterator._workers)
    for _ in range(3):
        kept = list(loader)     # 150 MiB
        assert [int(batch[1, -1]) for batch in kept] == list(range(1, 600, 2))
        # One batch of an epoch keeps itself, not the epoch.
        kept = kept[100]
    del kept
    for _ in loader:
        pass
    del _
    check_flat(before, measure(loader._iterator._workers), descriptors=12, kib=48 * 1024)
    """
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"}
    with program(tmp_path, code, env=environment, anew=True) as process:
        returned, out, err = finish(process)
        assert (returned, out) == (0, "flat\n"), err


# --- memory that cannot be had -------------------------------------------------------------------


class OneIsHuge:
    """Samples of 256 KiB, one of 8 MiB."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2 * MIB if index == 10 else MIB // 16,), index, dtype=torch.int32)


def allow_four_megabytes(worker: int) -> None:
    """Let no file of this process, memory files included, be larger than 4 MiB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * MIB, 4 * MIB))


def only(samples: list[Any]) -> Any:
    return samples[0]


def nested(samples: list[Any]) -> Any:
    return {"number": 7, "parts": [samples[0], torch.zeros(3)]}


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 1},
        {"batch_size": None},
        {"batch_size": 1, "collate_fn": only},
        {"batch_size": 1, "collate_fn": nested},
        {"batch_size": 1, "persistent_workers": True},
    ],
    ids=["default collate", "no collation", "a collate function", "a dict", "persistent"],
)
def test_a_batch_that_cannot_get_its_memory_is_an_error_with_the_arithmetic(
    arguments: dict[str, Any],
) -> None:
    loader = DataLoader(
        OneIsHuge(), num_workers=2, worker_init_fn=allow_four_megabytes, **arguments
    )
    iterator = iter(loader)
    for _ in range(10):
        next(iterator)
    pids = [worker.pid for worker in iterator._workers]
    before = time.monotonic()
    with pytest.raises(TransportFailed) as caught:
        next(iterator)
    assert time.monotonic() - before < 5 * ANSWER_S
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert re.search(r"needs (about )?\d", text), text
    assert re.search(r"\d.*available|available.*\d", text), text
    assert re.search(r"\b10\b", text), text  # the sample
    assert re.search(r"worker (process )?[01]\b", text), text
    # The iterator goes on, with the same workers: nobody died of a bus error.
    rest = list(iterator)
    assert len(rest) == 13
    tensors = [batch["parts"][0] if isinstance(batch, dict) else batch for batch in rest]
    assert [int(tensor.flatten()[-1]) for tensor in tensors] == list(range(11, 24))
    assert [worker.pid for worker in iterator._workers] == pids


def test_a_program_that_may_share_no_memory_at_all_is_told_so_by_iter(tmp_path: Path) -> None:
    code = """
    import resource
    loader = DataLoader(Numbers(8), num_workers=2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        iter(loader)
    except RuntimeError as error:
        assert "no worker was started" in str(error), error
        assert "RLIMIT_FSIZE" in str(error), error
        say(len(list(DataLoader(Numbers(8)))))
    """
    with program(tmp_path, code) as process:
        returned, out, err = finish(process)
        assert (returned, out) == (0, "8\n"), err


class Heap(torch.utils.data.Dataset[torch.Tensor]):
    """A dataset of many small Python objects, whose samples tell what its worker has for itself."""

    def __init__(self) -> None:
        self.objects = [[number] for number in range(400_000)]

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        gc.collect()
        rollup = Path("/proc/self/smaps_rollup").read_text()
        (private,) = re.findall(r"Private_Dirty:\s+(\d+) kB", rollup)
        return torch.tensor(int(private) * 1024)


def test_a_collection_in_a_worker_copies_nothing_of_what_it_inherited() -> None:
    dataset = Heap()
    assert sum(map(sys.getsizeof, dataset.objects)) > 20 * MIB
    own = max(int(each) for each in DataLoader(dataset, None, num_workers=1))
    theirs = max(int(each) for each in torch.utils.data.DataLoader(dataset, None, num_workers=1))
    assert own < theirs / 2, f"{own / MIB:.0f} MiB of its own; {theirs / MIB:.0f} under torch's"


class Faults(torch.utils.data.Dataset[torch.Tensor]):
    """Samples of 300 kB that say how many pages their worker has had to fault in so far."""

    def __len__(self) -> int:
        return 40 * 24

    def __getitem__(self, index: int) -> torch.Tensor:
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        return torch.from_numpy(np.full((75_000,), faults, dtype=np.int32))


def test_the_memory_of_samples_is_used_again_for_the_next_batch() -> None:
    """A batch's samples cover 2,900 pages. Each time they are given back and faulted in anew, that
    is a few milliseconds."""
    faults = [int(batch[0, 0]) for batch in DataLoader(Faults(), 40, num_workers=1)]
    late = faults[12:]
    assert (late[-1] - late[0]) / len(late) < 500, faults
