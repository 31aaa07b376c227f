"""`antifreeze check` on a repository whose settings name programs: none is run, nothing hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from antifreeze.doctor.check.files.file_discovery import walk
from antifreeze.doctor.check.settings import Settings

from ..check.ignored_trees import git
from ..patience import PATIENCE_S


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    (folder / "train.py").write_text("x = 1\n")
    git(folder, "add", "train.py")
    return folder


def program(folder: Path) -> Path:
    """Write a program that leaves a mark when it is run."""
    path = folder / "owned.sh"
    path.write_text(f"#!/bin/sh\ntouch '{folder / 'ran'}'\n")
    path.chmod(0o755)
    return path


def in_the_repository(top: Path, script: Path) -> Path:
    here = repository(top / "clone")
    git(here, "config", "core.fsmonitor", str(script))
    return here


def in_a_nested_repository(top: Path, script: Path) -> Path:
    here = repository(top / "clone")
    inner = repository(here / "third" / "party")
    git(inner, "config", "core.fsmonitor", str(script))
    return here


def in_an_embedded_bare_repository(top: Path, script: Path) -> Path:
    """Files of a plain clone that git takes for a bare repository with a work tree."""
    here = repository(top / "clone")
    inner = here / "docs"
    for each in ("objects", "refs", "work"):
        (inner / each).mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    (inner / "config").write_text(
        "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = work\n"
        f'fsmonitor = "{script}"\n'
    )
    (inner / "work" / "a.py").write_text("x = 1\n")
    return inner


def by_hooks_and_filters(top: Path, script: Path) -> Path:
    here = repository(top / "clone")
    hooks = top / "clone" / "hooks"
    hooks.mkdir()
    for name in (
        "post-index-change",
        "fsmonitor-watchman",
        "post-checkout",
        "reference-transaction",
    ):
        (hooks / name).write_bytes(script.read_bytes())
        (hooks / name).chmod(0o755)
    for key, value in (
        ("core.hooksPath", str(hooks)),
        ("core.fsmonitor", str(hooks / "fsmonitor-watchman")),
        ("filter.own.clean", str(script)),
        ("filter.own.smudge", str(script)),
        ("filter.own.process", str(script)),
        ("diff.external", str(script)),
        ("core.pager", str(script)),
        ("core.sshCommand", str(script)),
        ("core.alternateRefsCommand", str(script)),
    ):
        git(here, "config", key, value)
    (here / ".gitattributes").write_text("* filter=own\n")
    (here / "train.py").write_text("x = 2\n")
    return here


def by_a_partial_clone(top: Path, script: Path) -> Path:
    here = repository(top / "clone")
    for key, value in (
        ("remote.origin.url", f"ext::{script}"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.partialclonefilter", "blob:none"),
        ("protocol.ext.allow", "always"),
        ("extensions.partialClone", "origin"),
        ("core.fsmonitor", str(script)),
    ):
        git(here, "config", key, value)
    for each in (here / ".git" / "objects").rglob("*"):
        if each.is_file():
            each.unlink()
    return here


ATTACKS = (
    in_the_repository,
    in_a_nested_repository,
    in_an_embedded_bare_repository,
    by_hooks_and_filters,
    by_a_partial_clone,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.__name__)
def test_no_program_that_a_repository_names_is_run(
    attack: Callable[[Path, Path], Path], tmp_path: Path
) -> None:
    here = attack(tmp_path, program(tmp_path))
    (tmp_path / "ran").unlink(missing_ok=True)  # git itself ran it while the trap was laid
    assert walk([here], Settings()).files
    assert not (tmp_path / "ran").exists()


def config_of_a_pipe(here: Path) -> None:
    os.mkfifo(here / "pipe")
    git(here, "config", "include.path", str(here / "pipe"))


def work_tree_elsewhere(here: Path) -> None:
    git(here, "config", "core.worktree", "/")


def pipe_for_git(here: Path) -> None:
    (here / ".git").rename(here / "was")
    os.mkfifo(here / ".git")


def pointer_to_a_pipe(here: Path) -> None:
    (here / ".git").rename(here / "was")
    os.mkfifo(here / "pipe")
    (here / ".git").write_text(f"gitdir: {here / 'pipe'}\n")


def pointer_to_pipes(here: Path) -> None:
    """A repository in which all that is read is a pipe."""
    (here / ".git").rename(here / "was")
    (here / ".git").write_text("gitdir: fake\n")
    for each in ("objects", "refs", "info"):
        (here / "fake" / each).mkdir(parents=True)
    for each in ("HEAD", "index", "commondir", "config", "info/exclude"):
        os.mkfifo(here / "fake" / each)


def pipe_for_an_index(here: Path) -> None:
    (here / ".git" / "index").unlink()
    os.mkfifo(here / ".git" / "index")


def pipe_for_patterns(here: Path) -> None:
    os.mkfifo(here / ".gitignore")


def link_for_patterns(here: Path) -> None:
    (here / ".gitignore").symlink_to("/dev/zero")
    (here / ".git" / "info" / "exclude").unlink()
    (here / ".git" / "info" / "exclude").symlink_to("/dev/zero")


TRAPS = (
    config_of_a_pipe,
    work_tree_elsewhere,
    pipe_for_git,
    pointer_to_a_pipe,
    pointer_to_pipes,
    pipe_for_an_index,
    pipe_for_patterns,
    link_for_patterns,
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("trap", TRAPS, ids=lambda each: each.__name__)
def test_no_pipe_or_device_in_a_repository_is_waited_for(
    trap: Callable[[Path], None], tmp_path: Path
) -> None:
    here = repository(tmp_path / "clone")
    trap(here)
    assert [each.name for each in walk([here], Settings()).files] == ["train.py"]


WATCHED = """
import sys

STARTS = ("subprocess.", "os.exec", "os.posix_spawn", "os.fork", "os.system", "os.spawn", "pty.")
seen = []

def hook(event, given):
    if event.startswith(STARTS):
        seen.append(event)
    if event == "import" and given[0].partition(".")[0] in {"evil", "conftest", "setup", "train"}:
        seen.append(f"import {given[0]}")
    if event == "exec" and given[0].co_filename.startswith(sys.argv[1]):
        seen.append(f"exec {given[0].co_filename}")

sys.addaudithook(hook)
from antifreeze.cli import main

code = main(["check", sys.argv[1], "--jobs", "1", *sys.argv[2:]])
print(seen, file=sys.stderr)
raise SystemExit(9 if seen else code)
"""


@pytest.mark.parametrize("words", [[], ["--fix"], ["--format", "sarif"]], ids=str)
def test_no_process_is_started_and_nothing_of_the_tree_is_imported(
    words: list[str], tmp_path: Path
) -> None:
    here = in_a_nested_repository(tmp_path, program(tmp_path))
    (tmp_path / "ran").unlink(missing_ok=True)
    for name in ("evil.py", "conftest.py", "setup.py", "sitecustomize.py"):
        (here / name).write_text(
            f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom torch.utils.data import DataLoader\n"
            "import evil\nDataLoader('x', timeout=3)\n"
        )
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(here), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr.endswith("[]\n") and not (tmp_path / "ran").exists()
