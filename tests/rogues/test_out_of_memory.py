"""A worker that the kernel ends for want of memory: said so, with figures, and replaced."""

from __future__ import annotations

from pathlib import Path

from .groups import group_of, run_in

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


def test_the_verdict_names_the_sample_and_the_figures(tmp_path: Path) -> None:
    with group_of(LIMIT) as group:
        done = run_in(group, CODE, tmp_path / "grows.py", str(tmp_path / "once"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[0, 1, 2, 3, 4, 5, 6, 7]")
    assert "was loading sample 5" in done.stderr
    assert "out of memory" in done.stderr + done.stdout
