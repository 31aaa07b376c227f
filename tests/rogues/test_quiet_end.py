"""Workers that end as Python does leave nothing for libraries to complain of."""

from __future__ import annotations

from pathlib import Path

from ..forked_programs import run_script

# What nanobind does for its extensions: it counts at the end of Python what still lives.
PROGRAM = """
import atexit, gc, sys
from dataclasses import replace
import torch
from antifreeze import DataLoader
from antifreeze._core.limits import LIMITS

class Leaks:
    alive = 0
    def __init__(self): Leaks.alive += 1; self.me = self
    def __del__(self): Leaks.alive -= 1

class Data:
    def __init__(self): self.state = None
    def __setstate__(self, state):
        Leaks()  # garbage, in a cycle
        atexit.register(count)
    def __len__(self): return 4
    def __getitem__(self, index): return index

def count():
    gc.collect()
    if Leaks.alive: print("leaked", file=sys.stderr)

if __name__ == "__main__":
    how = {"multiprocessing_context": "spawn", "randomness": "torch"}
    loader = DataLoader(Data(), 2, num_workers=1, **how)
    loader._limits = replace(LIMITS, stop_idle_s=100.0)  # on a busy machine it may take a while
    print([batch.tolist() for batch in loader])
"""


def test_what_was_there_before_a_worker_is_no_leak_at_its_end(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    done = run_script(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[[0, 1], [2, 3]]\n", "")
