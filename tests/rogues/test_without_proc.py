"""A machine whose /proc is missing, another namespace's, or shows less than it might."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from antifreeze._linux import platform_support

from ..patience import PATIENCE_S

PROGRAM = """\
from antifreeze import DataLoader


class Numbers:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index


if __name__ == "__main__":
    for workers in (0, 2):
        for _ in range(2):
            loader = DataLoader(Numbers(), batch_size=4, num_workers=workers)
            assert [i for batch in loader for i in batch.tolist()] == list(range(40))
    print("done")
"""


def run(
    tmp_path: Path, *namespace: str, program: str = PROGRAM
) -> subprocess.CompletedProcess[str]:
    """Run a program in namespaces of its own; `namespace`: options of unshare(1), and a command."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare(1)")
    *options, mount = namespace
    probe = ["unshare", *options, "sh", "-c", mount or "true"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        pytest.skip(f"no private mount: {done.stderr.strip()}")
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    command = f"{mount or 'true'} && exec {sys.executable} {script}"
    return subprocess.run(
        ["unshare", *options, "sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_without_proc_the_loader_is_torchs_and_says_so_once(tmp_path: Path) -> None:
    done = run(tmp_path, "--mount", "mount -t tmpfs none /proc")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.count("lacks /proc (it is not mounted)") == 1


def test_with_the_proc_of_another_namespace_nobody_elses_process_is_looked_at(
    tmp_path: Path,
) -> None:
    """A worker's number means some other process there."""
    done = run(tmp_path, "--pid", "--fork", "")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.count("lacks /proc of its own PID namespace") == 1


@pytest.mark.parametrize("option", ["hidepid=2", "hidepid=ptraceable", "subset=pid"])
def test_a_proc_that_hides_others_is_enough(tmp_path: Path, option: str) -> None:
    done = run(tmp_path, "--mount", f"mount -t proc -o {option} proc /proc")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "antifreeze" not in done.stderr


def test_antifreeze_platform_asks_for_proc(tmp_path: Path) -> None:
    program = "from antifreeze.cli import main\nraise SystemExit(main(['platform']))\n"
    done = run(tmp_path, "--mount", "mount -t tmpfs none /proc", program=program)
    assert done.returncode == 1, done.stderr
    assert "/proc (it is not mounted)" in done.stdout
    assert "works as torch's" in done.stdout


def test_a_file_of_proc_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert platform_support.missing() == ()
    readable = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: path != "/proc/self/maps" and readable(path, mode)
    )
    assert platform_support.missing() == ("/proc/self/maps",)
