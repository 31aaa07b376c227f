"""Functions of other files are followed: what they do in workers, and what they open."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from antifreeze.doctor.check.checker import check
from antifreeze.doctor.check.files.file_discovery import walk
from antifreeze.doctor.check.pyproject_settings import read_settings

READING = """
import torch
from torch.utils.data import DataLoader, Dataset

{imports}


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {call}


def main():
    for batch in DataLoader(Rows(torch.rand(100, 3)), num_workers={workers}):
        print(batch)


if __name__ == "__main__":
    main()
"""


def reading(imports: str, call: str, workers: int = 2) -> str:
    return READING.format(imports=imports, call=call, workers=workers)


def found(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    settings = read_settings(root)
    result = check(walk([root], settings).files, settings)
    assert not result.failures
    return sorted(f"{each.path.relative_to(root)} {each.code}" for each in result.found)


SCALE = """
import torch

place = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def scale(row):
    return _moved(row) / 255


def _moved(row):
    return row.to(place)
"""


@pytest.mark.parametrize(
    ("path", "imports", "call"),
    [
        ("steps.py", "from steps import scale", "scale(self.rows[index])"),
        ("lib/steps.py", "from lib.steps import scale as fit", "fit(self.rows[index])"),
    ],
)
@pytest.mark.parametrize("init", [True, False])
def test_a_function_of_another_file_runs_in_workers(
    tmp_path: Path, path: str, imports: str, call: str, init: bool
) -> None:
    files = {path: SCALE, "train.py": reading(imports, call)}
    if init and "/" in path:
        files["lib/__init__.py"] = ""
    assert found(tmp_path, files) == [f"{path} AF104"]


def test_it_is_told_where_it_stands(tmp_path: Path) -> None:
    files = {
        "steps.py": SCALE,
        "train.py": reading("from steps import scale", "scale(self.rows[index])"),
    }
    found(tmp_path, files)
    settings = read_settings(tmp_path)
    [hit] = check(walk([tmp_path], settings).files, settings).found
    assert (hit.path.name, hit.line) == ("steps.py", 12)
    assert hit.words.endswith("(it runs in workers by way of train.py, line 16)")
    assert hit.source.strip() == "return row.to(place)"


def test_without_workers_it_is_fine(tmp_path: Path) -> None:
    text = reading("from steps import scale", "scale(self.rows[index])", workers=0)
    assert found(tmp_path, {"steps.py": SCALE, "train.py": text}) == []


def test_what_is_not_called_is_fine(tmp_path: Path) -> None:
    text = reading("from steps import scale, half", "half(self.rows[index])")
    more = f"{SCALE}\n\ndef half(row):\n    return row / 2\n"
    assert found(tmp_path, {"steps.py": more, "train.py": text}) == []


def test_the_device_is_the_one_that_is_passed(tmp_path: Path) -> None:
    steps = (
        "def moved(row, place):\n    return row.to(place)\n\n\ndef show(x):\n    moved(x, 'cuda')\n"
    )
    files = {
        "steps.py": steps,
        "a.py": reading("from steps import moved", "moved(self.rows, 'cpu')"),
    }
    assert found(tmp_path, files) == []
    files["a.py"] = files["a.py"].replace("'cpu'", "'cuda:1'")
    assert found(tmp_path, files) == ["steps.py AF104"]


def test_a_default_that_is_not_used(tmp_path: Path) -> None:
    files = {
        "steps.py": "def moved(row, place='cuda'):\n    return row.to(place)\n",
        "a.py": reading("from steps import moved", "moved(self.rows, place='cpu')"),
    }
    assert found(tmp_path, files) == []
    files["a.py"] = files["a.py"].replace(", place='cpu'", "")
    assert found(tmp_path, files) == ["steps.py AF104"]


def test_what_the_other_file_shows_by_itself_is_told_there_only(tmp_path: Path) -> None:
    own = reading("", "scale(self.rows[index])").replace("\n\nclass", f"{SCALE}\n\nclass")
    files = {"steps.py": own, "train.py": reading("from steps import scale", "scale(self.rows)")}
    assert found(tmp_path, files) == ["steps.py AF104"]


def test_a_collate_function_of_another_file(tmp_path: Path) -> None:
    steps = "import torch\n\n\ndef join(rows):\n    return torch.stack(rows).cuda()\n"
    text = reading("from steps import join", "self.rows[index]")
    text = text.replace("num_workers=2", "num_workers=2, collate_fn=join")
    assert found(tmp_path, {"steps.py": steps, "train.py": text}) == ["steps.py AF104"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (
            "import sys\n\n\ndef get(row):\n    if not row:\n        sys.exit(1)\n    return row",
            412,
        ),
        ("def get(row):\n    breakpoint()\n    return row", 408),
        ("import requests\n\n\ndef get(row):\n    return requests.get(row).text", 404),
    ],
)
def test_other_rules_follow_as_well(tmp_path: Path, body: str, code: int) -> None:
    text = reading("from steps import get", "get(self.rows[index])")
    assert found(tmp_path, {"steps.py": body, "train.py": text}) == [f"steps.py AF{code}"]


STORE = """
import h5py
from torch.utils.data import DataLoader, Dataset
{imports}

class Store(Dataset):
    def __init__(self, path):
        self.path = path
        self.data = {call}

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return self.data["x"][index]
{method}

def load(path):
    return DataLoader(Store(path), num_workers=4)
"""
FUNCTION = """
import h5py


def reader(path):
{body}
"""
RETURNED = "    return h5py.File(path, 'r')"
IN_STEPS = """
    file = h5py.File(path, "r")
    if "x" not in file:
        raise ValueError(path)
    return file
"""
READ_AND_CLOSED = """
    file = h5py.File(path, "r")
    data = {"x": file["x"][:]}
    file.close()
    return data
"""
READ_INSIDE_WITH = """
    with h5py.File(path, "r") as file:
        return {"x": file["x"][:]}
"""
PART_CLOSED = """
    file = h5py.File(path, "r")
    part = file["train"]
    file.close()
    return part
"""
SOMETIMES = """
    if path.endswith(".h5"):
        return h5py.File(path, "r")
    return {"x": list(range(100))}
"""
OTHER_VALUE = """
    file = h5py.File(path, "r")
    return len(file["x"])
"""


@pytest.mark.parametrize(
    ("body", "opens"),
    [
        (RETURNED, True),
        (IN_STEPS, True),
        (READ_AND_CLOSED, False),
        (READ_INSIDE_WITH, False),
        (PART_CLOSED, False),
        (SOMETIMES, False),
        (OTHER_VALUE, False),
        ("    yield h5py.File(path)", False),
    ],
)
def test_a_handle_that_a_function_returns(tmp_path: Path, body: str, opens: bool) -> None:
    function = FUNCTION.format(body=body)
    here = STORE.format(imports=function, call="reader(path)", method="")
    there = STORE.format(imports="from lib import reader", call="reader(path)", method="")
    indented = function.partition("def reader(path):")[2].replace("\n", "\n    ")
    method = f"\n    def reader(self, path):{indented}"
    own = STORE.format(imports="", call="self.reader(path)", method=method)
    files = {"here.py": here, "lib.py": function, "there.py": there, "own.py": own}
    expected = ["here.py AF201", "own.py AF201", "there.py AF201"] if opens else []
    assert found(tmp_path, files) == expected


def test_a_handle_opened_by_a_function_when_it_is_first_used(tmp_path: Path) -> None:
    text = STORE.format(imports=FUNCTION.format(body=RETURNED), call="None", method="")
    opening = "if self.data is None:\n            self.data = reader(self.path)"
    lazy = f"{opening}\n        return self.data["
    assert found(tmp_path, {"a.py": text.replace("return self.data[", lazy)}) == []


def test_a_function_that_wraps_a_handle_for_each_worker(tmp_path: Path) -> None:
    function = FUNCTION.format(body=RETURNED).replace("def reader", "@in_each_worker\ndef reader")
    imports = f"from mine import in_each_worker\n{function}"
    text = STORE.format(imports=imports, call="reader(path)", method="")
    assert found(tmp_path, {"a.py": text}) == []


SHIFT = """
import numpy as np


class Shift:
    def __init__(self, most):
        self.most = most
        self.draw = np.random.default_rng({seed})

    def __call__(self, row):
        return row + {number}


class Double:
    def __call__(self, row):
        return row * 2
"""
STEPS = """
from torch.utils.data import DataLoader, Dataset
{imports}

class Rows(Dataset):
    def __init__(self, rows, steps):
        self.rows = rows
        self.steps = steps

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        {apply}
        return row


def load(rows):
    return DataLoader(Rows(rows, {steps}), num_workers=4)
"""
EACH = "for step in self.steps:\n            row = step(row)"
DRAWS = SHIFT.format(seed=1, number="self.draw.random() * self.most")
FIXED = SHIFT.format(seed=1, number="self.most")


@pytest.mark.parametrize(
    ("shift", "steps", "apply", "same"),
    [
        (DRAWS, "[Double(), Shift(3)]", EACH, True),
        (DRAWS, "Shift(3)", "row = self.steps(row)", True),
        (DRAWS, "[Double()]", EACH, False),
        (FIXED, "[Double(), Shift(3)]", EACH, False),
        (DRAWS, "[Double(), Shift(3)]", "row = row, len(self.steps)", False),
    ],
)
def test_transforms_that_draw(
    tmp_path: Path, shift: str, steps: str, apply: str, same: bool
) -> None:
    here = STEPS.format(imports=shift, steps=steps, apply=apply)
    imports = "from shifts import Double, Shift"
    there = STEPS.format(imports=imports, steps=steps, apply=apply)
    files = {"here.py": here, "shifts.py": shift, "there.py": there}
    assert found(tmp_path, files) == (["here.py AF301", "shifts.py AF301"] if same else [])


def told(tmp_path: Path, *arguments: str) -> list[tuple[str, int]]:
    """Return where findings are told, as a user sees it."""
    done = subprocess.run(
        [sys.executable, "-m", "antifreeze", "check", "--format", "json", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    return [(each["path"], each["line"]) for each in json.loads(done.stdout)["findings"]]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "steps.py").write_text(SCALE)
    text = reading("from lib.steps import scale", "scale(self.rows[index])")
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "other.py").write_text(text.replace("Rows", "Others"))
    return tmp_path


def test_paths_are_those_that_were_named_wherever_it_runs(program: Path) -> None:
    """Once, though two files lead there."""
    assert told(program) == [("lib/steps.py", 12)]
    assert told(program, str(program)) == [(str(program / "lib/steps.py"), 12)]
    assert told(program / "lib", "..") == [("../lib/steps.py", 12)]


def test_a_file_that_is_named_twice_or_linked_to_is_checked_once(program: Path) -> None:
    (program / "a_link.py").symlink_to(program / "lib" / "steps.py")
    (program / "lib" / "train_link.py").symlink_to(program / "train.py")
    assert told(program) == [("lib/steps.py", 12)]
    both = told(program, "lib/../lib/steps.py", "train.py", str(program / "train.py"))
    assert both == [("lib/../lib/steps.py", 12)]


def test_a_comment_at_the_line_or_at_the_way_to_it_allows_it(program: Path) -> None:
    allow = "  # antifreeze: allow[AF104] on purpose"
    steps, train = program / "lib" / "steps.py", program / "train.py"
    (program / "other.py").unlink()
    steps.write_text(SCALE.replace("row.to(place)", f"row.to(place){allow}"))
    assert told(program) == told(program, "--strict") == []
    steps.write_text(SCALE)
    call = "scale(self.rows[index])"
    train.write_text(train.read_text().replace(call, call + allow))
    assert told(program) == told(program, "--strict") == []


def test_the_settings_of_the_file_with_the_line_count(program: Path) -> None:
    settings = '[tool.antifreeze.check.per-path]\n"lib/**" = { ignore = ["AF104"] }\n'
    (program / "pyproject.toml").write_text(settings)
    assert told(program) == []
