"""A worker that the kernel ends for want of memory: said so, with figures, and replaced."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup")
LIMIT = 600 * 1024 * 1024

CODE = """
import os, sys
from antifreeze import DataLoader

class Grows:
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 5 and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            self.hoard = [bytearray(os.urandom(1 << 20)) for _ in range(4000)]
        return index

if __name__ == "__main__":
    loader = DataLoader(Grows(), num_workers=1)
    print([int(batch) for batch in loader])
    print(loader.faults[0].exception)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """Make a group of processes that may use little memory."""
    old = GROUPS / "memory"
    parent = old if old.is_dir() else GROUPS
    made = parent / f"antifreeze-test-{os.getpid()}"
    try:
        made.mkdir()
        limit = made / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")
        limit.write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"no group with a limit can be made here: {error}")
    yield made
    made.rmdir()


def test_the_verdict_names_the_sample_and_the_figures(group: Path, tmp_path: Path) -> None:
    script = tmp_path / "grows.py"
    script.write_text(textwrap.dedent(CODE))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "once")],
        capture_output=True,
        text=True,
        timeout=200,
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[0, 1, 2, 3, 4, 5, 6, 7]")
    assert "was loading sample 5" in done.stderr
    assert "out of memory" in done.stderr + done.stdout
