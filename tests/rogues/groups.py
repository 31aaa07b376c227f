"""Real groups of processes (cgroups) that may use little memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..patience import PATIENCE_S

GROUPS = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def group_of(limit: int) -> Iterator[Path]:
    """Make a group with a limit in bytes; skip the test where none can be made."""
    old = GROUPS / "memory"
    parent = old if old.is_dir() else GROUPS
    made = parent / f"antifreeze-test-{os.getpid()}"
    try:
        made.mkdir()
        file = made / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")
        file.write_text(str(limit))
    except OSError as error:
        pytest.skip(f"no group with a limit can be made here: {error}")
    yield made
    made.rmdir()


def run_in(
    group: Path, code: str, script: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a program as a member of a group from its first instruction on."""
    script.write_text(textwrap.dedent(code))
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
    )
