"""What `make test` and `make test-all` run, and what becomes of a test that fails."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.run import TRIED_AGAIN, Suite, Totals, share_out, totals


def names(everything: bool) -> set[str]:
    return {path.name for part in share_out(everything) for path in part}


def test_make_test_leaves_out_what_needs_a_trainers_package() -> None:
    usual = names(everything=False)
    assert {"test_ddp.py", "test_install.py", "test_import.py"} <= usual
    assert not {"test_lightning.py", "test_accelerate.py", "test_pages.py"} & usual


def test_make_test_all_has_those_as_well() -> None:
    more = names(everything=True) - names(everything=False)
    assert {"test_lightning.py", "test_transformers.py", "test_ray_train.py"} <= more
    assert {"test_more_patients.py", "test_twenty_looks.py", "test_native_libraries.py"} <= more
    assert all(name.startswith("test_") for name in more) and len(more) == 11


# The first of them fails the first time only.
SICK = """
from pathlib import Path

def test_beside_others():
    been = Path(__file__).with_suffix(".been")
    there = been.exists()
    been.touch()
    assert there

def test_well():
    pass
"""
ALWAYS_SICK = """
import pytest

@pytest.mark.parametrize("place", range({count}))
def test_of_its_own_accord(place):
    assert place < 0
"""


def run(folder: Path, *texts: str) -> tuple[Suite, int]:
    """Run files of tests; give how many parts failed in the end as well."""
    files = [folder / f"test_{place}.py" for place in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    parts = folder / "parts"
    parts.mkdir()
    tests = Suite(parts, ["-q", f"--rootdir={folder}", "-p", "no:timeout"], time.monotonic())
    tests.run([[str(file)] for file in files], lanes=2)
    return tests, len(tests.settled())


def test_a_test_that_fails_beside_others_is_tried_again_alone_and_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tests, failed = run(tmp_path, SICK, "def test_too(): pass")
    assert (len(tests.parts), failed) == (3, 0)
    told = capfd.readouterr().out
    assert "assert there" in told  # what it said the first time
    assert "passed only alone: test_0.py::test_beside_others" in told


def test_one_that_fails_again_has_failed_and_many_are_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tests, failed = run(tmp_path, ALWAYS_SICK.format(count=1))
    assert (len(tests.parts), failed) == (2, 1)
    many = tmp_path / "many"
    many.mkdir()
    tests, failed = run(many, ALWAYS_SICK.format(count=TRIED_AGAIN + 1))
    assert (len(tests.parts), failed) == (1, 1)


def test_a_part_that_ends_otherwise_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tests, failed = run(tmp_path, "import os\ndef test_ends(): os._exit(1)", SICK)
    assert (len(tests.parts), failed) == (2, 1 + 1)
    broken = tmp_path / "broken"
    broken.mkdir()
    assert run(broken, "def test_no(")[1] == 1


# As libraries do that were extended in C++, at the end of the process.
TALKS_AT_THE_END = """
import atexit, os

def test_well():
    atexit.register(lambda: os.write(1, b"leaked 3 failed instances\\n" * 100))
"""


def test_counts_are_those_of_the_last_try_whatever_is_said_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    skipped = "import pytest\ndef test_not(): pytest.skip('no')"
    tests, _ = run(tmp_path, SICK, TALKS_AT_THE_END, skipped)
    assert "leaked 3 failed" in tests.parts[1].text[-400:]
    assert totals(tests.parts, failed=[]) == Totals(passed=3, failed=0, skipped=1)
    many = tmp_path / "many"
    many.mkdir()
    sick = ALWAYS_SICK.format(count=TRIED_AGAIN + 1)
    tests, _ = run(many, sick, "import os\ndef test_ends(): os._exit(3)")
    failed = [part for part in tests.parts if part.process.returncode != 0]
    assert totals(tests.parts, failed) == Totals(passed=0, failed=TRIED_AGAIN + 2, skipped=0)
