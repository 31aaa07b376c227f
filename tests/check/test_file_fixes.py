"""`--fix` and `--diff`: files are mended, stay what they were otherwise, compile, and are clean
when they are checked again."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from antifreeze.cli import main
from antifreeze.doctor.check.checker import check, check_text
from antifreeze.doctor.check.file_fixes import apply_fixes
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.rules import Rule, all_rules, find_rule

from ..patience import PATIENCE_S
from .notebook import write_notebook

PROGRAM = """# -*- coding: utf-8 -*-
from functools import cache

from torch.utils.data import DataLoader


@cache
def loader(dataset):  # é, 漢字
\treturn DataLoader(
\t\tdataset, # what is loaded
\t\tbatch_size = 4,
\t\tpersistent_workers=True,  # kept
\t\tprefetch_factor=2,
\t)


class Trainer:
    @property
    def batches(self): return DataLoader("é漢字", timeout=3, pin_memory=True)
"""
FIXED = """# -*- coding: utf-8 -*-
from functools import cache

from torch.utils.data import DataLoader


@cache
def loader(dataset):  # é, 漢字
\treturn DataLoader(
\t\tdataset, # what is loaded
\t\tbatch_size = 4,
\t)


class Trainer:
    @property
    def batches(self): return DataLoader("é漢字", pin_memory=True)
"""


def stdin(text: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["check", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
def test_a_file_is_mended_and_otherwise_stays_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str, mark: bytes
) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(mark + PROGRAM.replace("\n", end).encode())
    assert run(capsys, str(path))[0] == 1
    code, out, _ = run(capsys, str(path), "--diff")
    assert code == 1 and "-\t\tpersistent_workers=True,  # kept" in out
    assert path.read_bytes() == mark + PROGRAM.replace("\n", end).encode(), "--diff changes nothing"
    code, out, err = run(capsys, str(path), "--fix")
    assert path.read_bytes().decode() == (mark + FIXED.replace("\n", end).encode()).decode()
    assert code == 0 and "Nothing found" in out and "mended 3 in 1 file" in err
    compile(path.read_bytes(), "train.py", "exec")


def test_a_file_of_another_encoding_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    text = "# coding: latin-1\nfrom torch.utils.data import DataLoader\n"
    text += "loader = DataLoader('é', timeout=3)  # ü\n"
    path.write_bytes(text.encode("latin-1"))
    assert run(capsys, str(path), "--fix")[0] == 0
    assert path.read_bytes() == text.replace(", timeout=3", "").encode("latin-1")


def test_standard_input_is_mended_to_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin(PROGRAM))
    code, out, err = run(capsys, "-", "--fix")
    assert code == 0 and out == FIXED and "mended 3" in err and "Nothing found" in err
    monkeypatch.setattr(sys, "stdin", stdin(PROGRAM))
    code, out, _ = run(capsys, "-", "--diff")
    assert code == 1 and out.startswith("--- <stdin> (before)")
    monkeypatch.setattr(sys, "stdin", stdin("x = 1\n"))
    assert run(capsys, "-", "--fix")[:2] == (0, "x = 1\n")


def test_standard_input_is_checked_by_the_real_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "antifreeze.cli", "check", "-"],
        input=PROGRAM.encode(),
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1 and b"<stdin>:12:3: AF704" in done.stdout
    assert b"\x1b[" not in done.stdout, "no colours where nobody looks"


def test_without_libcst_the_command_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    monkeypatch.setitem(sys.modules, "libcst", None)
    code, out, err = run(capsys, str(path), "--fix")
    assert code == 2 and "pip install libcst" in err and not out
    assert path.read_text() == PROGRAM
    path.write_text("x = 1\n")
    assert run(capsys, str(path), "--fix")[0] == 0, "nothing to fix needs nothing"


def test_a_broken_file_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    text = PROGRAM + "\nfor x in loader(1):\n    # later\n"
    path.write_text(text)
    code, _, _ = run(capsys, str(path), "--fix")
    assert code == 1 and path.read_text() == text


FIXABLE = [
    pytest.param(rule, text, id=f"{rule.code}-{place}")
    for rule in all_rules()
    for place, text in enumerate((rule.page.bad, *rule.page.also_bad))
    if any(each.fix for each in check_text(text, Settings(extend_select=(rule.code,))).found)
]


@pytest.mark.parametrize(("rule", "text"), FIXABLE)
def test_a_fixed_example_compiles_and_nothing_that_can_be_fixed_is_left(
    rule: Rule, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "example.py"
    path.write_text(text)
    settings = Settings(extend_select=(rule.code,))
    before = check([path], settings)
    done = apply_fixes(before, [path], settings, write=True)
    compile(path.read_text(), "example.py", "exec")
    assert done.applied and not any(each.fix for each in done.result.found)
    assert len(done.result.found) == len(before.found) - done.applied


LATIN = b'from torch.utils.data import DataLoader\nloader = DataLoader("x", timeout=3)  # \xe9\n'
NONESUCH = (
    b'# coding: nonesuch\nfrom torch.utils.data import DataLoader\nDataLoader("x", timeout=3)\n'
)


def test_what_cannot_be_written_as_it_was_is_named_and_the_rest_is_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = {"a.py": FIXED.encode(), "b.py": LATIN, "c.py": NONESUCH, "d.py": PROGRAM.encode()}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    code, out, err = run(capsys, str(tmp_path), "--diff")
    assert code == 2 and "d.py (after)" in out and "b.py: " in err and "c.py: " in err
    code, out, err = run(capsys, str(tmp_path), "--fix")
    assert code == 2 and "b.py: it is not mended: 'utf-8' codec" in err
    assert "c.py: it is not mended: unknown encoding: nonesuch" in err and "mended 3 in 1" in err
    assert (tmp_path / "b.py").read_bytes() == LATIN
    assert (tmp_path / "c.py").read_bytes() == NONESUCH
    assert (tmp_path / "d.py").read_bytes() == FIXED.encode()


def test_a_lone_carriage_return_ends_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(PROGRAM.replace("\n", "\r").encode())
    code, out, _ = run(capsys, str(path))
    column = PROGRAM.split("\n")[18].index("timeout") + 1
    assert code == 1 and f"{path}:12:3: AF704" in out and f"{path}:19:{column}: AF704" in out
    assert "    12 | persistent_workers=True,  # kept\n" in out, "one line, not the file"
    code, _, err = run(capsys, str(path), "--fix")
    assert code == 0 and "mended 3 in 1 file" in err
    assert path.read_bytes() == FIXED.replace("\n", "\r").encode()


def test_nothing_is_mended_where_nothing_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.py"
    mixed = PROGRAM.replace("\n", "\r", 3).encode()  # libcst would lose such ends
    path.write_bytes(mixed)
    code, out, err = run(capsys, str(path), "--fix")
    assert code == 1 and "mended" not in err and "3 found" in out and path.read_bytes() == mixed


def test_standard_input_is_bytes_in_and_out_whatever_the_locale() -> None:
    before = b"# coding: latin-1\r\nfrom torch.utils.data import DataLoader\r\n"
    before += b"loader = DataLoader('\xe9', timeout=3)\r\n"
    for given, expected in (
        (before, before.replace(b", timeout=3", b"")),
        (b"x = '\xff'  # no UTF-8\n", b"x = '\xff'  # no UTF-8\n"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "antifreeze.cli", "check", "-", "--fix"],
            input=given,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
            env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict"},
        )
        assert done.stdout == expected and done.returncode == 0


def test_standard_input_has_the_settings_and_the_kind_of_the_file_it_is_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = '[tool.antifreeze.check.per-path]\n"old/**" = {ignore = ["AF7"]}\n'
    (tmp_path / "pyproject.toml").write_text(table)

    def checked(text: str, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", stdin(text))
        return run(capsys, "-", *words)

    new, old = (str(tmp_path / folder / "a.py") for folder in ("new", "old"))
    code, out, _ = checked(PROGRAM, "--stdin-filename", new)
    assert code == 1 and f"{new}:12:3: AF704" in out
    assert checked(PROGRAM, "--stdin-filename", old)[0] == 0
    book = write_notebook(tmp_path / "real.ipynb", PROGRAM).read_text()
    code, out, _ = checked(book, "--stdin-filename", str(tmp_path / "a.ipynb"))
    assert code == 1 and "a.ipynb:cell 2 line 12:3: AF704" in out
    excluded = ("--exclude", "new", "--force-exclude", "--stdin-filename", new)
    assert checked(PROGRAM, *excluded)[0] == 0
    assert checked(PROGRAM, *excluded, "--fix")[:2] == (0, PROGRAM)
    assert run(capsys, new, "--stdin-filename", new)[0] == 2


def test_a_diff_of_nothing_says_that_nothing_can_be_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = find_rule("AF601")
    assert rule is not None
    path = tmp_path / "train.py"
    path.write_text(rule.page.bad)
    words = "antifreeze check: nothing that --fix can mend (1 found)\n"
    assert run(capsys, str(path), "--fix", "--diff") == (0, "", words)
    path.write_text(rule.page.good)
    assert run(capsys, str(path), "--fix", "--diff") == (0, "", "")


def test_the_page_lists_the_rules_that_have_a_fix() -> None:
    able = set()
    for rule in all_rules():
        for text in (rule.page.bad, *rule.page.also_bad):
            found = check_text(text, Settings(select=(rule.code,))).found
            able |= {each.code for each in found if each.can_be_fixed}
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
    listed = page.partition("Rules with a fix: ")[2].partition(". The others")[0]
    assert set(re.findall(r"AF\d{3}", listed)) == able
