"""Links of a repository lead to nothing outside of it, and `--fix` writes to nothing there."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from antifreeze.cli import main
from antifreeze.doctor.check.checker import check
from antifreeze.doctor.check.files import source_reader
from antifreeze.doctor.check.files.atomic_write import replace_file
from antifreeze.doctor.check.files.file_discovery import walk
from antifreeze.doctor.check.files.symlinks import LinkLeadsOut, resolve
from antifreeze.doctor.check.settings import Settings

from ..check.ignored_trees import git
from ..patience import PATIENCE_S

SECRET = "root:$6$secret:19000:0:99999:7:::\n"
MENDABLE = "from torch.utils.data import DataLoader\nloader = DataLoader('x', timeout=3)\n"
MENDED = MENDABLE.replace(", timeout=3", "")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A project, beside a file that is none of its business."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "program.py").write_text(MENDABLE)
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["check", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_link_that_is_tracked_is_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "leak.py").symlink_to("/etc/hostname")
    subprocess.run(["git", "-C", str(tmp_path), "add", "."], check=True)
    _, _, err = run(capsys, str(tmp_path))
    assert "left out: 1 link leads out of the project" in err


@pytest.mark.parametrize("how", ["text", "json", "sarif", "github"])
def test_a_link_out_of_the_project_is_left_out_and_named(
    how: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "leak.py").symlink_to("../secret")
    (here / "deep").mkdir()
    (here / "deep" / "far.py").symlink_to("../../program.py")
    (here / "deep" / "chain.py").symlink_to("far.py")
    (here / "fine.py").write_text("x = 1\n")
    (here / "inside.py").symlink_to("deep/../fine.py")
    code, out, err = run(capsys, str(here), "--format", how)
    assert code == 0 and "secret" not in out
    assert "3 links lead out of the project (" in err and "leak.py" in err
    assert run(capsys, str(here), "--exclude", "leak.py,deep")[2] == ""


def test_a_file_that_is_named_and_leads_out_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "leak.py").symlink_to("../secret")
    (here / "out").symlink_to("..")
    for path in ("leak.py", "out/program.py", "out", "out/clone/leak.py"):
        code, out, _ = run(capsys, str(here / path))
        assert code == 2 and SECRET[:6] not in out and "AF001" not in out, path
        assert f"it leads out of the project {here}" in out
        (failure,) = check([here / path], Settings()).failures
        assert "leads out" in failure.words


def test_links_of_the_user_are_followed(here: Path, tmp_path: Path) -> None:
    (here / "a.py").write_text("x = 1\n")
    (tmp_path / "short").symlink_to(here)
    (tmp_path / "one.py").symlink_to(here / "a.py")
    assert [each.name for each in walk([tmp_path / "short"], Settings()).files] == ["a.py"]
    assert [each.name for each in walk([tmp_path / "one.py"], Settings()).files] == ["one.py"]
    assert not check([tmp_path / "one.py", tmp_path / "short" / "a.py"], Settings()).failures


def test_a_folder_in_no_project_is_the_limit_of_its_own_links(tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    (tmp_path / "secret.py").write_text(SECRET)
    (folder / "a.py").write_text("x = 1\n")
    (folder / "leak.py").symlink_to("../secret.py")
    (folder / "b.py").symlink_to("a.py")
    done = walk([folder], Settings())
    assert [each.name for each in done.files] == ["a.py"] and len(done.led_out) == 1
    settings = Settings(named=(folder,))
    (failure,) = check([folder / "leak.py"], settings).failures
    assert f"it leads out of the folder {folder}" in failure.words
    with pytest.raises(LinkLeadsOut):
        resolve(folder / "leak.py", (folder,))
    assert resolve(folder / "leak.py") == str(tmp_path / "secret.py"), "who names it means it"


def test_a_tracked_file_behind_a_folder_that_became_a_link_is_left_out(
    here: Path, tmp_path: Path
) -> None:
    git(here, "init", "-q")
    (here / "data").mkdir()
    (here / "data" / "program.py").write_text("x = 1\n")
    git(here, "add", ".")
    (here / "data" / "program.py").unlink()
    (here / "data").rmdir()
    (here / "data").symlink_to("..")
    done = walk([here], Settings())
    assert not done.files and [each.name for each in done.led_out] == ["program.py"]


@pytest.mark.parametrize("instead", ["link", "folder", "pipe", "device"])
def test_a_file_that_is_replaced_after_it_was_found_is_not_read(
    instead: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By something else at the last moment: after it is known where the path leads."""
    path = here / "deep" / "program.py"
    path.parent.mkdir()
    path.write_text("x = 1\n")
    real = source_reader.resolve

    def replaced(*given: Path) -> str:
        found = real(*given)
        path.unlink()
        if instead == "link":
            path.symlink_to(tmp_path / "secret")
        elif instead == "pipe":
            os.mkfifo(path)
        elif instead == "device":
            path.symlink_to("/dev/zero")
        else:
            path.parent.rmdir()
            path.parent.symlink_to(tmp_path)
        return found

    monkeypatch.setattr(source_reader, "resolve", replaced)
    result = check([path], Settings())
    assert not result.found and len(result.failures) == 1


def test_a_fix_writes_through_no_link_that_leads_out(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "link.py").symlink_to("../program.py")
    (here / "real.py").write_text(MENDABLE)
    (here / "alias.py").symlink_to("real.py")
    run(capsys, str(here), str(here / "link.py"), "--fix")
    assert (tmp_path / "program.py").read_text() == MENDABLE
    assert (here / "real.py").read_text() == MENDED
    (here / "real.py").write_text(MENDABLE)
    code, _, err = run(capsys, str(here / "alias.py"), "--fix")
    assert code == 0 and "mended 1" in err
    assert (here / "alias.py").is_symlink() and (here / "real.py").read_text() == MENDED
    with pytest.raises(LinkLeadsOut):
        replace_file(here / "link.py", b"")


def test_a_fix_keeps_the_mode_and_leaves_nothing_else_behind(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = here / "a.py"
    path.write_text(MENDABLE)
    path.chmod(0o751)
    before = path.stat()
    assert run(capsys, str(path), "--fix")[0] == 0
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o751 and after.st_uid == before.st_uid
    assert after.st_ino != before.st_ino, "another file in its place, not the same one in part"
    assert sorted(os.listdir(here)) == ["a.py", "pyproject.toml"]


LIMITED = """
import resource, signal, sys
from antifreeze.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
raise SystemExit(main(["check", sys.argv[1], "--fix"]))
"""


def test_a_disk_that_is_full_in_the_middle_leaves_the_old_content_whole(here: Path) -> None:
    path = here / "a.py"
    path.write_text(MENDABLE + "# " + "x" * 50_000 + "\n")
    before = path.read_bytes()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2 and "a.py: " in done.stderr and "Traceback" not in done.stderr
    assert path.read_bytes() == before and sorted(os.listdir(here)) == ["a.py", "pyproject.toml"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = here / "a.py"
    path.write_text(MENDABLE)
    path.chmod(0o444)
    code, _, err = run(capsys, str(path), "--fix")
    assert code == 2 and "may not be written" in err and path.read_text() == MENDABLE


def test_packages_of_one_repository_may_link_to_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".git").mkdir()
    for name in ("a", "shared"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").write_text("")
    (tmp_path / "shared" / "data.py").write_text(MENDABLE)
    (tmp_path / "a" / "data.py").symlink_to("../shared/data.py")
    for path in (tmp_path / "a", tmp_path / "a" / "data.py"):
        code, out, err = run(capsys, str(path))
        assert (code, err) == (1, "") and "1 found in 1 file" in out
