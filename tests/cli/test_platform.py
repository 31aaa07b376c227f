"""`antifreeze platform`: what was tested, what is missing, and what that means."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch

import antifreeze
from antifreeze.cli import tested_versions
from antifreeze.cli.tested_versions import Run, find, in_words, read

from ..forked import run_forked

HERE = torch.__version__.partition("+")[0]


def row(torch: str, python: str, **others: Any) -> dict[str, Any]:
    usual = {"antifreeze": "0.1.0", "date": "2026-11-18", "passed": 2538, "failed": 0}
    return {"torch": torch, "python": python, **usual, "skipped": 3, "minutes": 5.1, **others}


RUNS = [
    Run(**row("2.15.0", "3.13.2")),
    Run(**row("2.15.0", "3.11.7")),
    Run(**row("2.15.0", "3.14.0t", failed=2)),
    Run(**row("2.9.1", "3.11.7")),
]


def platform(*arguments: str, before: str = "", path: str = "") -> tuple[int, str]:
    done = run_forked(lambda: _answered(arguments, before, path))
    assert done.stderr == ""
    return done.returncode, done.stdout


def _answered(arguments: tuple[str, ...], before: str, path: str) -> int:
    """Import the package, from `path` if it is given, and run its command."""
    os.environ["COLUMNS"] = "200"
    if path:
        sys.path.insert(0, path)
    exec(before, {})
    from antifreeze.cli import main as anew

    if path:
        assert sys.modules["antifreeze"].__file__ == f"{path}/antifreeze/__init__.py"
    return anew(list(arguments))


def copy_with(tmp_path: Path, rows: str | None) -> str:
    """Copy the package, with another list of what was tested."""
    package = tmp_path / "antifreeze"
    shutil.copytree(Path(antifreeze.__file__).parent, package)
    (package / "cli" / "tested_versions.json").unlink()
    if rows is not None:
        (package / "cli" / "tested_versions.json").write_text(rows)
    return str(tmp_path)


def test_versions_that_were_tested_are_said_to_be_with_the_date(tmp_path: Path) -> None:
    python = ".".join(map(str, sys.version_info[:2])) + ".99"
    rows = json.dumps([row(HERE, python), row("2.6.0", python)])
    path = copy_with(tmp_path, rows)
    code, shown = platform("platform", path=path)
    assert code == 0
    tested = "tested yes, on 2026-11-18 with antifreeze 0.1.0: 2,538 tests passed"
    assert tested in " ".join(shown.split())
    _, told = platform("platform", "--json", path=path)
    assert json.loads(told)["tested"] == row(HERE, python)


@pytest.mark.parametrize("rows", ["[]", "", "{", '[{"torch": "2.6.0"}]', "[7]", "7", None])
def test_without_a_list_that_can_be_read_versions_are_untested(
    tmp_path: Path, rows: str | None
) -> None:
    path = tmp_path / "tested.json"
    if rows is not None:
        path.write_text(rows)
    assert read(path) == []
    assert in_words([], "2.13.0+cpu", "3.11.7") == "untested: no run of the tests is recorded"


def test_the_command_works_without_the_list(tmp_path: Path) -> None:
    path = copy_with(tmp_path, None)
    code, shown = platform("platform", path=path)
    assert code == 0 and "untested: no run of the tests is recorded" in shown
    code, told = platform("platform", "--json", path=path)
    assert code == 0 and json.loads(told)["tested"] is None


@pytest.mark.parametrize("version", ["2.15.0", "2.15.0+cpu", "2.15.0+cu132"])
def test_a_build_of_torch_is_the_version_it_is_a_build_of(version: str) -> None:
    assert find(RUNS, version, "3.11.2") == RUNS[1]
    assert in_words(RUNS, version, "3.11.2").startswith("yes, on 2026-11-18")


def test_other_versions_are_plainly_untested_and_what_was_tested_is_named() -> None:
    assert in_words(RUNS, "2.16.0", "3.11.7") == "untested: the tests ran on torch 2.9.1, 2.15.0"
    assert in_words(RUNS, "2.15.0", "3.12.1") == (
        "untested: torch 2.15.0 was tested on Python 3.11, 3.13, 3.14t"
    )
    assert find(RUNS, "2.15.0a0+git1234", "3.11.7") is None
    assert find(RUNS, "2.15.0", "3.1.7") is None


def test_a_free_threaded_python_is_another_one() -> None:
    assert find(RUNS, "2.15.0", "3.14.1") is None
    assert "2 failed" in in_words(RUNS, "2.15.0", "3.14.1t")
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert tested_versions.this_python().endswith("t") is free


def test_names_that_this_torch_lacks_are_listed_and_the_answer_is_torchs_loader() -> None:
    before = "import torch.utils.data.dataloader as engine\ndel engine._DatasetKind"
    code, told = platform("platform", "--json", before=before)
    facts = json.loads(told)
    assert code == 1 and facts["workers"] == "torch"
    assert facts["missing"] == ["torch.utils.data.dataloader._DatasetKind"]
    code, shown = platform("platform", before=before)
    assert code == 1 and "torch.utils.data.dataloader._DatasetKind" in shown
    assert "DataLoader works as torch's here." in shown


def test_names_that_some_loaders_need_are_listed_apart_and_ours_is_used() -> None:
    before = "import torch.utils.data.dataloader as engine\ndel engine._share_dist_seed"
    code, told = platform("platform", "--json", before=before)
    facts = json.loads(told)
    assert code == 0 and facts["workers"] == "antifreeze" and facts["missing"] == []
    assert facts["missing for DataPipes"] == ["torch.utils.data.dataloader._share_dist_seed"]


def test_a_torch_that_is_too_old_is_named_as_what_is_missing() -> None:
    before = "import torch\ntorch.__version__ = '2.5.1'"
    code, told = platform("platform", "--json", before=before)
    assert code == 1 and json.loads(told)["missing"] == ["torch 2.6 or newer"]


def test_the_list_is_part_of_the_package() -> None:
    assert isinstance(json.loads(tested_versions.FILE.read_text()), list)
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '"cli/tested_versions.json"' in project


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("", "sample"),
        ("Torch", "torch, by ANTIFREEZE_RANDOMNESS"),
        ("tosh", 'an error: ANTIFREEZE_RANDOMNESS is neither "sample" nor "torch"'),
    ],
)
def test_what_the_environment_says_of_random_draws_is_shown(said: str, shown: str) -> None:
    before = f"import os\nos.environ['ANTIFREEZE_RANDOMNESS'] = {said!r}"
    code, out = platform("platform", "--json", before=before)
    assert code == (1 if "error" in shown else 0)
    assert json.loads(out)["randomness"] == shown


ELSEWHERE = "a fork of the program, or of a clean process where another thread runs, a lock is held"
BY_TORCH = "processes that torch's own loader starts by "


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        ({}, ELSEWHERE),
        ({"ANTIFREEZE_RANDOMNESS": "torch"}, "a fork of the program, always"),
        ({"ANTIFREEZE": "off"}, BY_TORCH),
    ],
)
def test_where_workers_come_from_is_said(environment: dict[str, str], shown: str) -> None:
    before = f"import os\nos.environ.update({environment})"
    before += "\nimport multiprocessing as m\nm.get_all_start_methods = lambda: ['fork', 'spawn']"
    _, out = platform("platform", "--json", before=before)
    facts = json.loads(out)
    assert facts["workers come from"].startswith(shown)
    assert BY_TORCH in facts["workers come from"]
    assert facts["start method"].endswith(", the default of multiprocessing")


def test_a_default_that_nobody_asked_for_makes_no_difference_but_to_torchs_workers() -> None:
    """From Python 3.14 on it is forkserver."""
    before = "import multiprocessing as m\nm.get_all_start_methods = lambda: ['forkserver', 'fork']"
    _, out = platform("platform", "--json", before=before)
    facts = json.loads(out)
    assert facts["workers come from"].startswith(ELSEWHERE)
    assert facts["workers come from"].endswith(f"with ANTIFREEZE=off: {BY_TORCH}forkserver")
    assert facts["start method"] == "forkserver, the default of multiprocessing"
    before += "\nimport os\nos.environ['ANTIFREEZE_RANDOMNESS'] = 'torch'"
    _, out = platform("platform", "--json", before=before)
    source = json.loads(out)["workers come from"]
    assert source == "started one by one by multiprocessing (forkserver)"
