"""`--fix` and `--diff`: files are mended, stay what they were otherwise, compile, and are clean
when they are checked again."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from antifreeze.cli import main
from antifreeze.doctor.check.mending import mend
from antifreeze.doctor.check.running import check, check_text
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.rules import Rule, all_rules

from ..patience import PATIENCE_S

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
    assert code == 0 and "All fine" in out and "mended 3 in 1 file" in err
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
    assert code == 0 and out == FIXED and "mended 3" in err and "All fine" in err
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
    assert code == 2 and "pip install 'antifreeze[check]'" in err and not out
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
    for place, text in enumerate((rule.bad, *rule.also_bad))
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
    done = mend(before, [path], settings, write=True)
    compile(path.read_text(), "example.py", "exec")
    assert done.applied and not any(each.fix for each in done.result.found)
    assert len(done.result.found) == len(before.found) - done.applied
