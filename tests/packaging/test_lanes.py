"""What `make test` and `make test-all` run, and what becomes of a test that fails."""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.run import (
    HERE,
    KEPT_LINES,
    NOT_THOROUGH,
    PART,
    TRIED_AGAIN,
    WEIGHTS,
    Retried,
    Suite,
    Totals,
    note_retried,
    share_out,
    totals,
)


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the many pytest processes of these tests import none: that takes longest."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


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


def test_a_test_that_is_marked_by_itself_is_left_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    marked = "import pytest\n@pytest.mark.thorough\ndef test_more(): pass\ndef test_some(): pass"
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = thorough\n")
    (tmp_path / "all").mkdir()
    for folder, more, passed in ((tmp_path, NOT_THOROUGH, 1), (tmp_path / "all", (), 2)):
        tests, failed = run(folder, marked, arguments=more)
        assert (totals(tests.parts, failed=[]).passed, failed) == (passed, 0)


def test_each_file_that_is_said_to_take_long_exists_and_none_is_more_than_a_lane() -> None:
    assert len(WEIGHTS) > 50
    assert [name for name in WEIGHTS if not (HERE / name).exists()] == []
    usual = {path.relative_to(HERE).as_posix() for part in share_out() for path in part}
    assert [name for name in usual if WEIGHTS.get(name, 0) > 3 * PART] == []


# The first of them fails the first time only.
SICK = """
from pathlib import Path

def test_beside_others():
    been = Path(__file__).with_suffix(".been")
    there = been.exists()
    been.touch()
    assert there, "for the first time"

def test_well():
    pass
"""
WHY = "AssertionError: for the first time"
ALWAYS_SICK = """
import pytest

@pytest.mark.parametrize("place", range({count}))
def test_of_its_own_accord(place):
    assert place < 0
"""


def run(folder: Path, *texts: str, arguments: tuple[str, ...] = ()) -> tuple[Suite, int]:
    """Run files of tests. Return the suite, and how many parts failed in the end."""
    files = [folder / f"test_{place}.py" for place in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    parts = folder / "parts"
    parts.mkdir()
    options = ["-q", f"--rootdir={folder}", "-p", "no:timeout", *arguments]
    tests = Suite(parts, options, time.monotonic())
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
    assert tests.retried == [Retried("test_0.py::test_beside_others", WHY)]


def test_what_passed_only_alone_is_shown_last_and_kept_with_the_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "retried.txt"
    note_retried([], file)
    assert not file.exists()
    flaky = Retried("tests/a/test_b.py::test_c[two words]", "AssertionError: 3 != 4")
    note_retried([flaky, Retried("tests/a/test_d.py::test_e", "")], file)
    assert capsys.readouterr().out.splitlines() == [
        "passed only alone: tests/a/test_b.py::test_c[two words]",
        "passed only alone: tests/a/test_d.py::test_e",
    ]
    today = datetime.date.today().isoformat()
    assert re.match(r"\d{4}-\d\d-\d\d$", today)
    assert file.read_text().splitlines() == [
        f"{today}  tests/a/test_b.py::test_c[two words]  AssertionError: 3 != 4",
        f"{today}  tests/a/test_d.py::test_e",
    ]
    note_retried([flaky], file)
    assert capsys.readouterr().out.endswith("two words] (2 times in retried.txt)\n")
    note_retried([flaky] * KEPT_LINES, file)
    assert len(file.read_text().splitlines()) == KEPT_LINES


def test_the_whole_command_names_a_test_that_passed_only_alone_in_its_last_line(
    tmp_path: Path,
) -> None:
    """A tree with one file of tests, which has a copy of the command."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "run.py").write_text((HERE / "run.py").read_text())
    (folder / "test_sick.py").write_text(SICK)
    command = [sys.executable, "tests/run.py", "-q", "-p", "no:timeout", f"--rootdir={tmp_path}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    name = "tests/test_sick.py::test_beside_others"
    *_, counted, last = done.stdout.splitlines()
    assert "0 parts failed" in counted and last == f"passed only alone: {name}"
    (kept,) = (tmp_path / ".retried-tests.txt").read_text().splitlines()
    assert kept.endswith(f"  {name}  {WHY}")


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
