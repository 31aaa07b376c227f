"""Source of others is compiled without a word, without a look at other files, and soon."""

from __future__ import annotations

import os
import struct
import subprocess
import time
from pathlib import Path

import pytest

from antifreeze.doctor.check.checker import check
from antifreeze.doctor.check.error_text import describe_error
from antifreeze.doctor.check.files import tracked_files
from antifreeze.doctor.check.files.file_discovery import walk
from antifreeze.doctor.check.files.git_index import read_index
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.source.syntax import safe_compile

from ..check.notebook import write_notebook
from .stage import antifreeze

SOON_S = 20.0  # several times what each takes; hours or minutes before
LOADER = "from torch.utils.data import DataLoader\nl = DataLoader('x', timeout=3)\n"
WARNED = LOADER + "x = 1\nassert (x, 'msg')\nx is 1\n'\\d'\n"
# Names that were given to `compile`, and those that people give.
NAMES = ("fixed", "cell", "file", "source", "<fixed>", "<cell>", "<string>", "<unknown>")
slow = pytest.mark.skipif(not safe_compile._IS_SLOW, reason="this Python parses f-strings quickly")


def seconds(path: Path) -> float:
    before = time.monotonic()
    result = check([path], Settings())
    assert not any(each.ours for each in result.failures), result.failures
    return time.monotonic() - before


def test_warnings_about_source_show_no_line_of_other_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password\n" * 9)
    here = tmp_path / "clone"
    here.mkdir()
    for name in NAMES:
        (here / name).symlink_to(secret)
    (here / "a.py").write_text(WARNED)
    write_notebook(here / "b.ipynb", WARNED)
    ran = antifreeze("check", "--diff", cwd=here, PYTHONWARNINGS="default")
    assert "password" not in ran.text and "Warning" not in ran.err
    assert "-l = DataLoader('x', timeout=3)" in ran.out


def test_a_pipe_with_a_name_of_ours_is_never_opened(tmp_path: Path) -> None:
    for name in NAMES:
        os.mkfifo(tmp_path / name)
    (tmp_path / "a.py").write_text("def f(:\n")
    write_notebook(tmp_path / "b.ipynb", "def f(:\n")
    ran = antifreeze("check", "a.py", "b.ipynb", cwd=tmp_path)  # it would wait for ever
    assert ran.code == 1 and ran.out.count("AF001 cannot-be-read") == 2


def test_one_file_that_cannot_be_mended_does_not_keep_others_from_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LOADER + "if x: pass\n" + "elif x: pass\n" * 900)
    (tmp_path / "z.py").write_text(LOADER)
    ran = antifreeze("check", "--fix", cwd=tmp_path)
    assert "Traceback" not in ran.err and "a.py" in ran.text
    assert "timeout" not in (tmp_path / "z.py").read_text()


def test_an_error_that_cannot_be_shown_has_a_name() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RecursionError

    assert describe_error(Mute()) == "Mute"


@pytest.mark.parametrize("end", ["(", "!x", "= !x"])
def test_a_line_of_spaces_in_a_cell_does_not_take_their_square(end: str, tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "a.ipynb", ")\n" + " " * 1_000_000 + end + "\n")
    assert seconds(path) < SOON_S


BOMBS = {
    "prefix": "x = f'" + "a" * 3_900_000 + "{a}" * 20_000 + "'\n",
    "fields": "x = f'" + "{a}" * 300_000 + "'\n",
    "triple": 'x = rF"""' + '{a}\n""' * 300_000 + '"""\n',
    "after a comment": "# it's\r'''\\''''; x = f'\\\r\n" + "{a}" * 300_000 + "'\n",
    "escapes": "f''\n#" + "{" * 20_001 + "\n'" + "\\'" * 400_000 + "\n",
    "body": "x = 1\nif x:\ny = '" + "\\'" * 400_000 + "\\\n'\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_no_string_takes_the_square_of_its_length(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(BOMBS[name].encode())
    assert seconds(path) < SOON_S
    # A string that never ends in the cell before must not hide it.
    cells = ("'''", BOMBS[name], LOADER)
    assert seconds(write_notebook(tmp_path / "a.ipynb", *cells)) < SOON_S


@slow
def test_a_cell_with_too_many_fields_is_told_and_the_others_are_checked(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "a.ipynb", BOMBS["fields"], LOADER)
    found = {each.code: each.words for each in check([path], Settings()).found}
    assert "too many fields" in found["AF001"] and "AF704" in found


def test_ordinary_text_with_many_braces_is_no_f_string() -> None:
    safe_compile.refuse_huge_strings("x = '" + "{a}" * 300_000 + "'\n")
    safe_compile.refuse_huge_strings("# f'" + "{a}" * 300_000 + "'\n")
    safe_compile.refuse_huge_strings("x = [\n" + "f'{a}',\n" * 100_000 + "]\n")


# ---- an index that is written to cost more than its bytes ----------------------------------------


def index(*names: tuple[int, bytes]) -> bytes:
    """An index of version 4: of each name, how much of the one before is dropped, and the rest."""
    head = bytes(24) + struct.pack(">I", 0o100644) + bytes(12) + b"\1" * 20 + b"\x0f\xff"
    body = b"".join(head + bytes([drop]) + rest + b"\0" for drop, rest in names)
    return b"DIRC" + struct.pack(">II", 4, len(names)) + body + b"\2" * 20


def test_an_index_whose_names_expand_to_gigabytes_is_none(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(index((0, b"a.py"), (4, b"b.py")))
    assert read_index(str(tmp_path)).files == {"a.py", "b.py"}
    path.write_bytes(index((0, b"a" * 1_000_000), *((1, b"b"),) * 6_000))
    assert not read_index(str(tmp_path)).files
    names = [(0, b"a" * 1_000_000 + b"00000"), *((5, b"%05d" % n) for n in range(6_000))]
    path.write_bytes(index(*names))
    assert not read_index(str(tmp_path)).files


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A repository with many names for one folder."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "real").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "real" / name).symlink_to(".")
    return tmp_path


def test_tracked_files_behind_very_many_links_are_left_out_and_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "real" / "x.py").write_text("")
    ways = [f"{n:020b}".replace("0", "a/").replace("1", "b/") for n in range(20_000)]
    names = [b"real/%sx.py" % each.encode() for each in ways]
    sized = [(len(before), name) for before, name in zip([b"", *names], names, strict=False)]
    (here / ".git" / "index").write_bytes(index(*sized))
    before = time.monotonic()
    done = walk([here], Settings())
    assert time.monotonic() - before < SOON_S
    assert [each.name for each in done.files] == ["x.py"]
    assert "tracked files behind too many links" in capsys.readouterr().err


def test_tracked_files_behind_few_links_are_found(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / ".gitignore").write_text("*\n")
    for number in range(20):
        (here / "real" / f"x{number}.py").write_text("")
    names = [f"real/a/x{number:02}.py".replace("x0", "x").encode() for number in range(20)]
    sized = [(len(before), name) for before, name in zip([b"", *names], names, strict=False)]
    (here / ".git" / "index").write_bytes(index(*sized))
    monkeypatch.setattr(tracked_files, "MOST_LINKS", 1)  # one for all of them
    assert len(walk([here], Settings()).files) == 20
    assert not capsys.readouterr().err
