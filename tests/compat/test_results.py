"""What is said about versions is what ran; and what `make compat` runs is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from antifreeze.cli.tested_versions import Run
from tests.compat import environments, results, selection
from tests.compat.environments import CannotBeMade
from tests.run import in_parts

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def row(torch: str, python: str, failed: int = 0) -> Run:
    return Run(torch, python, "0.1.0", "2026-11-18", 1234, failed, 3, 5.1)


def test_the_page_is_the_one_that_the_rows_give() -> None:
    assert results.PAGE.read_text() == results.page(results.read()), "run `make docs`"


def test_there_is_one_row_for_each_torch_and_minor_version_of_python() -> None:
    rows = results.read()
    assert len({results.key(each) for each in rows}) == len(rows)
    assert rows == sorted(rows, key=results.order)


def test_the_metadata_names_the_versions_of_python_that_passed() -> None:
    passed = {results.minor(each.python) for each in results.read() if not each.failed}
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert set(named) <= passed and named == sorted(named, key=lambda each: int(each[2:]))


def test_the_readme_names_the_range_of_versions_that_passed() -> None:
    passed = sorted((each for each in results.read() if not each.failed), key=results.order)
    torches = [each.torch.rpartition(".")[0] for each in reversed(passed)]
    minors = {results.minor(each.python).removesuffix("t") for each in passed}
    pythons = sorted(minors, key=lambda each: int(each[2:]))
    said = f"Python {pythons[0]} to {pythons[-1]}, torch {torches[0]} to {torches[-1]}"
    assert said in (ROOT / "README.md").read_text()


def test_a_newer_run_replaces_the_row_of_its_versions_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "DATA", tmp_path / "rows.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "page.md")
    for each in (
        *(row("2.6.0", "3.11.7"), row("2.15.0", "3.11.7", failed=2), row("2.15.0", "3.14.1t")),
        *(row("2.15.0", "3.14.1"), row("2.15.0", "3.11.9")),
    ):
        results.record(each)
    kept = json.loads(results.DATA.read_text())
    assert [(each["torch"], each["python"]) for each in kept] == [
        *(("2.15.0", "3.14.1t"), ("2.15.0", "3.14.1")),
        *(("2.15.0", "3.11.9"), ("2.6.0", "3.11.7")),
    ]
    assert "| 2.15.0 | 3.11.9 | 1,234 | 0 | 3 | 2026-11-18 | 0.1.0 |" in results.PAGE.read_text()


def test_every_choice_of_tests_finds_some_and_all_of_them_run_once() -> None:
    for choice in selection.CHOSEN:
        for pattern in choice.patterns:
            assert [*selection.TESTS.glob(pattern)], pattern
    for name in selection.LEFT_OUT:
        assert (selection.TESTS / name).exists(), name
    shared = [path for part in in_parts(selection.files()) for path in part]
    assert sorted(shared) == selection.files()
    assert len(shared) == len(set(shared)) > len(selection.CHOSEN)


def test_packages_that_torch_pins_itself_are_not_taken_from_the_lock() -> None:
    pins = environments.locked_for_tests()
    assert {"numpy", "pytest", "pytest-timeout", "hypothesis", "cloudpickle"} <= set(pins)
    assert not {"torch", "sympy", "networkx", "setuptools", "ruff"} & set(pins)
    assert all(pin.startswith(f"{name}==") and "--hash=" in pin for name, pin in pins.items())


def test_an_interpreter_is_found_by_name_or_path_and_one_that_is_missing_is_named() -> None:
    assert environments.find_interpreter(sys.executable) == sys.executable
    assert environments.version_of(sys.executable) == "{}.{}.{}".format(*sys.version_info)
    with pytest.raises(CannotBeMade, match=r"no python9\.9 here"):
        environments.find_interpreter("python9.9")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tests/compat/run.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_versions_that_cannot_be_installed_are_told_and_leave_the_table_alone(
    tmp_path: Path,
) -> None:
    before = results.DATA.read_text()
    done = run("--folder", str(tmp_path), "2.7.1@python9.9", "2.6.0@python9.8")
    assert done.returncode == 1, done.stderr
    assert "there is no python9.9 here" in done.stdout
    assert re.search(r"^2\.6\.0 +python9\.8 +not installed$", done.stdout, re.MULTILINE)
    assert results.DATA.read_text() == before


@pytest.mark.parametrize("wrong", [[], ["2.7.1"], ["@python3.13"], ["2.7.1@"]])
def test_versions_that_are_not_named_are_asked_for(wrong: list[str]) -> None:
    done = run(*wrong)
    assert done.returncode == 2
    assert "2.7.1@python3.13" in done.stderr or "make compat TORCH=2.7.1" in done.stderr
