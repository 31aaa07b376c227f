"""What `antifreeze check` promises: its own tree is clean, plain reading is never blamed, and it
neither crashes nor crawls on large packages."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from antifreeze.doctor.check.checker import check, check_text
from antifreeze.doctor.check.files.file_discovery import walk
from antifreeze.doctor.check.pyproject_settings import read_settings
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.findings import Confidence

from ..patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
BAR_S = 15.0  # for 100,000 lines
SLOWER = 5  # what a busy machine may take of it: an upper bound is five times the promise

PER_CALL = {
    "with": """
        with open(os.path.join(self.folder, self.names[index]), "rb") as file:
            return file.read()
""",
    "without with": """
        file = open(self.names[index])
        text = file.read()
        file.close()
        return text
""",
    "pathlib": """
        return (pathlib.Path(self.folder) / self.names[index]).read_bytes()
""",
    "one large file, at an offset": """
        with open(self.folder, "rb") as file:
            file.seek(index * 100)
            return file.read(100)
""",
    "numpy": """
        return numpy.load(self.names[index])
""",
    "memory map": """
        return numpy.load(self.folder, mmap_mode="r")[index]
""",
    "image": """
        return numpy.asarray(PIL.Image.open(self.names[index]).convert("RGB"))
""",
}
PROGRAM = """import os
import pathlib

import numpy
import PIL.Image
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, folder, names):
        self.folder, self.names = folder, names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):{body}

def main():
    loader = DataLoader(Files("data", ["a"]), batch_size=8, shuffle=True, num_workers=8)
    for batch in loader:
        print(len(batch))


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("how", PER_CALL)
def test_a_file_that_is_opened_for_each_sample_is_never_blamed(how: str) -> None:
    text = PROGRAM.replace("{body}", PER_CALL[how])
    result = check_text(text, Settings(confidence=Confidence.POSSIBLE))
    assert not result.found and not result.failures


def test_our_own_tree_is_clean() -> None:
    settings = read_settings(ROOT)
    files = walk([ROOT / each for each in ("src", "examples", "tests")], settings).files
    result = check(files, settings)
    assert not result.failures
    assert not [f"{each.place}: {each.code} {each.words}" for each in result.found]
    assert result.files > 300


def test_what_is_left_out_of_our_own_tree_is_sick_on_purpose() -> None:
    excluded = read_settings(ROOT).exclude
    assert all((ROOT / each).exists() and each.startswith("tests/") for each in excluded), excluded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "lines"),
    [("utils", 40_000), pytest.param("distributed", 100_000, marks=pytest.mark.thorough)],
)
def test_a_large_package_is_checked_without_a_failure_in_time(part: str, lines: int) -> None:
    """torch's own `utils` and `distributed`: loaders, samplers, and much that is neither."""
    import torch

    package = Path(torch.__file__).resolve().parent  # a link out of the project is refused
    files = walk([package / part], Settings()).files
    start = time.perf_counter()
    result = check(files, Settings(jobs=1, confidence=Confidence.POSSIBLE))
    took = time.perf_counter() - start
    assert not result.failures and result.lines > lines
    assert took < BAR_S * SLOWER * result.lines / 100_000, f"{took:.0f} s, {result.lines} lines"


def test_the_check_imports_no_torch() -> None:
    code = (
        "import sys; from antifreeze.cli import main; main(['check', sys.argv[1]]);"
        " sys.exit('torch' in sys.modules or 'libcst' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "src" / "antifreeze" / "cli")],
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
