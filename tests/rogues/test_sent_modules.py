"""Own modules whose names are looked up in unusual ways: workers see what forked ones see."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from ..patience import PATIENCE_S

# Prints what forked workers see, then those of a clean process: a thread that holds a lock is the
# reason for it, or "spawn".
PROGRAM = """
import logging, sys, threading
from antifreeze import DataLoader
import data
SCRIPT

if __name__ == "__main__":
    change()
    wanted = getattr(sys.modules["__main__"], "Data", None) or data.Data
    def rows(**more):
        try:
            loader = DataLoader(wanted(), None, num_workers=1, collate_fn=str, **more)
            return sorted(set(loader))
        except Exception as error:
            return [type(error).__name__, str(error)]
    print(rows(multiprocessing_context="fork"))
    print(rows(multiprocessing_context="spawn"))
    done, lock, up = threading.Event(), threading.Lock(), threading.Event()
    def hold():
        with lock:
            up.set()
            done.wait()
    threading.Thread(target=hold).start()
    up.wait()
    print(rows())
    done.set()
"""
DATA = """
class Data:
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return look()
"""


def seen(folder: Path, files: dict[str, str], script: str = "") -> tuple[list[str], str]:
    """Return what workers see that are forked, spawned, and come from a clean process; and what
    the program says."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text) + (DATA if name == "data.py" else ""))
    if "def change" not in script:
        script = textwrap.dedent(script) + "\ndef change():\n    pass\n"
    (folder / "train.py").write_text(PROGRAM.replace("SCRIPT", textwrap.dedent(script)))
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


DEEP = """
    DEEP = []
    for _ in range(3000):
        DEEP = [DEEP]
"""


def test_a_deeply_nested_list_that_no_worker_uses_is_left_out(tmp_path: Path) -> None:
    files = {"data.py": "import deep\ndef look():\n    return 5\n", "deep.py": DEEP}
    rows, said = seen(tmp_path, files)
    assert rows == ["['5']"] * 3 and said == ""


def test_a_deeply_nested_list_that_workers_use_is_a_reason_to_fork(tmp_path: Path) -> None:
    files = {"data.py": textwrap.dedent(DEEP) + "def look():\n    return len(DEEP)\n"}
    rows, said = seen(tmp_path, files)
    assert rows == ["['1']"] * 3
    assert "workers are forked from this process although" in said
