"""What ran on which torch and Python: the rows of a table, kept as data, and their page."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

from antifreeze.cli.gpu_check import report
from antifreeze.cli.tested_versions import Run, minor

from .selection import CHOSEN

ROOT = Path(__file__).resolve().parents[2]
# In the package: `antifreeze platform` tells by it whether the versions at hand were tested.
DATA = ROOT / "src" / "antifreeze" / "cli" / "tested_versions.json"
PAGE = ROOT / "docs" / "compatibility.md"


def key(run: Run) -> tuple[str, str]:
    """Return what there is one row of: a version of torch, and a minor version of Python."""
    return run.torch, minor(run.python)


def order(run: Run) -> tuple[int, ...]:
    """Return what rows are sorted by: the newest torch first, then the newest Python."""
    parts = [*run.torch.split("."), "x", *run.python.split(".")]
    return tuple(-int(digits[0]) for part in parts if (digits := re.match(r"\d+", part)))


def read() -> list[Run]:
    """Return the rows. Strict, unlike the command line: a broken file is never written over."""
    return [Run(**entry) for entry in json.loads(DATA.read_text())] if DATA.exists() else []


def record(run: Run) -> None:
    """Keep a row, in place of an earlier one of these versions, and write the page anew."""
    rows = [*(kept for kept in read() if key(kept) != key(run)), run]
    rows.sort(key=order)
    lines = ",\n".join(f"  {json.dumps(asdict(each))}" for each in rows)
    DATA.write_text(f"[\n{lines}\n]\n")
    PAGE.write_text(page(rows))


def page(rows: list[Run]) -> str:
    """Return docs/compatibility.md."""
    suites = "\n".join(f"- **{choice.what}**: {choice.reason}" for choice in CHOSEN)
    differences = "| versions | what differs |\n|---|---|\n" + "".join(
        f"| {versions} | {what} |\n" for versions, what in DIFFERENCES
    )
    return PAGE_TEXT.format(
        table=table(rows),
        suites=suites,
        differences=differences,
        section=report.SECTION,
        accelerators=report.header(),
    )


def table(rows: list[Run]) -> str:
    head = "| torch | Python | passed | failed | skipped | date | antifreeze |\n"
    line = "|---|---|---:|---:|---:|---|---|\n"
    return (
        head
        + line
        + "".join(
            f"| {row.torch} | {row.python} | {row.passed:,} | {row.failed} | {row.skipped} "
            f"| {row.date} | {row.antifreeze} |\n"
            for row in rows
        )
    )


# Each has its test: see tests/torch_versions.py for torch's.
DIFFERENCES = (
    (
        "torch 2.6",
        "a loader that pins asks for CUDA alone, and does not warn where there is no accelerator",
    ),
    ("torch 2.6 to 2.8", "`pin_memory_device` counts: a device that is not there is an error"),
    (
        "torch 2.6 to 2.11",
        "an assignment to an attribute of `get_worker_info()` is a `RuntimeError`, later a"
        " `FrozenInstanceError`",
    ),
    (
        "Python 3.12 and newer",
        "Python's own `DeprecationWarning` about a fork beside other threads, with torch's loader"
        " and with ours; hidden unless warnings are switched on",
    ),
    (
        "Python 3.14",
        "torch's loader starts workers by a fork server unless told otherwise: each imports torch,"
        " and the dataset is pickled. Ours forks them as before, unless"
        ' `multiprocessing_context`, `multiprocessing.set_start_method` or `randomness="torch"`'
        " says otherwise",
    ),
    (
        "Python 3.14",
        "a `breakpoint()` in a worker ends that worker, since pdb leaves by `sys.exit()`; before,"
        " it is a `BdbQuit` in the loop",
    ),
    ("free-threaded Python", "not tested: no such interpreter was at hand"),
)
PAGE_TEXT = """\
# Compatibility

antifreeze needs torch 2.6 or newer (below 3) and Python 3.11 or newer, on Linux. The table shows
the versions that its tests have run on, newest first. `make compat` writes it.

{table}
"Skipped" are tests of something that these versions do not have, or of a machine that this one is
not. The numbers differ for that reason, and by when a row was run: tests are added. A version
between two of the table is expected to work. With one that is newer than all of them, antifreeze
works as long as torch has every name that it builds on; otherwise torch's own loader loads, and one
line says so.

All builds of torch in the table other than 2.13.0 are CUDA builds, on a machine without a GPU:
nothing in it says anything about a GPU.

## {section}

None yet. [`antifreeze platform --gpu`](gpu-check.md) prints the line that belongs here:

{accelerators}

## What differs by version

{differences}
## What runs

`make compat TORCH=2.7.1 PYTHON=python3.13` makes an environment of its own, runs these, replaces
the row of these versions, and removes the environment:

{suites}

`KEEP=1` keeps the environment, in `.compat` (`COMPAT_FOLDER=...` places it elsewhere).
`TESTS="tests/parity/test_batches.py"` runs only that, and leaves the table alone. `make compat-all`
runs all versions of the table, one after the other.
"""
