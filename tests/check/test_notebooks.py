"""Notebooks, the whole way through the command: by cell, with magics, and one bad cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from antifreeze.cli import main
from antifreeze.doctor.check.checker import check
from antifreeze.doctor.check.settings import Settings

from .notebook import write_notebook

IMPORTS = """%matplotlib inline
!pip install torch \\
    torchvision
from torch.utils.data import DataLoader, DistributedSampler
"""
SAMPLER = """%%time
sampler = DistributedSampler(data)
loader = DataLoader(data, sampler=sampler, num_workers=2)
for epoch in range(2):
    print(epoch, len(loader))
"""
USELESS = "loader = DataLoader(data, persistent_workers=True)\n"
BROKEN = "print('never closed'\n"
SHELL = "%%bash\nfor x in 1 2; do echo $x; done\n"
LATER = """text = ("%s"
        % data)
data = [1, 2]
await nothing()
"""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["check", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_bad_cell_is_reported_as_that_cell_and_the_others_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_notebook(tmp_path / "a.ipynb", IMPORTS, SHELL, BROKEN, SAMPLER, LATER)
    code, out, _ = run(capsys, str(path))
    assert code == 1
    places = [line for line in out.split("\n") if line.startswith(str(path))]
    assert [line[len(str(path)) :] for line in places] == [
        ":cell 4 line 1:6: AF001 cannot-be-read (crash, certain)",
        ":cell 5 line 2:11: AF601 sampler-without-set-epoch (wrong data, likely)",
    ]
    assert "This cell cannot be read as Python" in out
    assert "2 | sampler = DistributedSampler(data)" in out
    found = json.loads(run(capsys, str(path), "--format", "json")[1])["findings"]
    assert [(each["cell"], each["line"]) for each in found] == [(4, 1), (5, 2)]
    sarif = json.loads(run(capsys, str(path), "--format", "sarif")[1])["runs"][0]["results"]
    assert sarif[1]["message"]["text"].startswith("cell 5 line 2: ")


def test_it_is_the_same_in_several_processes(tmp_path: Path) -> None:
    for number in range(60):
        write_notebook(tmp_path / f"n{number:02}.ipynb", IMPORTS, SAMPLER, BROKEN, LATER)
    files = sorted(tmp_path.iterdir())
    alone, together = (check(files, Settings(jobs=jobs)) for jobs in (1, 2))
    assert alone == together and len(alone.found) == 120


def test_an_undefined_name_is_found_unless_names_come_from_elsewhere(tmp_path: Path) -> None:
    use = "from torch.utils.data import DataLoader\nloader = DataLoader(missing)\n"
    for magic, count in (("", 1), ("%matplotlib inline\n", 1), ("%run other.ipynb\n", 0)):
        path = write_notebook(tmp_path / "a.ipynb", magic + "x = 1\n", use)
        assert [each.code for each in check([path], Settings()).found] == ["AF705"] * count
    path = write_notebook(tmp_path / "a.ipynb", BROKEN, use)
    assert [each.code for each in check([path], Settings()).found] == ["AF001"]


def test_an_allow_in_a_cell_counts(tmp_path: Path) -> None:
    allowed = SAMPLER.replace("(data)\n", "(data)  # antifreeze: allow[AF601]\n", 1)
    path = write_notebook(tmp_path / "a.ipynb", IMPORTS, allowed, LATER)
    assert not check([path], Settings()).found


def test_a_fix_of_a_notebook_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_notebook(tmp_path / "a.ipynb", IMPORTS, USELESS, LATER)
    before = path.read_bytes()
    for option, expected in (("--fix", 1), ("--diff", 0)):
        code, out, err = run(capsys, str(path), option)
        assert (
            code == expected and "notebooks are not changed" in err and path.read_bytes() == before
        )
    assert "--fix can" not in out


def test_what_is_no_notebook_is_reported(tmp_path: Path) -> None:
    for text in ("{}", "not json", '{"cells": [{"cell_type": "code"}]}'):
        path = tmp_path / "a.ipynb"
        path.write_text(text)
        (found,) = check([path], Settings()).found
        assert found.code == "AF001"


def test_a_notebook_of_another_language_is_left_alone(tmp_path: Path) -> None:
    for about in ({"kernelspec": {"language": "R"}}, {"language_info": {"name": "julia"}}):
        path = write_notebook(tmp_path / "a.ipynb", "x <- c(1, 2)\n", metadata=about)
        result = check([path], Settings())
        assert not result.found and not result.failures and not result.not_looked_at
    python = {"kernelspec": {"language": "python"}}
    path = write_notebook(tmp_path / "a.ipynb", "x <- c(1, 2\n", metadata=python)
    assert [each.code for each in check([path], Settings()).found] == ["AF001"]


def test_a_notebook_of_the_third_format_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    text = {"cell_type": "markdown", "source": ["# Title"]}
    code = [
        {"cell_type": "code", "language": "python", "input": each.splitlines(keepends=True)}
        for each in (IMPORTS, USELESS, LATER)
    ]
    sheets = [{"cells": [text, code[0]]}, {"cells": code[1:]}]
    path.write_text(json.dumps({"metadata": {}, "nbformat": 3, "worksheets": sheets}))
    found = check([path], Settings()).found
    assert [(each.code, each.cell, each.cell_line) for each in found] == [("AF704", 3, 1)]


def test_names_of_the_host_are_known_in_a_notebook_only(tmp_path: Path) -> None:
    use = "from torch.utils.data import DataLoader\nloader = DataLoader(spark.table('a'))\n"
    assert not check([write_notebook(tmp_path / "a.ipynb", use)], Settings()).found
    (tmp_path / "a.py").write_text(use)
    assert [each.code for each in check([tmp_path / "a.py"], Settings()).found] == ["AF705"]


def test_a_cell_that_is_indented_as_a_whole_runs_as_ipython_runs_it(tmp_path: Path) -> None:
    indented = "".join(f"    {line}\n" for line in SAMPLER.splitlines()[1:])
    path = write_notebook(tmp_path / "a.ipynb", IMPORTS, "data = [1, 2]", indented)
    (found,) = check([path], Settings()).found
    assert found.code == "AF601" and found.cell_line == 1
    crooked = "    x = 1\n  y = 2\n"
    path = write_notebook(tmp_path / "b.ipynb", crooked)
    assert [each.code for each in check([path], Settings()).found] == ["AF001"]
