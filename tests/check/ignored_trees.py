"""Random work trees with random .gitignore files, and what git itself makes of them."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

from antifreeze.doctor.check.files.file_discovery import SUFFIXES, walk
from antifreeze.doctor.check.settings import Settings

NAMES = (
    "a",
    "b",
    "ab",
    "abc",
    "a.py",
    "b.py",
    "ab.py",
    "x-1.py",
    "[a].py",
    "é.py",
    "#a.py",
    "!b.py",
)
FOLDERS = ("a", "b", "ab", "foo", "foox", ".hid", "a b", "é")
PIECES = (
    *("*", "**", "***", "?", "a", "b", "ab", "foo", ".py", "/", "/", "[ab]", "[!a]", "[^b]"),
    *("[a-c]", "[]a]", "[", "]", "[[:alpha:]]", "[[:nope:]]", "[a", "[a/b]", "[\\]a]", "[a-", "-"),
    *("\\a", "\\*", "\\", "\\#", "\\!", "!", "#", ".", "**/", "/**", "/**/", "**/a", "é", "\\/"),
)
EVERYDAY = (
    *("*.py", "!a.py", "foo/", "/foo", "/a/", "a/**", "**/b", "foo/*", "!foo/a.py", "*", "!*/"),
    *("!*.py", "a/b", "/*", "!/foo", "**/foo/**", "foo**/a.py", "a/**/b.py", "*.py ", "a.py\\ "),
    *("# a comment", "", " ", "\\#a.py", "\\!b.py", "foo/**/", "a.py\r", "/", "//", "a//b", "!"),
)
_ENVIRONMENT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *words: str) -> bytes:
    command = ["git", "-C", str(folder), *words]
    environment = {**os.environ, **_ENVIRONMENT}
    return subprocess.run(command, check=True, capture_output=True, env=environment).stdout


def pattern(luck: random.Random) -> str:
    if luck.random() < 0.5:
        return luck.choice(EVERYDAY)
    start = "!" if luck.random() < 0.25 else ""
    return start + "".join(luck.choices(PIECES, k=luck.randint(1, 5)))


def ignore_file(luck: random.Random) -> bytes:
    lines = [pattern(luck) for _ in range(luck.randint(1, 5))]
    mark = b"\xef\xbb\xbf" if luck.random() < 0.05 else b""
    end = "\n" if luck.random() < 0.8 else ""
    return mark + ("\n".join(lines) + end).encode()


def plant(root: Path, luck: random.Random) -> None:
    """Fill a repository that has nothing but its .git: files, patterns, some of them tracked."""
    folders = [root]
    for _ in range(luck.randint(1, 7)):
        folder = luck.choice(folders) / luck.choice(FOLDERS)
        if not folder.exists():
            folder.mkdir()
            folders.append(folder)
    for folder in folders:
        for name in luck.sample(NAMES, luck.randint(1, 5)):
            if not (folder / name).exists():
                (folder / name).write_text("x = 1\n")
    files = [
        each for each in sorted(root.rglob("*")) if each.is_file() and ".git" not in each.parts
    ]
    git(root, "read-tree", "--empty")
    if tracked := luck.sample(files, min(len(files), luck.randint(0, 3))):
        git(root, "add", "-f", *(str(each.relative_to(root)) for each in tracked))
    for folder in luck.sample(folders, luck.randint(0, min(3, len(folders)))):
        (folder / ".gitignore").write_bytes(ignore_file(luck))
    exclude = ignore_file(luck) if luck.random() < 0.3 else b""
    (root / ".git" / "info" / "exclude").write_bytes(exclude)


def clear(root: Path) -> None:
    for each in root.iterdir():
        if each.name != ".git":
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def asked_git(folder: Path) -> list[str]:
    listed = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = {os.fsdecode(each) for each in listed.split(b"\0")}
    return sorted(each for each in names if each.endswith(SUFFIXES))


def found_by_us(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in walk([folder], Settings()).files)


def as_text(root: Path) -> str:
    """Return the patterns of a tree, for a test that has failed."""
    places = [*sorted(root.rglob(".gitignore")), root / ".git" / "info" / "exclude"]
    return "\n".join(f"{each.relative_to(root)}: {each.read_bytes()!r}" for each in places)
