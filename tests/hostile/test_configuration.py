"""Settings come from the project and from people who may decide, and no file of theirs hangs us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from antifreeze.doctor.check.pyproject_settings import read_settings
from antifreeze.doctor.check.settings import Settings, matches

from ..cli.running import NO_LOADER, OURS, start, write
from ..patience import PATIENCE_S

STRANGER = 65534  # nobody
CHECK = [sys.executable, "-m", "antifreeze", "check"]
TABLE = '[tool.antifreeze]\non-error = "skip"\n[tool.antifreeze.check]\nexclude = ["train.py"]\n'
BROKEN = "def f(:\n"  # AF001, unless it is excluded
QUICK_S = 20.0  # several times what the worst file may take

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def settings_file(folder: Path, owner: int = 0, text: str = TABLE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pyproject.toml"
    path.write_text(text)
    os.chown(path, owner, owner)
    return path


def shared_folder(parent: Path) -> Path:
    """Make a folder like /tmp: everybody may add files, nobody may touch those of others."""
    folder = parent / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def run_tells(script: Path, *options: str, **variables: str) -> tuple[int, str]:
    """Return the exit code and what `antifreeze run` prints of its own accord."""
    done = subprocess.run(
        [*OURS, *options, str(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **variables},
        cwd=script.parent,
    )
    return done.returncode, done.stderr.removesuffix(NO_LOADER)


def check_finds(path: Path) -> tuple[int, str]:
    done = start(path.parent, *CHECK, str(path), "--force-exclude")
    return done.returncode, done.stderr.decode()


# ---- whose files count ---------------------------------------------------------------------------


@as_root
def test_settings_of_another_user_in_a_shared_folder_change_no_run(tmp_path: Path) -> None:
    shared = shared_folder(tmp_path)
    target = tmp_path / "root-only.txt"
    target.write_text("precious\n")
    script = write(
        shared,
        """
        from torch.utils.data import DataLoader
        class Bad:
            def __len__(self): return 2
            def __getitem__(self, index): raise ValueError("bad sample")
        print(DataLoader(Bad()).on_error, DataLoader(Bad()).fault_log)
        for _ in DataLoader(Bad()): pass
        """,
        "mine/train.py",
    )
    text = f'[tool.antifreeze]\non-error = "skip"\nfault-log = "{target}"\n'
    planted = settings_file(shared, STRANGER, text)
    done = start(script.parent, *OURS, str(script))
    assert done.stdout == b"raise None\n" and done.returncode == 1
    assert f"{planted} is not used: it belongs to another user (uid 65534)" in done.stderr.decode()
    assert target.read_text() == "precious\n"


@as_root
@pytest.mark.parametrize("marker", ["", ".git", ".hg"])
def test_a_planted_repository_makes_nobodys_settings_count(tmp_path: Path, marker: str) -> None:
    shared = shared_folder(tmp_path)
    script = write(shared, "pass", "mine/deep/train.py")
    path = write(shared, BROKEN, "mine/deep/broken.py")
    settings_file(shared, STRANGER, TABLE.replace("train.py", "broken.py"))
    if marker:
        (shared / marker).mkdir()
        os.chown(shared / marker, STRANGER, STRANGER)
    code, err = run_tells(script)
    assert code == 0 and "from " not in err and err.count("is not used") == 1
    code, err = check_finds(path)
    assert code == 1 and err.count("is not used") == 1


@as_root
def test_a_planted_repository_does_not_end_the_search_either(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    settings_file(tmp_path)
    shared = shared_folder(tmp_path)
    script = write(shared, "pass", "mine/train.py")
    (shared / ".git").mkdir()
    os.chown(shared / ".git", STRANGER, STRANGER)
    code, err = run_tells(script)
    assert code == 0 and err == f"antifreeze run: on-error=skip, from {tmp_path}/pyproject.toml\n"


def test_settings_above_the_project_are_not_of_the_project(tmp_path: Path) -> None:
    settings_file(tmp_path, os.geteuid())
    script = write(tmp_path, "pass", "project/src/train.py")
    (tmp_path / "project/.git").write_text("gitdir: ../elsewhere\n")  # as in a worktree
    assert run_tells(script) == (0, "")
    assert read_settings(script) == Settings(root=script.parent)
    settings_file(tmp_path / "project", os.geteuid(), "[tool.other]\n")
    assert run_tells(script) == (0, "")
    (tmp_path / "project/.git").unlink()  # the nearest file is the project's: it is not ours
    assert run_tells(script) == (0, "")
    (tmp_path / "project/pyproject.toml").unlink()
    assert "on-error=skip, from" in run_tells(script)[1]


@as_root
def test_the_owner_of_what_is_named_decides_about_it(tmp_path: Path) -> None:
    script = write(tmp_path, "pass", "project/train.py")
    path = settings_file(tmp_path / "project", STRANGER)
    assert read_settings(script).source is None
    assert read_settings(script.parent).source is None
    os.chown(script, STRANGER, STRANGER)
    assert run_tells(script) == (0, f"antifreeze run: on-error=skip, from {path}\n")
    assert read_settings(script).source == path
    assert read_settings(script.parent).source is None  # the folder is root's
    os.chown(script.parent, STRANGER, STRANGER)
    assert read_settings(script.parent).source == path


@as_root
def test_a_module_brings_settings_only_from_where_it_may_come_from(tmp_path: Path) -> None:
    settings_file(tmp_path, STRANGER)
    os.chown(tmp_path, STRANGER, STRANGER)
    write(tmp_path, "pass", "thing.py")
    plain = start(tmp_path, *OURS, "-m", "thing")
    assert "on-error=skip, from" in plain.stderr.decode()
    safe = start(tmp_path, sys.executable, "-P", *OURS[1:], "-m", "json.tool", "--help")
    assert safe.returncode == 0 and "is not used" in safe.stderr.decode()
    assert "on-error" not in safe.stderr.decode()


@as_root
@pytest.mark.parametrize(
    ("link", "target", "counts"), [(0, 0, True), (STRANGER, 0, False), (0, STRANGER, False)]
)
def test_a_link_counts_if_it_and_its_target_do(
    tmp_path: Path, link: int, target: int, counts: bool
) -> None:
    (tmp_path / ".git").mkdir()  # the project, with both of them in it
    real = settings_file(tmp_path / "elsewhere", target)
    script = write(tmp_path, "pass", "project/train.py")
    linked = tmp_path / "project/pyproject.toml"
    linked.symlink_to(real)
    os.lchown(linked, link, link)
    code, err = run_tells(script)
    assert code == 0 and ("from " in err) == counts and ("is not used" in err) == (not counts)
    assert (read_settings(script).source == linked) == counts


# ---- what is said --------------------------------------------------------------------------------


def test_a_run_names_the_file_and_what_it_took_of_it(tmp_path: Path) -> None:
    script = write(tmp_path, "pass")
    text = '[tool.antifreeze]\non-error = "skip"\nfault-log = "a.log"\nsample-timeout = "none"\n'
    path = settings_file(tmp_path, os.geteuid(), text)
    taken = f"sample-timeout=none, from {path}\n"
    said = f"antifreeze run: on-error=skip, fault-log={tmp_path}/a.log, {taken}"
    assert run_tells(script) == (0, said)
    assert run_tells(script, LOCAL_RANK="1", LOCAL_WORLD_SIZE="2") == (0, "")
    assert run_tells(script, ANTIFREEZE="off") == (0, "")
    options = ("--on-error", "raise", "--fault-log", "b.log")
    assert run_tells(script, *options) == (0, f"antifreeze run: {taken}")
    assert run_tells(script, *options, "--sample-timeout=9") == (0, "")


def test_names_in_a_file_mean_nothing_to_a_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b[2Jb\n::error::c"
    script = write(folder, "pass")
    for text in (
        '[tool.antifreeze]\nfault-log = "x\\u001b]0;owned\\u0007"\n',
        '[tool.antifreeze]\n"\\u001b[2J" = 1\n',
        '[tool.antifreeze.check]\n"\\u001b[2J" = 1\n',
        '[tool.antifreeze.check]\nconfidence = "\\u001b[2J"\n',
        '[tool.antifreeze.check]\nignore = ["\\u001b[2J"]\n',
        "[tool.antifreeze\x1b[2J\n",
    ):
        settings_file(folder, os.geteuid(), text)
        for _, err in (run_tells(script), check_finds(script)):
            assert "\x1b" not in err and "\x07" not in err
            assert not any(line.startswith("::") for line in err.splitlines())


# ---- what cannot be read -------------------------------------------------------------------------

MINE = "[tool.antifreeze]\n"
UGLY = {
    "no TOML": "sample-timeout =",
    "lists in lists": "x = " + "[" * 100_000,
    "tables in tables": "x = " + "{a=" * 100_000,
    "tables in tables, by name": ".".join("a" * 1_000) + " = 1",
    "a name of many parts": ".".join("a" * 400_000) + " = 1",
    "a table's name of many parts": "[" + ".".join("a" * 50_000) + "]\n" + "a = 1\n" * 50_000,
    "a long number": "sample-timeout = " + "9" * 100_000,
    "a long number in base 16": "sample-timeout = 0x" + "f" * 100_000,
    "a large file": "# " + "x" * 2_000_000,
}


@pytest.mark.parametrize("name", UGLY)
def test_a_file_that_cannot_be_understood_is_one_line(tmp_path: Path, name: str) -> None:
    script = write(tmp_path, "pass")
    for mentions_us in (True, False):
        text = f"{MINE}{UGLY[name]}\n" if mentions_us else UGLY[name]
        settings_file(tmp_path, os.geteuid(), text)
        for tells in (run_tells, check_finds):
            began = time.monotonic()
            code, err = tells(script)
            assert time.monotonic() - began < QUICK_S
            assert "Traceback" not in err and err.count("\n") <= 1 and len(err) < 1_000
            assert code == (2 if mentions_us else 0), err
            assert f"{tmp_path}/pyproject.toml" in err or code == 0


@pytest.mark.parametrize("what", ["pipe", "device", "folder", "link to itself", "socket"])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, what: str) -> None:
    script = write(tmp_path, "pass")
    path = tmp_path / "pyproject.toml"
    match what:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "link to itself":
            path.symlink_to(path)
        case "socket":
            subprocess.run(
                [
                    *(sys.executable, "-c"),
                    "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])",
                    path.name,
                ],
                cwd=tmp_path,
                check=True,
            )
    for tells in (run_tells, check_finds):
        code, err = tells(script)
        assert "Traceback" not in err and err.count("\n") == 1
        if what != "link to itself":
            link = what == "device"  # only a link has one in a project of others
            why = "a link that leads out of the project" if link else "not a regular file"
            assert code == 0 and f"is not used: it is {why}" in err


def test_no_pattern_takes_long(tmp_path: Path) -> None:
    deep = Path("a/" * 500 + "y.py")
    began = time.monotonic()
    for pattern in ("**/" * 300 + "x", "**/a/" * 200 + "x", "**/*a/" * 150 + "x", "*a" * 400 + "x"):
        assert not matches(deep, [pattern], tmp_path)
    assert time.monotonic() - began < QUICK_S
    for lists in (["x" * 10_000], ["x"] * 10_000):
        settings_file(
            tmp_path,
            os.geteuid(),
            f"[tool.antifreeze.check]\nexclude = {lists!r}".replace("'", '"'),
        )
        with pytest.raises(ValueError, match="exclude has more than"):
            read_settings(tmp_path)


def test_a_check_shows_whose_settings_it_used(tmp_path: Path) -> None:
    path = write(tmp_path, BROKEN, "a\x1b[2Jb/broken.py")
    table = settings_file(tmp_path, os.geteuid(), '[tool.antifreeze.check]\nignore = ["AF9"]\n')
    outputs = {
        folder: start(folder, *CHECK, str(path)).stdout.decode()
        for folder in (tmp_path, path.parent)
    }
    assert "found in 1 file (settings: pyproject.toml):" in outputs[tmp_path]
    assert f"found in 1 file (settings: {table}):" in outputs[path.parent]
    told = json.loads(start(tmp_path, *CHECK, "--format=json", str(path)).stdout)
    assert told["settings"] == str(table)
    table.write_text("[tool.antifreeze]\n")
    assert "settings" not in start(tmp_path, *CHECK, str(path)).stdout.decode()
    told = json.loads(start(tmp_path, *CHECK, "--format=json", str(path)).stdout)
    assert told["settings"] is None


@pytest.mark.parametrize("root", [".git", None])
def test_a_link_out_of_the_project_shows_nothing_of_what_it_leads_to(
    root: str | None, tmp_path: Path
) -> None:
    secret = settings_file(tmp_path / "secret", text='[tool.antifreeze.check]\npassword = "x"\n')
    script = write(tmp_path, "pass", "project/train.py")
    if root is not None:
        (tmp_path / "project" / root).mkdir()
    (tmp_path / "project/pyproject.toml").symlink_to(secret)
    _, err = check_finds(script)
    assert "password" not in err
    assert "is not used: it is a link that leads out of the project" in err
