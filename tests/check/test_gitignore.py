"""What git ignores and tracks, as we read it, beside what git itself says."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from antifreeze.doctor.check.files import gitignore
from antifreeze.doctor.check.files.file_discovery import walk
from antifreeze.doctor.check.files.git_index import read_index
from antifreeze.doctor.check.files.gitignore import IgnoreFile, Steps
from antifreeze.doctor.check.files.globs import Text, git_glob, settings_glob
from antifreeze.doctor.check.settings import Settings, matches

from ..repetition import some_of
from .ignored_trees import as_text, asked_git, clear, found_by_us, git, plant

TREES = 100  # in one test
SOON_S = 10.0  # a shared machine at its worst; each takes less than two seconds by itself


@pytest.fixture(autouse=True)
def nothing_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


@pytest.mark.parametrize("first", some_of(range(0, 3 * TREES, TREES), 1))
def test_random_trees_are_read_as_git_reads_them(here: Path, first: int) -> None:
    shown = 0
    for seed in range(first, first + TREES):
        clear(here)
        plant(here, random.Random(seed))
        expected = asked_git(here)
        shown += len(expected)
        assert found_by_us(here) == expected, f"tree {seed}\n{as_text(here)}"
        for folder in here.iterdir():
            if folder.is_dir() and folder.name != ".git":
                expected = asked_git(folder)
                if expected:  # else it may be an ignored folder: those that are named are meant
                    assert found_by_us(folder) == expected, f"tree {seed}\n{as_text(here)}"
    assert shown > TREES


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("objects", ["sha1", "sha256"])
def test_every_version_of_the_index_is_read(version: int, objects: str, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", f"--object-format={objects}")
    names = ["a.py", "made/deep/b.py", "made/deep/bc.py", "made/é.py", "later.py"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / ".gitignore").write_text("made/\nlater.py\n")
    git(tmp_path, "add", "-f", *names[:-1])
    git(tmp_path, "add", "-f", "-N", "later.py")  # a flag that version 2 does not have
    git(tmp_path, "update-index", "--index-version", str(version))
    assert found_by_us(tmp_path) == sorted(names) == asked_git(tmp_path)


def test_a_hostile_index_names_no_file_elsewhere_and_raises_nothing(here: Path) -> None:
    def entry(name: bytes) -> bytes:
        bare = bytes(24) + (0o100644).to_bytes(4, "big") + bytes(12 + 20)
        bare += min(len(name), 0xFFF).to_bytes(2, "big") + name
        return bare + bytes(8 - len(bare) % 8)

    def index(count: int, *entries: bytes, version: int = 2) -> bytes:
        start = b"DIRC" + version.to_bytes(4, "big") + count.to_bytes(4, "big")
        return start + b"".join(entries) + bytes(20)

    (here.parent / "secret.py").write_text("")
    (here / "a.py").write_text("")
    (here / ".git" / "b.py").write_text("")
    (here / ".gitignore").write_text("*\n")
    names = [b"a.py", b"../secret.py", b"/etc/x.py", b".git/b.py", b"", b"./a.py", b"x//a.py"]
    names += [str(here.parent / "secret.py").encode(), b"a.py/b.py", b"x\n/../../secret.py"]
    path = here / ".git" / "index"
    path.write_bytes(index(len(names), *map(entry, names)))
    assert read_index(str(here / ".git")).files == {"a.py", "a.py/b.py"}
    assert found_by_us(here) == ["a.py"]
    whole = index(2, entry(b"a.py"), entry(b"b.py"))
    luck = random.Random(1)
    for data in (
        b"",
        b"DIRC",
        index(0xFFFFFFFF, entry(b"a.py")),
        index(2, entry(b"a.py"), version=4),
        index(1, b"\xff" * 300, version=4),
        index(1, entry(b"a.py"), version=99),
        *(whole[:cut] for cut in range(0, len(whole), 7)),
        *(bytes(luck.choices(range(256), k=200)) for _ in range(50)),
        *(whole[:n] + bytes([luck.randrange(256)]) + whole[n + 1 :] for n in range(len(whole))),
    ):
        path.write_bytes(data)
        found = read_index(str(here / ".git"))
        assert all(".." not in each and not each.startswith("/") for each in found.files)


def test_the_users_own_file_counts_and_the_settings_of_a_repository_do_not(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.py", "mine.py", "theirs.py", "other.py"):
        (here / name).write_text("")
    config = tmp_path / "home" / "git"
    config.mkdir(parents=True)
    (config / "ignore").write_text("mine.py\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "theirs").write_text("theirs.py\n")
    git(here, "config", "core.excludesFile", str(tmp_path / "theirs"))
    assert found_by_us(here) == ["a.py", "other.py", "theirs.py"]
    (tmp_path / "gitconfig").write_text("[user]\nname=a\n[core]\n\texcludesFile = ~/mine\n")
    (tmp_path / "mine").write_text("other.py\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert found_by_us(here) == ["a.py", "mine.py", "theirs.py"]


def test_a_tracked_file_in_an_ignored_folder_that_is_named_is_all_there_is(here: Path) -> None:
    (here / "made").mkdir()
    for name in ("a.py", "b.py"):
        (here / "made" / name).write_text("")
    (here / ".gitignore").write_text("made/\n")
    assert found_by_us(here / "made") == ["a.py", "b.py"], "nothing is tracked: all are meant"
    git(here, "add", "-f", "made/a.py")
    assert found_by_us(here / "made") == ["a.py"] == asked_git(here / "made")


SLOW = "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b"


def test_no_pattern_takes_more_steps_than_it_has_parts(tmp_path: Path) -> None:
    before = time.monotonic()
    name = "a" * 250
    for pattern in (SLOW, f"**/{SLOW}", "**/" * 40 + "x", "[!b]" * 100 + "*" + SLOW):
        assert not matches(tmp_path / name / name / f"{name}.py", [pattern], tmp_path)
        assert not git_glob(pattern).matches(Text(f"{name}/{name}/{name}.py"))
    assert time.monotonic() - before < SOON_S


def test_too_many_patterns_of_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 20,000 characters"):
        Settings(exclude=("a" * 10,) * 2_000)
    with pytest.raises(ValueError, match="more than 20,000 characters"):
        Settings(exclude=("",) * 30_000)


@pytest.mark.parametrize("line", ["a{}b*c", "x{}", "*{}*", "/deep/{}/*.py"])
def test_very_many_patterns_are_no_hang(line: str, here: Path) -> None:
    (here / ".gitignore").write_text("".join(f"{line.format(n)}\n" for n in range(100_000)))
    for number in range(300):
        (here / f"file{number}.py").write_text("")
    before = time.monotonic()
    walk([here], Settings())
    assert time.monotonic() - before < 5 * SOON_S


def test_what_is_spent_ignores_nothing_and_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / ".gitignore").write_text("a?py\n")
    for name in ("a.py", "b.py", "c.py"):
        (here / name).write_text("")
    monkeypatch.setattr(Steps.__init__, "__defaults__", (1,))
    done = walk([here], Settings())
    assert not done.is_whole and {"b.py", "c.py"} <= {each.name for each in done.files}


def test_a_file_of_patterns_is_read_so_far_and_no_further(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / ".gitignore").write_bytes(b"\xff\xfe\x00\n" * 10 + b"a.py\n" + b"b.py\n")
    for name in ("a.py", "b.py"):
        (here / name).write_text("")
    assert found_by_us(here) == []
    monkeypatch.setattr(gitignore, "MOST_IGNORE_FILE_LINES", 11)
    assert found_by_us(here) == ["b.py"]
    monkeypatch.setattr(gitignore, "MOST_IGNORE_FILE_BYTES", 20)
    assert found_by_us(here) == ["a.py", "b.py"]


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*.py", "a/b.py", True),
        ("a?b", "a/b", True),
        ("[!a]b", "cb", True),
        ("[a-c]", "b", True),
        ("[]]", "]", True),
        ("[!]]", "]", False),
        ("[c-a]", "b", False),
        ("a[b", "a[b", True),
        ("a\\*", "a\\b", True),
        ("a**/b", "a/x/b", True),
        ("a**/b", "ab", True),
    ],
)
def test_patterns_of_settings_are_those_of_fnmatch(pattern: str, name: str, fits: bool) -> None:
    assert settings_glob(pattern).matches(Text(name)) == fits


def test_random_patterns_of_settings_are_those_of_fnmatch() -> None:
    import fnmatch

    luck = random.Random(3)
    for _ in range(3000):
        pattern = "".join(luck.choices("ab*?[]!-^\\/.", k=luck.randint(1, 8)))
        if "**/" in pattern:
            continue
        name = "".join(luck.choices("ab-^!]\\/.", k=luck.randint(1, 6)))
        expected = fnmatch.fnmatchcase(name, pattern)
        assert settings_glob(pattern).matches(Text(name)) == expected, (pattern, name)


def test_a_submodule_and_a_second_work_tree_that_are_named_have_their_own_rules(
    tmp_path: Path,
) -> None:
    def as_somebody(folder: Path, *words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
        git(folder, *who, *words)

    for name in ("other", "whole"):
        (tmp_path / name).mkdir()
        git(tmp_path / name, "init", "-q")
        (tmp_path / name / "a.py").write_text("")
        (tmp_path / name / ".gitignore").write_text("made.py\nkept.py\n")
        (tmp_path / name / "kept.py").write_text("")
        git(tmp_path / name, "add", "-f", ".")
        as_somebody(tmp_path / name, "commit", "-q", "-m", "first")
    whole = tmp_path / "whole"
    as_somebody(whole, "submodule", "--quiet", "add", str(tmp_path / "other"), "sub")
    as_somebody(whole, "worktree", "add", "-q", str(tmp_path / "second"))
    for folder in (whole / "sub", tmp_path / "second"):
        (folder / "made.py").write_text("")
        assert found_by_us(folder) == ["a.py", "kept.py"] == asked_git(folder)
    (whole / ".git" / "info" / "exclude").write_text("a.py\n")
    (tmp_path / "second" / "a.py").rename(tmp_path / "second" / "b.py")
    git(tmp_path / "second", "rm", "-q", "--cached", "a.py")
    (tmp_path / "second" / "a.py").write_text("")
    assert found_by_us(tmp_path / "second") == ["b.py", "kept.py"] == asked_git(tmp_path / "second")


def test_names_of_any_bytes_are_found(here: Path) -> None:
    name = os.fsdecode(b"\xff\xe9.py")
    (here / name).write_text("")
    (here / ".gitignore").write_bytes(b"\xff?.p[x]\n")
    assert found_by_us(here) == [name] == asked_git(here)
    (here / ".gitignore").write_bytes(b"\xff?.p[xy]\n")
    assert found_by_us(here) == [] == asked_git(here)


def test_patterns_that_are_plain_names_are_looked_up() -> None:
    file = IgnoreFile(b"a\n*.b\n/c/d\n")
    steps = Steps()
    assert file.ignores(Text("x/a"), Text("a"), is_folder=False, steps=steps)
    assert file.ignores(Text("x.b"), Text("x.b"), is_folder=False, steps=steps)
    assert file.ignores(Text("c/d"), Text("d"), is_folder=True, steps=steps)
    assert file.ignores(Text("x/c/d"), Text("d"), is_folder=True, steps=steps) is None


def test_a_folder_that_nobody_may_read_ends_nothing(here: Path) -> None:
    deep = here
    for _ in range(30):
        deep = deep / "d"
        deep.mkdir()
    (deep / "a.py").write_text("")
    subprocess.run(["chmod", "000", str(here / "d" / "d")], check=True)
    try:
        found = walk([here], Settings()).files
    finally:
        subprocess.run(["chmod", "755", str(here / "d" / "d")], check=True)
    assert len(found) == (1 if os.geteuid() == 0 else 0)
