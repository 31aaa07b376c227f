"""No name, line or word of a checked repository means anything to a terminal or a CI service."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from antifreeze.cli import main
from antifreeze.doctor.check.check_result import Result
from antifreeze.doctor.check.checker import check_text
from antifreeze.doctor.check.output.terminal_text import print_result

from ..check.notebook import write_notebook
from ..patience import PATIENCE_S

EVIL = "\x1b]0;owned\x07\x1b[2J\r\u202e\x9b31m"
COMMANDS = "::error::owned ##vso[task.setvariable]owned ##[add-mask]a"
# What rich itself writes for colours: `\x1b[1;31m`, and nothing else.
_COLOURS = re.compile(rb"\x1b\[[0-9;]*m")
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A repository with such texts wherever one can be."""
    folder = tmp_path / "clone"
    folder.mkdir()
    uses = "from torch.utils.data import DataLoader\n"
    (folder / f"a{EVIL}.py").write_text(
        f"{uses}DataLoader('{COMMANDS}', timeout=3)  # \x1b[2J\u202e ##vso[x]y\n"
        f"x = '{EVIL[:-7]}'; DataLoader(missing)\n::error::\n"
    )
    (folder / "::error::b ##vso[task.x]y.py").write_text(
        f"{uses}loader = DataLoader('\x1b[2J\u202e', timeout=3)  # \x07 antifreeze: allow[\x1b]\n"
        "undefined = DataLoader(ﬁlm_missing)\n# antifreeze: allow[nonesuch-rule]\n"
        "self_made = getattr(DataLoader, '\x1b[31m')(num_workers='\x1b[31m')\n"
        "DataLoader([1], num_workers='\\x1b[31m\\u202e', shuffle='##vso[x]y', batch_size=2.5)\n"
        "DataLoader([1], **{'\x1b[31m\\u202e': 3, '::error::': 4, 'time\\x1bout': 3})\n"
    )
    (folder / "syntax.py").write_text("x = \x1b[31m\n")
    (folder / "string.py").write_text("x = '\x1b[31m\u202e\n")
    (folder / "codec.py").write_bytes(b"# coding: \x1b[31mutf\nx = 1\n")
    (folder / "name.py").write_text("a\u202eb = 1\n")
    write_notebook(
        folder / f"book{EVIL}.ipynb",
        f"{uses}DataLoader('\x1b[2J\u202e', timeout=3) # ##[x]\x07",
        "x = \x1b[31m (",
    )
    (folder / "broken\x1b.ipynb").write_text('{"cells": "\x1b[31m"')
    (folder / "typed.ipynb").write_text(json.dumps({"cells": [{"cell_type": "code", "\x1b": 1}]}))
    (folder / f"link{EVIL}.py").symlink_to("../gone.py")
    (tmp_path / "gone.py").write_text("")
    return folder


FORMATS = [["--format", each] for each in ("text", "json", "sarif", "github")]
WAYS = [*FORMATS, ["--diff"], ["--strict", "--confidence", "possible", "--select", "ALL"]]
_CODE = "from antifreeze.cli import main; import sys; raise SystemExit(main(sys.argv[1:]))"


def lines_are_harmless(text: str) -> None:
    for line in text.split("\n"):
        assert not line.lstrip().startswith("::"), line
        assert re.search(r"##\w*\[", line) is None, line


def is_harmless(out: bytes, *, github: bool = False) -> None:
    text = out.decode()
    raw = _RAW.search(text)
    assert raw is None, f"{raw[0]!r} in {text[max(0, raw.start() - 80) : raw.end() + 20]!r}"
    if not github:
        lines_are_harmless(text)
        return
    for line in text.splitlines():
        assert re.match(r"::(error|warning|notice) file=", line), line
        assert re.search(r"##\w*\[", line) is None


@pytest.mark.parametrize("words", WAYS, ids=" ".join)
def test_a_pipe_gets_nothing_raw(words: list[str], here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CODE, "check", ".", *words],
        cwd=here,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode in (1, 2) and done.stdout, done.stderr
    assert b"Traceback" not in done.stderr and b"left out: 1 link" in done.stderr
    if words[-1] in ("json", "sarif"):  # their values are quoted: no line of them is a command
        assert done.stdout.isascii() and _RAW.search(done.stdout.decode()) is None
    else:
        is_harmless(done.stdout, github=words[-1] == "github")
    is_harmless(done.stderr)


@pytest.mark.parametrize("words", [*WAYS, ["--fix"]], ids=" ".join)
def test_a_terminal_gets_nothing_but_our_own_colours(words: list[str], here: Path) -> None:
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", _CODE, "check", ".", *words],
        cwd=here,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"},
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(master)
    assert child.wait(PATIENCE_S) in (1, 2)
    plain = _COLOURS.sub(b"", seen).replace(b"\r\n", b"\n")
    if words[-1] in ("json", "sarif", "github"):
        assert _RAW.search(plain.decode()) is None
    else:
        is_harmless(plain)


@pytest.mark.parametrize(
    "text",
    [
        '[tool.antifreeze.check]\nselect = ["AF\\u001b[31m"]',
        '[tool.antifreeze.check]\nconfidence = "\\u001b[2J ##vso[x]y"',
        '[tool.antifreeze.check]\n"\\u001b[31m\\u202e" = 1',
        "[tool.antifreeze.check]\n\x1b[31m",
        '[tool.antifreeze.check]\npython-version = "\\u001b"',
        '[tool.antifreeze]\ncheck = "\\u001b"',
    ],
)
@pytest.mark.parametrize("folder", ["plain", "\x1b[31m\u202e"])
def test_settings_that_are_wrong_are_quoted_harmlessly(
    folder: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / folder
    here.mkdir()
    (here / "pyproject.toml").write_text(text)
    assert main(["check", str(here)]) == 2
    told = capsys.readouterr()
    is_harmless(told.err.encode())
    assert "pyproject.toml" in told.err


def test_names_of_files_that_look_like_options_are_refused_harmlessly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for word in ("--\x1b[31m", "--f\x1b=x", "--format=\x1b", "--jobs=\x1b[2J"):
        with pytest.raises(SystemExit):
            main(["check", word])
        is_harmless(capsys.readouterr().err.encode())


def test_what_is_mended_to_standard_output_is_exact() -> None:
    before = b"from torch.utils.data import DataLoader\nDataLoader('\x1b[2J', timeout=3)\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CODE, "check", "-", "--fix"],
        input=before,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.stdout == before.replace(b", timeout=3", b"")


@pytest.mark.parametrize(
    "start", ["", "x = '\x1b[2J'; ", "y = '##vso[a]'; ", "\tz = '\u202e\t##[a]\x07'; "]
)
def test_carets_stand_under_what_is_meant(start: str, capsys: pytest.CaptureFixture[str]) -> None:
    bare = start.lstrip()
    lead = "if 1:\n" if bare != start else ""
    text = f"from torch.utils.data import DataLoader\n{lead}{start}DataLoader(missing)\n"
    found = [each for each in check_text(text).found if each.code == "AF705"]
    print_result(Result(tuple(found), 1))
    lines = capsys.readouterr().out.split("\n")
    at = next(n for n, line in enumerate(lines) if "DataLoader(missing)" in line and "|" in line)
    where = lines[at].index("missing")
    assert lines[at + 1][where : where + 7] == "^^^^^^^" and lines[at + 1].count("^") == 7
