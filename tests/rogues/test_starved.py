"""No /dev/shm, few descriptors, no TMPDIR: nothing we need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ..patience import PATIENCE_S
from .programs import PRELUDE, finish, program

LARGE = """
    class Large(Numbers):
        def __getitem__(self, index):
            return torch.full((300_000,), index, dtype=torch.int32)     # 1.2 MB
    def collate(samples):
        return torch.stack(samples)     # a custom one: torch's loader hangs with it
    seen = 0
    kept = []
    for batch in DataLoader(Large(60), batch_size=5, num_workers=4, collate_fn=collate):
        assert batch.shape == (5, 300_000)
        kept.append(batch)
        seen += len(batch)
    assert [int(b[0, 0]) for b in kept] == list(range(0, 60, 5))
    say("seen", seen)
"""


def can_mount() -> bool:
    probe = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=64k none /dev/shm"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(probe, capture_output=True, timeout=PATIENCE_S).returncode == 0
    )


def test_a_shared_memory_mount_of_one_megabyte(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("needs the right to mount in a namespace of its own")
    script = tmp_path / "program.py"
    script.write_text(
        PRELUDE + "import warnings; warnings.simplefilter('ignore')\n" + textwrap.dedent(LARGE)
    )
    command = f"mount -t tmpfs -o size=1m none /dev/shm && exec {sys.executable} {script}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "seen 60\n", "")


def test_sixty_four_descriptors_with_four_workers(tmp_path: Path) -> None:
    limit = """
        import resource, warnings
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    """
    code = textwrap.dedent(limit) + textwrap.dedent(LARGE)
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "seen 60\n", "")


@pytest.mark.parametrize("folder", ["gone", "x" * 200])
def test_a_temporary_folder_that_is_gone_or_has_a_long_name(folder: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path / folder)}
    code = "import warnings; warnings.simplefilter('ignore')\n" + textwrap.dedent(LARGE)
    with program(tmp_path, code, env=environment) as process:
        assert finish(process) == (0, "seen 60\n", "")


def test_descriptors_and_processes_stay_flat_over_many_epochs(tmp_path: Path) -> None:
    code = """
        def descriptors():
            for thread in threading.enumerate():
                if thread.name == "antifreeze-errands":
                    thread.join(30)
            return len(os.listdir("/proc/self/fd"))
        loader = DataLoader(Numbers(40), batch_size=10, num_workers=2)
        list(loader)
        before = descriptors()
        for _ in range(15):
            list(loader)
        for _ in range(15):
            next(iter(loader))
        assert descriptors() == before, (before, descriptors())
        import psutil
        assert psutil.Process().children() == []
        say("flat")
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "flat\n", "")


@pytest.mark.parametrize("context", ["None", '"spawn"'])
def test_too_few_descriptors_to_start_are_told_with_both_numbers(
    tmp_path: Path, context: str
) -> None:
    code = f"""
        import resource, warnings
        warnings.simplefilter("ignore")
        loader = DataLoader(Numbers(4), num_workers=16, multiprocessing_context={context})
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        if __name__ == "__main__":
            try:
                iter(loader)
            except OSError as error:
                say(error.errno, *error.__notes__)
    """
    with program(tmp_path, code) as process:
        code_, out, err = finish(process)
    assert (code_, err) == (0, "")
    assert out.startswith("24 antifreeze: no descriptor was left to start num_workers=16: this")
    assert "process may have 40 open at once" in out
    assert "ulimit -n" in out
