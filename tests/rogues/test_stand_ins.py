"""What workers of a clean process see of the program's own modules: what forked ones see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ..forked_programs import run_script
from ..patience import PATIENCE_S
from ..repetition import some_of

ROOT = Path(__file__).parents[2]
PACKAGES = 12  # in one program


def _differences(folder: Path, first: int, count: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rogues.random_packages", str(folder), str(first), str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    said, _, looked = done.stdout.rpartition("looked at ")
    assert int(looked) > count / 2
    return said


@pytest.mark.parametrize("first", some_of([0, 1000], 1))
def test_random_packages_look_the_same_from_workers_of_a_clean_process(
    tmp_path: Path, first: int
) -> None:
    assert _differences(tmp_path, first, PACKAGES) == ""


def test_modules_that_can_be_imported_in_one_order_only_are_not_tried_in_all_others(
    tmp_path: Path,
) -> None:
    """Of this package a module asks for a name that it lacks; each try led to all other tries."""
    assert _differences(tmp_path, 3050, 1) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(2000, 2200, 25))
def test_more_random_packages_look_the_same(tmp_path: Path, first: int) -> None:
    assert _differences(tmp_path, first, 25) == ""


PROGRAM = """
import sys
import mypkg
from antifreeze import DataLoader
from mypkg.data import Data

if __name__ == "__main__":
    for how in ("fork", "spawn"):
        loader = DataLoader(Data(), 2, num_workers=1, multiprocessing_context=how, collate_fn=list)
        print(sum(loader, []))
"""
FILES = {
    "__init__.py": "class Name:\n    value = 7\nfrom .b import helper\nfrom .c import *\n",
    "b.py": "from . import Name\ndef helper(x):\n    return x, Name.value\n",
    "c.py": "__all__ = ['shown']\ndef shown():\n    return 'shown'\nhidden = 1\n",
    "data.py": (
        "import importlib, pkgutil\n"
        "class Data:\n"
        "    def __len__(self):\n        return 4\n"
        "    def __getitem__(self, index):\n"
        "        package = importlib.import_module('mypkg')\n"
        "        text = pkgutil.get_data('mypkg', 'words.txt').decode()\n"
        "        hidden = hasattr(package, 'hidden')\n"
        "        return index, package.helper(index), package.shown(), hidden, text\n"
    ),
    "words.txt": "words",
}


def test_a_name_that_was_not_sent_is_found_where_modules_import_from_their_package(
    tmp_path: Path,
) -> None:
    (tmp_path / "mypkg").mkdir()
    for name, text in FILES.items():
        (tmp_path / "mypkg" / name).write_text(text)
    (tmp_path / "train.py").write_text(PROGRAM)
    done = run_script(tmp_path / "train.py")
    assert done.stderr == "" and done.returncode == 0
    forked, clean = done.stdout.splitlines()
    assert clean == forked and "(3, (3, 7), 'shown', False, 'words')" in forked
