"""What a clean process cannot be sent, and finds by name as torch's workers do; pools made anew."""

from __future__ import annotations

import struct
import subprocess
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from antifreeze import DataLoader

from ..forked_programs import run_script

LAYOUT = struct.Struct("<q")
LOCAL = threading.local()
LOCAL.factor = 3


class Pooled:
    """Asks a thread pool that it has used before."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.pool.submit(int, 1).result()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        (packed,) = LAYOUT.unpack(LAYOUT.pack(index))
        return int(self.pool.submit(int, packed).result()) * int(LOCAL.factor)


@pytest.mark.parametrize("context", [None, "spawn", "forkserver"])
def test_a_pool_arrives_without_threads_and_works(context: str | None) -> None:
    dataset = Pooled()
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=context)
    assert [batch.tolist() for batch in loader] == [[0, 3, 6, 9], [12, 15, 18, 21]]
    dataset.pool.shutdown()


MODULE = """
    import weakref
    class Thing: pass
    THING = Thing()
    REFERENCE = weakref.ref(THING)  # cannot be pickled
    class Rows:
        def __len__(self):
            return 4
        def __getitem__(self, index):
            assert REFERENCE() is THING
            return index
"""


def _run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    (folder / "rows.py").write_text(textwrap.dedent(MODULE))
    (folder / "script.py").write_text(textwrap.dedent(script))
    return run_script(folder / "script.py")


GUARDED = """
    from antifreeze import DataLoader
    %s
    if __name__ == "__main__":
        loader = DataLoader(Rows(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
        print([batch.tolist() for batch in loader])
"""


def test_a_module_that_cannot_be_sent_is_imported(tmp_path: Path) -> None:
    done = _run(tmp_path, GUARDED % "from rows import Rows")
    assert done.stdout == "[[0, 1], [2, 3]]\n", done.stderr


def test_a_script_that_cannot_be_sent_is_run_but_for_what_it_guards(tmp_path: Path) -> None:
    done = _run(tmp_path, GUARDED % textwrap.indent(textwrap.dedent(MODULE), "    ").strip())
    assert done.stdout == "[[0, 1], [2, 3]]\n", done.stderr


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = (GUARDED % textwrap.indent(textwrap.dedent(MODULE), "    ").strip()).replace(
        'if __name__ == "__main__":', "if True:"
    )
    done = _run(tmp_path, script)
    assert done.returncode == 1
    assert "put what it does under `if __name__ == '__main__':`" in done.stderr


STATE = """
    NAMES = []
    KINDS = []
    DEBUG = False
    TICKER = (number for number in range(3))  # cannot be pickled, and no worker needs it
    def register(kind):
        KINDS.append(kind.__name__)  # by the import as well
        return kind
    @register
    class Config:
        root = "/data"
"""

CHANGED = """
    import logging, sys
    import state, still
    from antifreeze import DataLoader
    class Still:
        def __len__(self):
            return 2
        def __getitem__(self, index):
            return index, still.DEBUG
    class Rows:
        def __len__(self):
            return 2
        def __getitem__(self, index):
            return index, state.DEBUG
    if __name__ == "__main__":
        logging.basicConfig(level="INFO", stream=sys.stdout, format="%(levelname)s %(message)s")
        def loop(dataset):
            workers = {"num_workers": 1, "multiprocessing_context": "forkserver"}
            print(list(DataLoader(dataset, None, **workers)))
        loop(Still())
        state.DEBUG, state.Config.root, state.ADDED = True, "/elsewhere", 1
        state.NAMES.append("a")
        for dataset in (Rows(), Rows(), Still()):
            loop(dataset)
"""


def test_what_workers_lack_that_import_modules_anew_is_named_once(tmp_path: Path) -> None:
    for name in ("state", "still"):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(STATE))
    done = _run(tmp_path, CHANGED)
    assert done.stdout.count("[[0, False], [1, False]]\n") == 4, done.stderr
    anew = [
        line for line in done.stdout.splitlines() if "import the program's modules anew" in line
    ]
    unchanged, changed, later = anew
    assert unchanged.startswith("INFO antifreeze: the dataset cannot be sent to a worker: ")
    assert "still.TICKER is a generator" in unchanged and unchanged.endswith("under spawn.")
    assert changed.startswith("WARNING") and "state.TICKER is a generator" in changed
    assert changed.endswith("(state.ADDED, state.Config.root, state.DEBUG, state.NAMES).")
    assert later.startswith("WARNING") and "still.TICKER is a generator" in later
