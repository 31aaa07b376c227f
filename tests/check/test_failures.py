"""What goes wrong with one file, one process or one setting is told, and ends nothing else."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antifreeze.cli import main
from antifreeze.doctor.check import checker, process_pool, settings
from antifreeze.doctor.check.checker import check, check_text
from antifreeze.doctor.check.files import source_reader
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.rules import all_rules, find_rule
from antifreeze.doctor.rules.rule import Hit

from ..patience import PATIENCE_S

RULE = find_rule("AF601")
assert RULE is not None
BAD = RULE.page.bad.strip() + "\n"
FORKS = multiprocessing.get_start_method() == "fork"  # else a patched parent is no patched child


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["check", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def fail_at(monkeypatch: pytest.MonkeyPatch, step: str, name: str) -> None:
    """Let a step fail at the file of a name, as a bug of ours would."""
    real = getattr(checker, step)

    def failing(first: Any, *rest: Any, **named: Any) -> Any:
        if getattr(first, "path", first).name == name:
            raise RecursionError("too deep")
        return real(first, *rest, **named)

    monkeypatch.setattr(checker, step, failing)


@pytest.mark.parametrize("step", ["read_source", "first_pass", "may_have_findings", "second_pass"])
def test_a_bug_at_one_file_is_told_and_the_others_are_checked(
    step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text(BAD)
    fail_at(monkeypatch, step, "b.py")
    code, out, _ = run(capsys, str(tmp_path))
    assert code == 2 and "a.py:5:15: AF601" in out and "c.py:5:15: AF601" in out
    assert "b.py: RecursionError: too deep" in out and "1 file not looked at" in out
    code, out, _ = run(capsys, str(tmp_path), "--format", "json")
    assert code == 2 and json.loads(out)["not_looked_at"] == 1
    for how in ("sarif", "github"):
        assert "b.py: RecursionError" in run(capsys, str(tmp_path), "--format", how)[1]


def test_a_bug_that_is_of_no_file_is_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*given: Any) -> Any:
        raise KeyError("of ours")

    monkeypatch.setattr(checker, "Project", failing)
    code, _, err = run(capsys, str(tmp_path))
    assert code == 2 and "KeyError: 'of ours'" in err and "please report it" in err


def test_a_notebook_that_is_too_deep_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deep.ipynb").write_text("[" * 100_000)
    code, out, err = run(capsys, str(tmp_path))
    assert code == 1 and "AF001" in out and not err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("tool = 3", 0),
        ("project = 3", 0),
        ("[tool]\nantifreeze = 3", 2),
        ("[tool.antifreeze]\ncheck = 3", 2),
        ("[project]\nrequires-python = 3", 0),
        ("[tool.antifreeze.check]\nper-path = 3", 2),
    ],
)
def test_settings_of_a_wrong_type_are_wrong_settings(
    text: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"{text}\n")
    (tmp_path / "a.py").write_text("x = 1\n")
    got, _, err = run(capsys, str(tmp_path))
    assert got == code and ("pyproject.toml: " in err) == (code == 2)


def test_what_has_no_end_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    for path in ("/dev/zero", str(tmp_path / "pipe.py")):
        code, out, _ = run(capsys, path)
        assert code == 2 and "is not a regular file" in out
        (failure,) = check([Path(path)], Settings()).failures
        assert "not a regular file" in failure.words


@pytest.mark.parametrize("how", ["text", "json", "sarif", "github"])
def test_a_path_that_is_not_there_does_not_hide_what_is_found_in_others(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("def f(:\n")
    for first in (True, False):
        paths = [str(tmp_path / "none.py"), str(tmp_path / "a.py")]
        code, out, _ = run(capsys, *(paths if first else reversed(paths)), "--format", how)
        assert code == 2 and "AF001" in out
        assert "none.py" in out and "it is not there" in out


def test_a_path_that_is_not_there_alone_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, str(tmp_path / "none.py"))
    assert code == 2 and "Nothing found in 0 files; 1 file not looked at." in out


def test_what_is_too_large_is_not_looked_at_and_no_crash_of_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_reader, "MOST_SOURCE_BYTES", 100)
    monkeypatch.setattr(source_reader, "MOST_NOTEBOOK_BYTES", 200)
    (tmp_path / "large.py").write_text("x = 1\n" * 100)
    (tmp_path / "large.ipynb").write_text(" " * 300)
    cells = [{"cell_type": "code", "source": "y = 2\n" * 20}]
    (tmp_path / "code.ipynb").write_text(json.dumps({"cells": cells}))
    code, out, _ = run(capsys, str(tmp_path))
    assert code == 2 and out.count("not looked at: ") == 3 and "AF001" not in out
    assert out.endswith("Nothing found in 3 files; 3 files not looked at.\n")


def test_syntax_of_a_newer_python_that_the_project_needs_is_not_wrong(tmp_path: Path) -> None:
    newer = (sys.version_info[0], sys.version_info[1] + 1)
    result = check_text("x = = 1\n", Settings(python=newer))
    (failure,) = result.failures
    assert not result.found and not failure.ours
    assert "needs {}.{}".format(*newer) in failure.words and result.not_looked_at == 1
    assert [each.code for each in check_text("x = = 1\n", Settings(python=(3, 8))).found]
    bodyless = check_text("for x in y:\n    # later\n", Settings(python=newer))
    assert [each.code for each in bodyless.found] == ["AF001"], "wrong in every Python"


@pytest.mark.parametrize("given", [Settings(select=("AF7",)), Settings(ignore=("AF001",))])
def test_what_cannot_be_read_is_not_hidden_by_what_is_selected(given: Settings) -> None:
    result = check_text("def f(:\n", given)
    assert result.not_looked_at == 1
    assert len(result.found) == (not given.ignore), "only who ignores it does not see it"


def test_a_file_that_is_not_read_is_counted_though_it_is_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("def f(:\n")
    code, out, _ = run(capsys, str(tmp_path), "--ignore", "AF001")
    assert code == 0 and "1 file not looked at" in out
    code, out, _ = run(capsys, str(tmp_path), "--select", "AF7")
    assert code == 1 and "AF001" in out


# ---- rules that fail -----------------------------------------------------------------------------


@pytest.fixture
def failing_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(view: object) -> Iterator[Hit]:
        raise ValueError("of ours")

    rules = [
        dataclasses.replace(each, find=find) if each.code == "AF501" else each
        for each in all_rules()
    ]
    monkeypatch.setattr(settings, "all_rules", lambda: tuple(rules))


@pytest.mark.usefixtures("failing_rule")
def test_a_rule_that_fails_is_told_in_every_way_and_is_never_all_fine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.py"
    path.write_text("from torch.utils.data import DataLoader\nx = DataLoader([1])\n")
    for words in ([], ["--fix"], ["--format", "json"], ["--format", "sarif"]):
        code, out, _ = run(capsys, str(path), *words)
        assert code == 2 and "AF501" in out
    code, out, _ = run(capsys, str(path))
    assert out.endswith("; 1 rule of ours failed.\n")
    code, out, _ = run(capsys, str(path), "--format", "github")
    assert code == 2 and out.startswith("::error file=") and "ValueError: of ours" in out
    code, out, err = run(capsys, str(path), "--diff")
    assert code == 2 and not out and "AF501" in err


def test_a_diff_is_something_only_if_there_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.py"
    path.write_text(BAD)
    assert run(capsys, str(path))[0] == 1
    assert run(capsys, str(path), "--diff")[:2] == (0, "")


# ---- processes that die --------------------------------------------------------------------------


def many(folder: Path) -> list[Path]:
    files = [folder / f"m{number:03}.py" for number in range(100)]
    for each in files:
        each.write_text(BAD)
    return files


@pytest.mark.skipif(not FORKS, reason="children do not have what is patched")
@pytest.mark.parametrize("step", ["first", "second"])
def test_a_file_that_kills_processes_is_lost_and_the_rest_is_checked(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(checker._Work, step)

    def deadly(self: Any, path: Path, **named: Any) -> Any:
        if path.name == "m040.py":
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, path, **named)

    monkeypatch.setattr(checker._Work, step, deadly)
    files = many(tmp_path)
    result = check(files, Settings(jobs=2))
    assert {each.path for each in result.found} == set(files) - {files[40]}
    (failure,) = result.failures
    assert failure.path == files[40] and "died" in failure.words and result.not_looked_at == 1


@pytest.mark.skipif(not FORKS, reason="children do not have what is patched")
def test_a_process_that_was_killed_once_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checker._Work.first
    killed = tmp_path / "killed"

    def deadly_once(self: Any, path: Path, **named: Any) -> Any:
        if path.name == "m040.py" and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, path, **named)

    monkeypatch.setattr(checker._Work, "first", deadly_once)
    files = many(tmp_path)
    result = check(files, Settings(jobs=2))
    assert not result.failures and len(result.found) == len(files)


@pytest.mark.skipif(not FORKS, reason="children do not have what is patched")
def test_the_machine_is_given_up_after_some_deaths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deadly(self: Any, path: Path, **named: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(checker._Work, "first", deadly)
    monkeypatch.setattr(process_pool, "MOST_DEATHS", 2)
    assert len(check(many(tmp_path), Settings(jobs=2)).failures) == 100


def test_there_are_not_more_processes_than_messages() -> None:
    assert process_pool.processes_for(41, 64) == 3
    assert process_pool.processes_for(10_000, 2) == 2
    assert process_pool.processes_for(1_000_000, 500) == process_pool.MOST_PROCESSES


INTERRUPTED = """
import os, sys, threading
from antifreeze.cli import main
from antifreeze.doctor.check import checker

def stuck(self, path, **named):
    os.write(1, b"stuck\\n")
    threading.Event().wait()

checker._Work.first = stuck
raise SystemExit(main(["check", sys.argv[1], "--jobs", "2"]))
"""


@pytest.mark.skipif(not FORKS, reason="children do not have what is patched")
def test_an_interrupt_ends_at_once_and_quietly(tmp_path: Path) -> None:
    many(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(2)] == [b"stuck\n"] * 2
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        _, err = child.communicate(timeout=PATIENCE_S)  # until no process has its pipes any more
        assert child.returncode == 130 and err == b""
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)


def test_a_reader_that_goes_is_no_error(tmp_path: Path) -> None:
    many(tmp_path)
    for how in ("text", "json"):
        words = f"{sys.executable} -m antifreeze check {tmp_path} --format {how} --jobs 1 | head -1"
        done = subprocess.run(
            ["sh", "-c", words], capture_output=True, check=False, timeout=PATIENCE_S
        )
        assert done.stdout and not done.stderr


def test_a_disk_that_is_full_is_no_bug_and_no_finding(tmp_path: Path) -> None:
    many(tmp_path)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "antifreeze", "check", str(tmp_path / "m000.py")],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 2 and b"Traceback" not in done.stderr
