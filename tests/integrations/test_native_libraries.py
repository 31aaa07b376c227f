"""Libraries with threads of their own, used in the main process before workers are made.

Measured with torch 2.13's own loader, in these programs (November 2026, two cores): with polars 2.1
in `__getitem__` it hangs for ever; with numba 0.68 on OpenMP the run ends with "DataLoader worker
exited unexpectedly"; tokenizers 0.23, pyarrow 26.0, numba on its workqueue, and grpcio 1.85 with a
channel only run through. With a gRPC server in the main process they do too, and gRPC writes to
stderr at each fork that it skips its fork handlers; so there workers come from a clean process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .launching import PROGRAMS, environment, needs

pytestmark = needs("torch")  # each test says what else

FOLDER = PROGRAMS / "native_libraries"
PROMISED_S = 6.0
BOUND_S = 5 * PROMISED_S  # the first batch, and a whole epoch
ENDS_S = 180.0  # the program; it hangs, if it does, for ever
FORK, CLEAN = "main", "clean process"

CASES = [
    # Their threads are not copied, and are needed.
    *(("polars", case, CLEAN) for case in ("used", "late", "by module", "persistent")),
    *(("grpc", case, CLEAN) for case in ("used", "late", "persistent", "serves")),
    # These pools survive a fork.
    *((name, case, FORK) for name in ("tokenizers", "pyarrow", "numba omp", "numba workqueue")
      for case in ("used", "late", "persistent")),
    # Whatever the pool, workers that do not use it are forked; so are those that are the first to.
    *((name, case, FORK)
      for name in ("polars", "grpc", "tokenizers", "pyarrow", "numba omp", "numba workqueue")
      for case in ("unused", "imported")),
]  # fmt: skip


def run(library: str, case: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Run a program to its end; return what it printed and its stderr."""
    name, _, layer = library.partition(" ")
    facts = {"NUMBA_LAYER": layer or "workqueue", "OMP_NUM_THREADS": "2"}
    process = subprocess.Popen(
        [sys.executable, str(FOLDER / f"{name}_program.py"), case],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment(folder) | facts,
        cwd=folder,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=ENDS_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, err
    return json.loads(out), err


@pytest.mark.parametrize(
    ("library", "case", "origin"),
    [pytest.param(*each, marks=needs(each[0].partition(" ")[0])) for each in CASES],
)
def test_an_epoch_is_whole_and_workers_come_from_where_they_should(
    library: str, case: str, origin: str, tmp_path: Path
) -> None:
    told, err = run(library, case, tmp_path)
    assert told["epochs"] == [told["expected"]] * 2
    assert told["faults"] == []
    assert told["from"] == origin, told
    assert max(*told["first_s"], *told["whole_s"]) < BOUND_S, told
    assert err == ""


POOLS = {
    "polars": ("polars-0", "polars-1", "tokio-rt-worker", "async-executor-"),
    "grpc": ("event_engine", "grpc_global_tim", "lifeguard"),
}


@pytest.mark.parametrize("library", [pytest.param(each, marks=needs(each)) for each in POOLS])
def test_threads_have_the_names_that_they_are_known_by(library: str, tmp_path: Path) -> None:
    told, _ = run(library, "unused", tmp_path)
    assert len(set(told["threads"]).intersection(POOLS[library])) >= 2, told["threads"]
