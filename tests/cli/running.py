"""Run a script by `antifreeze run`, and by `python` beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from ..patience import PATIENCE_S

PLAIN = [sys.executable]
OURS = [sys.executable, "-m", "antifreeze", "run"]
NO_LOADER = "antifreeze: this script looped over no DataLoader.\n"


def write(folder: Path, code: str, name: str = "train.py") -> Path:
    script = folder / name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(textwrap.dedent(code))
    return script


def start(folder: Path, *command: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command,
        capture_output=True,
        cwd=folder,
        timeout=PATIENCE_S,
        input=given,
        env=dict(os.environ),
    )


def both(
    folder: Path, *arguments: str, given: bytes = b"", told: str | None = NO_LOADER
) -> subprocess.CompletedProcess[bytes]:
    """Run both ways; expect the same, but for what is told at the end."""
    plain = start(folder, *PLAIN, *arguments, given=given)
    ours = start(folder, *OURS, *arguments, given=given)
    assert ours.returncode == plain.returncode, ours.stderr.decode()
    assert ours.stdout == plain.stdout
    if told is not None:
        assert ours.stderr.decode() == plain.stderr.decode() + told
    return ours
