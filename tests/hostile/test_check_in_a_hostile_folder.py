"""`python -m antifreeze check` in a folder whose files have the names of what we import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import antifreeze

from ..patience import PATIENCE_S

OURS = (
    *("rich", "libcst", "torch", "tomllib", "difflib", "tokenize", "textwrap", "json", "argparse"),
    *("typing", "dataclasses", "pathlib", "tempfile", "subprocess", "ast"),
)
BAD = "from torch.utils.data import DataLoader\nDataLoader('x', timeout=3)\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    for name in OURS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"open({str(tmp_path / name)!r}, 'w')\n{BAD}")
    (folder / "yaml.py").write_text(BAD)
    return folder


@pytest.mark.parametrize("module", ["antifreeze", "antifreeze.cli"])
@pytest.mark.parametrize(
    "words", [["check"], ["check", "--fix"], ["check", "--format", "sarif"], ["explain", "AF201"]]
)
def test_nothing_in_the_current_folder_is_imported(
    words: list[str], module: str, here: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=here,
        env={key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode in (0, 1), done.stderr
    assert os.listdir(tmp_path) == ["clone"], "a file of the folder was run"


def test_what_was_asked_for_stays_on_the_path(here: Path, tmp_path: Path) -> None:
    """With `-P`, or through a variable, the first entry is not the current folder."""
    (tmp_path / "lib").mkdir()
    code = "import sys; print(sys.path[0])"
    first = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    done = subprocess.run(
        [sys.executable, "-P", "-m", "antifreeze", "check", "--format", "json"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert first and done.returncode == 1, done.stderr


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_that_check_many_files_import_nothing_from_the_current_folder(
    method: str, tmp_path: Path
) -> None:
    """Whatever the default way to start a process is: it depends on Python and on the system."""
    (tmp_path / "multiprocessing.py").write_text("open('PWNED', 'w')\n")
    for number in range(100):
        (tmp_path / f"file_{number}.py").write_text("import torch.utils.data\n")
    code = f"""
import multiprocessing, sys
multiprocessing.set_start_method({method!r})
sys.path[:] = [each for each in sys.path if each]
from antifreeze.cli import main
sys.exit(main(["check", ".", "--jobs", "2"]))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(antifreeze.__file__).parent.parent)}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=PATIENCE_S
    )
    assert not (tmp_path / "PWNED").exists()
    assert done.returncode == 0 and "Nothing found in 101 files" in done.stdout, done.stderr
