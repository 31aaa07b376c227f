"""Files in, findings out: silencing, settings, outputs, many files, broken files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from antifreeze.cli import main
from antifreeze.doctor.attach.causes import all_causes
from antifreeze.doctor.check.checker import check, check_text
from antifreeze.doctor.check.files.file_discovery import walk
from antifreeze.doctor.check.pyproject_settings import read_settings
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.findings import Confidence
from antifreeze.doctor.rules import find_rule

RULE = find_rule("AF601")
assert RULE is not None
BAD = RULE.page.bad.strip() + "\n"
LINE = next(n for n, line in enumerate(BAD.split("\n"), start=1) if "= DistributedSampler" in line)


def with_comment(comment: str, line: int, *, own_line: bool = False) -> str:
    lines = BAD.split("\n")
    if own_line:
        lines.insert(line - 1, f"    {comment}" if line > 1 else comment)
    else:
        lines[line - 1] += f"  {comment}"
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("comment", "line", "own_line"),
    [
        ("# antifreeze: allow[sampler-without-set-epoch]", LINE, False),
        ("# antifreeze: allow[AF601] one epoch only", LINE, False),
        ("# noqa: E501  # antifreeze: allow[af601, AF501]", LINE, False),
        ("# antifreeze: allow[sampler-without-set-epoch]", LINE, True),
        ("# antifreeze: allow[sampler-without-set-epoch]", 1, True),
    ],
)
def test_a_comment_allows(comment: str, line: int, own_line: bool) -> None:
    assert not check_text(with_comment(comment, line, own_line=own_line)).found


@pytest.mark.parametrize(
    ("comment", "line"),
    [
        ("# antifreeze: allow[sampler-without-set-epoch]", LINE + 2),
        ("# antifreeze: allow[loader-made-in-the-loop]", LINE),
    ],
)
def test_a_comment_elsewhere_or_of_another_rule_allows_nothing(comment: str, line: int) -> None:
    assert [each.code for each in check_text(with_comment(comment, line)).found] == ["AF601"]


def test_an_allow_that_silences_nothing_is_reported_if_strict() -> None:
    text = with_comment("# antifreeze: allow[AF601, AF501]", LINE)
    assert not check_text(text).found
    (found,) = check_text(text, Settings(strict=True)).found
    assert found.code == "AF002" and "AF501" in found.words


def test_settings_come_from_the_nearest_file_and_are_checked(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nrequires-python = ">=3.14"\n[tool.antifreeze.check]\nignore = ["AF6"]\n'
        'confidence = "certain"\n[tool.antifreeze.check.per-path]\n"old/**" = {ignore = ["AF1"]}\n'
    )
    folder = tmp_path / "old"
    folder.mkdir()
    settings = read_settings(folder)
    assert settings.python == (3, 14) and settings.confidence is Confidence.CERTAIN
    here = {rule.code for rule in settings.rules_for(tmp_path / "a.py")}
    there = {rule.code for rule in settings.rules_for(folder / "a.py")}
    assert "AF101" in here and "AF101" not in there and "AF601" not in here | there
    for wrong in ('ignore = ["AF999"]', "colour = 1", 'confidence = "no"', "python-version = 3.14"):
        (tmp_path / "pyproject.toml").write_text(f"[tool.antifreeze.check]\n{wrong}\n")
        with pytest.raises(ValueError, match=r"pyproject\.toml"):
            read_settings(tmp_path)


def test_many_files_are_checked_in_processes_and_a_broken_one_is_reported(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"m{number:02}.py").write_text(BAD if number % 20 == 0 else "x = 1\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "binary.py").write_bytes(b"\x00\xff\x00")
    files = walk([tmp_path], Settings()).files
    alone, together = (check(files, Settings(jobs=jobs)) for jobs in (1, 2))
    assert alone == together and alone.files == 62
    assert [(each.path.name, each.code) for each in together.found] == [
        ("binary.py", "AF001"),
        ("broken.py", "AF001"),
        ("m00.py", "AF601"),
        ("m20.py", "AF601"),
        ("m40.py", "AF601"),
    ]


DATASET = """
import os

from torch.utils.data import Dataset


class Names(Dataset):
    def __init__(self, folder):
        self.names = os.listdir(folder)
        self.seen = []

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return self.names[index]
"""
TRAINING = """
import torch.distributed as dist
from data import Names

dist.init_process_group("nccl")
names = Names(".")
"""


def test_a_file_of_the_same_name_in_another_folder_is_another_file(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "data.py").write_text(DATASET)
    (tmp_path / "two" / "train.py").write_text(TRAINING)
    files = walk([tmp_path], Settings()).files
    (found,) = check(files, Settings()).found
    assert found.code == "AF604" and found.path == tmp_path / "two" / "data.py"


def test_functions_that_return_each_other_are_looked_through_once() -> None:
    count = 12
    every = "\n".join(f"        if index == {n}: return way_{n}(index)" for n in range(count))
    ways = "\n".join(f"def way_{n}(index):\n    if index:\n{every}" for n in range(count))
    text = DATASET.replace("os.listdir(folder)", "way_0(folder)") + ways + "\n"
    assert not check_text(text).failures  # by every way and back again: 12 ** 6


def test_variables_that_lead_back_to_themselves_are_no_trouble() -> None:
    text = """
import os
import random
import time

import torch.distributed as dist
from torch.utils.data import DataLoader, Subset

dist.init_process_group("nccl")


def work(data, seed):
    def start(worker_id):
        seed = seed % 1000
        clock = clock - 1
        random.seed(seed)
        random.seed(int(clock))

    cores = cores + 1
    for _ in range(3):
        data = Subset(data, range(10))
    loader = DataLoader(data, num_workers=cores, worker_init_fn=start)
    it = iter(loader)
    data.epoch = 3
    data.transform = None
    return next(it)
"""
    assert not check_text(text).failures


def test_dead_links_and_pipes_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "inner").symlink_to(tmp_path)
    (tmp_path / "real.py").write_text("1\n")
    assert walk([tmp_path], Settings()).files == [tmp_path / "real.py"]


def test_what_git_ignores_is_left_out_unless_it_is_named(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("made/\n")
    (tmp_path / "made").mkdir()
    for name in ("a.py", "made/b.py", "c.ipynb", "d.txt"):
        (tmp_path / name).write_text("")
    names = [each.name for each in walk([tmp_path], Settings()).files]
    assert names == ["a.py", "c.ipynb"]
    assert [each.name for each in walk([tmp_path / "made"], Settings()).files] == ["b.py"]
    excluded = Settings(root=tmp_path, exclude=("*.ipynb",))
    assert [each.name for each in walk([tmp_path], excluded).files] == ["a.py"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["check", *words])
    return code, capsys.readouterr().out


def test_the_command_tells_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(BAD)
    code, out = run(capsys, str(path))
    assert code == 1
    assert f"train.py:{LINE}:15: AF601 sampler-without-set-epoch (wrong data, certain)" in out
    assert "| sampler = DistributedSampler(dataset)" in out
    found = json.loads(run(capsys, str(path), "--format", "json")[1])["findings"]
    assert [(each["code"], each["line"], each["column"]) for each in found] == [("AF601", LINE, 15)]
    sarif = json.loads(run(capsys, str(path), "--format", "sarif")[1])
    (result,) = sarif["runs"][0]["results"]
    rules = sarif["runs"][0]["tool"]["driver"]["rules"]
    assert sarif["version"] == "2.1.0" and rules[result["ruleIndex"]]["id"] == "AF601"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == LINE
    out = run(capsys, str(path), "--format", "github")[1]
    assert out.startswith("::error file=") and f",line={LINE},endLine={LINE},col=15," in out
    assert run(capsys, str(path), "--ignore", "AF6")[0] == 0
    assert run(capsys, str(tmp_path / "none.py"))[0] == 2
    assert run(capsys, str(path), "--select", "AF999")[0] == 2


def test_a_rule_is_explained_by_code_and_name(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("AF601", "af601", "sampler-without-set-epoch"):
        assert main(["explain", word]) == 0
        assert "# AF601: " in capsys.readouterr().out
    assert main(["explain"]) == 0
    told = capsys.readouterr().out
    assert "AF201" in told and "lock-held-at-fork" in told


def test_every_way_to_hang_is_explained_by_the_name_that_attach_gives(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for cause in all_causes():
        assert main(["explain", cause.name.upper()]) == 0
        told = capsys.readouterr().out
        assert f"# {cause.title}\n" in told and "## To get out now" in told
        assert ".md)" not in told.splitlines()[-1]  # who has no clone has no other pages


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("F201", "AF201"),
        ("sampler-without-epoch", "sampler-without-set-epoch"),
        ("lock-held-on-fork", "lock-held-at-fork"),
    ],
)
def test_an_unknown_word_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], word: str, meant: str
) -> None:
    assert main(["explain", word]) == 2
    told = capsys.readouterr()
    assert f"did you mean {meant}" in told.err and not told.out


def test_a_word_that_means_a_rule_and_a_way_to_hang_gives_both_pages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "waits-for-a-person"]) == 0
    told = capsys.readouterr().out
    assert "# AF408: " in told and "\n# It waits for a person\n" in told


def test_a_word_like_no_other_is_answered_with_where_all_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "xyzzy"]) == 2
    told = capsys.readouterr().err
    assert "did you mean" not in told and "`antifreeze explain` lists them" in told


def test_pages_are_set_for_a_terminal_and_plain_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["explain", "lock-held-at-fork"]) == 0
    assert "**lock-held-at-fork**" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["explain", "lock-held-at-fork"]) == 0
    told = capsys.readouterr().out
    assert "lock-held-at-fork" in told and "**" not in told
