"""`antifreeze scan` imports nothing from the current folder where Python was told not to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..cli.running import write
from ..patience import PATIENCE_S

PLANTED = "open('owned', 'a').write(__name__)\nraise SystemExit('planted code ran')\n"
DATASET = "dataset = list(range(8))\n"


def scan(folder: Path, target: str, *flags: str, **variables: str) -> int:
    code = "import sys; from antifreeze.cli import main; sys.exit(main())"  # as the command does
    command = [sys.executable, *flags, "-c", code, "scan", "-w", "1", "-o", "bad.json", target]
    done = subprocess.run(
        command, cwd=folder, timeout=PATIENCE_S, env={**os.environ, **variables}, text=True
    )
    return done.returncode


@pytest.mark.parametrize(("flags", "variables"), [(("-P",), {}), ((), {"PYTHONSAFEPATH": "1"})])
def test_no_module_of_the_current_folder_or_the_files_is_imported(
    tmp_path: Path, flags: tuple[str, ...], variables: dict[str, str]
) -> None:
    for folder in ("here", "data"):
        for name in ("json", "rich", "torch", "cloudpickle", "sitecustomize", "tempfile"):
            write(tmp_path, PLANTED, f"{folder}/{name}.py")
    write(tmp_path, DATASET, "data/samples.py")
    assert scan(tmp_path / "here", "../data/samples.py:dataset", *flags, **variables) == 0
    assert not [*tmp_path.glob("*/owned")]
    write(tmp_path, DATASET, "here/samples.py")
    assert scan(tmp_path / "here", "samples:dataset", *flags, **variables) == 2  # not found
    assert not [*tmp_path.glob("*/owned")]


def test_else_both_folders_are_looked_in_as_python_does(tmp_path: Path) -> None:
    write(tmp_path, "from beside import dataset\n", "data/samples.py")
    write(tmp_path, DATASET, "data/beside.py")
    write(tmp_path, DATASET, "here/other.py")
    assert scan(tmp_path / "here", "../data/samples.py:dataset") == 0
    assert scan(tmp_path / "here", "other:dataset") == 0
