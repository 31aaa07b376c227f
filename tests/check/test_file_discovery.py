"""Which files are meant: what is excluded, what is inside other repositories, and none at all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from antifreeze.cli import main
from antifreeze.doctor.check.files.file_discovery import walk
from antifreeze.doctor.check.settings import Settings, matches

ROOT = Path(__file__).parents[2]
_NOBODY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_GLOBAL": os.devnull,
}


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, env={**os.environ, **_NOBODY})


def repository(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    for name in names:
        (folder / name).write_text("x = 1\n")
    return folder


def test_repositories_inside_a_repository_are_walked(tmp_path: Path) -> None:
    other = repository(tmp_path / "other", "there.py")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "first")
    whole = repository(tmp_path / "whole", "a.py")
    git(whole, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "sub")
    (whole / "sub" / "new.py").write_text("")
    git(whole, "commit", "-q", "-m", "with a submodule")
    git(whole, "worktree", "add", "-q", str(whole / "copy"))
    cloned = repository(whole / "data" / "cloned", "b.py")
    git(cloned, "add", ".")
    git(cloned, "commit", "-q", "-m", "first")
    repository(whole / "ignored", "c.py")
    (whole / ".gitignore").write_text("ignored/\n")
    found = [str(each.relative_to(whole)) for each in walk([whole], Settings()).files]
    assert found == ["a.py", "data/cloned/b.py", "sub/new.py", "sub/there.py"]
    git(whole, "submodule", "--quiet", "deinit", "-f", "sub")
    found = [str(each.relative_to(whole)) for each in walk([whole], Settings()).files]
    assert found == ["a.py", "data/cloned/b.py"]


def test_a_file_that_is_named_is_excluded_if_that_is_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.antifreeze.check]\nexclude = ["made"]\n')
    (tmp_path / "made").mkdir()
    path = tmp_path / "made" / "a.py"
    path.write_text("def f(:\n")
    assert main(["check", str(path)]) == 1
    assert main(["check", str(path), "--force-exclude"]) == 0
    assert "in 0 files" in capsys.readouterr().out
    assert "--force-exclude" in (ROOT / ".pre-commit-hooks.yaml").read_text()


def test_a_folder_without_python_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.py").write_text("x = 1\n")
    assert main(["check", str(tmp_path / "empty"), str(tmp_path / "full")]) == 0
    err = capsys.readouterr().err
    assert err.startswith(f"antifreeze check: no Python files in {tmp_path / 'empty'} ")
    assert "full" not in err


@pytest.mark.parametrize(
    ("path", "pattern", "fits"),
    [
        ("a/b.py", "a/**/b.py", True),
        ("a/c/d/b.py", "a/**/b.py", True),
        ("ab.py", "a/**/b.py", False),
        ("a/xb.py", "a/**/b.py", False),
        ("b.py", "**/b.py", True),
        ("c/b.py", "**/b.py", True),
        ("tests/c/b.py", "tests/**", True),
        ("old/tests/b.py", "tests", True),
        ("a/b.ipynb", "*.ipynb", True),
        ("a/b.py", "./a/", True),
    ],
)
def test_patterns_mean_what_they_say(path: str, pattern: str, fits: bool, tmp_path: Path) -> None:
    assert matches(tmp_path / path, [pattern], tmp_path) == fits
