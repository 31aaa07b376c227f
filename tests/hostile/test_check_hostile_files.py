"""Files that are written to hang a reader, or to crash it: each ends soon, and in words."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antifreeze.cli import main
from antifreeze.doctor.check import checker
from antifreeze.doctor.check.checker import Result, check, check_text
from antifreeze.doctor.check.files import source_reader
from antifreeze.doctor.check.settings import Settings

from ..check.notebook import write_notebook
from ..repetition import some_of

SOON_S = 50.0  # five times the promise: ten seconds here
FEW_S = 25.0
LOADS = "from torch.utils.data import DataLoader\n"
NOTEBOOK = b'{"cells": [{"cell_type": "code", "source": "x = 1"}], "extra": %s}'


def seconds(path: Path) -> float:
    before = time.monotonic()
    result = check([path], Settings())
    assert not any(each.ours for each in result.failures), result.failures
    return time.monotonic() - before


@pytest.mark.parametrize("encoding", ["punycode", "idna", "IDNA", "utf-7", "unicode_escape", "hz"])
def test_no_encoding_takes_the_square_of_a_file(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(f"# coding: {encoding}\n# -".encode() + b"z9a" * 1_200_000)
    assert seconds(path) < FEW_S


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 200_000,
        b'{"cells":' * 200_000,
        NOTEBOOK % b"NaN",
        NOTEBOOK % b"-Infinity",
        NOTEBOOK % (b"9" * 1_000_000),
        NOTEBOOK % (b"[" * 100_000 + b"]" * 100_000),
        b'{"cells": 1e999}',
        b'{"cells": [{"cell_type": "code", "source": NaN}]}',
        b'{"cells": [], "metadata": {"kernelspec": {"language": NaN}}}',
        b"null",
        b"3",
        b'"cells"',
    ],
    ids=range(12),
)
def test_a_notebook_of_anything_is_no_crash_of_ours(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_bytes(data)
    assert seconds(path) < FEW_S


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 200_000,
        "x = " + "-" * 500_000 + "1",
        "x = f'" + "{x}" * 400_000 + "'",
        LOADS + "x = a" + "()" * 200_000,
        LOADS + "x = a" + ".a" * 200_000,
        "x = 1\n" * 150_000 + "for x in y:\n    # later\nz = 1\n" * 30,
        "x = 1\n# antifreeze: allow[" + "a," * 1_000_000 + "]\n",
        "x = 1\n# antifreeze: " + "allow[" * 600_000 + "\n",
        "".join(" " * n + "if 1:\n" for n in range(2000)),
        "x = 1\0\n" * 100,
    ],
    ids=["brackets", "minus", "fields", "calls", "dots", "bodies", "words", "allows", "if", "nul"],
)
def test_a_text_of_anything_ends_soon(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    assert seconds(path) < SOON_S


def test_a_file_that_is_gone_when_it_is_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.py").write_text("def f(:\n")
    real = source_reader.resolve

    def gone(path: Path, *rest: Path) -> str:
        if path.name == "a.py" and path.exists():
            os.unlink(path)
        return real(path, *rest)

    monkeypatch.setattr(source_reader, "resolve", gone)
    assert main(["check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "a.py:1:1: AF001" in out and "b.py:1:7: AF001" in out


# ---- very many findings --------------------------------------------------------------------------

MANY = 20_000
LOADER = "l{} = DataLoader('x', timeout={})"


def many(end: str = "\n", count: int = MANY) -> str:
    return LOADS + "".join(LOADER.format(n, n + 1) + end for n in range(count)) + "\n"


FILES = {
    "one line": many("; "),
    "wide line": many("; ").replace("'x'", "'é'"),
    "allowed": many("  # antifreeze: allow[AF704]\n"),
    "above": "# antifreeze: allow[AF704]\n" * MANY + many("; ", 2_000),
    "unknown": LOADS + "".join(f"x = {n}  # antifreeze: allow[none{n}]\n" for n in range(MANY)),
    "datasets": LOADS
    + "from torch.utils.data import Dataset\n"
    + "".join(
        f"class D{n}(Dataset):\n    def __init__(self):\n        self.f = open('x')\n"
        f"    def __getitem__(self, i):\n        return self.f.read()\n"
        f"l{n} = DataLoader(D{n}(), num_workers=2)\n"
        for n in range(2_000)
    ),
    # The same, in another place; cells of a notebook are many lines, too.
    "lines": many(),
    "below": f"{LOADS}x = 1\n" + "# antifreeze: allow[AF704]\n" * MANY + many("; ", 2_000),
}


@pytest.mark.parametrize("name", some_of(FILES, len(FILES) - 2))
def test_very_many_findings_take_as_long_as_they_are_many(name: str) -> None:
    before = time.monotonic()
    result = check_text(FILES[name], Settings(strict=True))
    assert time.monotonic() - before < SOON_S
    assert not result.failures and (len(result.found) > 1_000) == (name not in ("allowed", "above"))


def test_very_many_cells_take_as_long_as_they_are_many(tmp_path: Path) -> None:
    cells = [LOADS, *(LOADER.format(n, n + 1) for n in range(MANY))]
    path = write_notebook(tmp_path / "a.ipynb", *cells)
    assert seconds(path) < SOON_S


@pytest.fixture(scope="module")
def checked_once() -> Iterator[None]:
    """Let the command find in a folder what it found there before."""
    found: dict[tuple[Path, ...], Result] = {}

    def check_once(files: list[Path], *arguments: Any, **named: Any) -> Result:
        if (*files,) not in found:
            found[(*files,)] = check(files, *arguments, **named)
        return found[(*files,)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checker, "check", check_once)
        yield


@pytest.fixture(scope="module")
def many_findings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    (folder / "a.py").write_text(FILES["one line"])
    return folder


@pytest.mark.parametrize("how", ["text", "json", "sarif", "github"])
def test_very_many_findings_are_told_soon(
    how: str, many_findings: Path, checked_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = time.monotonic()
    assert main(["check", str(many_findings), "--format", how]) == 1
    assert time.monotonic() - before < SOON_S
    assert len(capsys.readouterr().out) < 5_000 * MANY
