"""Imports mean the files that Python would find, with or without `__init__.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from antifreeze.doctor.check.checker import check
from antifreeze.doctor.check.files.file_discovery import walk
from antifreeze.doctor.check.pyproject_settings import read_settings

DATASET = """
from torch.utils.data import Dataset


class Bin(Dataset):
    def __init__(self, path):
        self.file = open(path, "rb")

    def __len__(self):
        return 100

    def __getitem__(self, index):
        self.file.seek(index)
        return self.file.read(1)
"""
FINE = DATASET.replace("self.file = open", "self.size = len").replace("self.file", "self.size")
LOADER = """
from torch.utils.data import DataLoader
{imports}


def main():
    for batch in DataLoader({name}("x"), num_workers=2):
        print(batch)


if __name__ == "__main__":
    main()
"""


def training(imports: str, name: str = "Bin") -> str:
    return LOADER.format(imports=imports, name=name)


def found(root: Path, files: dict[str, str], *named: str) -> list[str]:
    """Write files, check the folder (or what is named in it), and give who opens too early."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    paths = [root / each for each in named] or [root]
    settings = read_settings(paths[0])
    result = check(walk(paths, settings).files, settings)
    assert not result.failures
    assert {each.code for each in result.found} <= {"AF201"}
    return sorted(str(each.path.relative_to(root)) for each in result.found)


@pytest.mark.parametrize("init", [False, True])
@pytest.mark.parametrize(
    ("script", "imports", "name", "data"),
    [
        ("train.py", "from pkg.ds import Bin", "Bin", "pkg/ds.py"),
        ("train.py", "import pkg.ds", "pkg.ds.Bin", "pkg/ds.py"),
        ("train.py", "from pkg import ds", "ds.Bin", "pkg/ds.py"),
        ("train.py", "from pkg.deep.ds import Bin as B", "B", "pkg/deep/ds.py"),
        ("train.py", "from pkg.ds import *", "Bin", "pkg/ds.py"),
        ("scripts/train.py", "from pkg.ds import Bin", "Bin", "pkg/ds.py"),
        ("scripts/big/train.py", "from pkg.ds import Bin", "Bin", "pkg/ds.py"),
        ("scripts/train.py", "from ds import Bin", "Bin", "scripts/ds.py"),
        ("scripts/train.py", "from parts.ds import Bin", "Bin", "scripts/parts/ds.py"),
        ("train.py", "from pkg.ds import Bin", "Bin", "src/pkg/ds.py"),
        ("scripts/train.py", "from pkg.ds import Bin", "Bin", "src/pkg/ds.py"),
        ("src/train.py", "from src.pkg.ds import Bin", "Bin", "src/pkg/ds.py"),
        ("pkg/train.py", "from .ds import Bin", "Bin", "pkg/ds.py"),
        ("pkg/train.py", "from . import ds", "ds.Bin", "pkg/ds.py"),
        ("pkg/run/train.py", "from ..data.ds import Bin", "Bin", "pkg/data/ds.py"),
        ("pkg/run/train.py", "from pkg.data.ds import Bin", "Bin", "pkg/data/ds.py"),
        ("v1.0/train.py", "from pkg.ds import Bin", "Bin", "v1.0/pkg/ds.py"),
        ("v1.0/pkg/train.py", "from .ds import Bin", "Bin", "v1.0/pkg/ds.py"),
    ],
)
def test_an_import_is_followed(
    tmp_path: Path, init: bool, script: str, imports: str, name: str, data: str
) -> None:
    files = {script: training(imports, name), data: DATASET}
    if init:  # the folder of the dataset alone; those around it have none
        files[str(Path(data).parent / "__init__.py")] = ""
    assert found(tmp_path, files) == [data]


def test_a_package_in_a_folder_without_init_is_one_of_it(tmp_path: Path) -> None:
    files = {
        "train.py": training("from pkg.data import Bin"),
        "pkg/data/__init__.py": "from .ds import Bin\n",
        "pkg/data/ds.py": "from ..core.bins import Bin\n",
        "pkg/core/bins.py": DATASET,
    }
    assert found(tmp_path, files) == ["pkg/core/bins.py"]


def test_a_base_class_is_found_in_a_folder_without_init(tmp_path: Path) -> None:
    own = "from pkg.base import Bin\n\n\nclass Mine(Bin):\n    pass\n"
    files = {
        "train.py": training("from pkg.mine import Mine", "Mine"),
        "pkg/mine.py": own,
        "pkg/base.py": DATASET,
    }
    assert found(tmp_path, files) == ["pkg/mine.py"]  # the class that is loaded


def test_programs_run_inside_a_package_import_their_neighbours(tmp_path: Path) -> None:
    files = {"repo/__init__.py": "", "repo/train.py": training("from ds import Bin")}
    assert found(tmp_path, files | {"repo/ds.py": DATASET}) == ["repo/ds.py"]


def test_folders_that_are_named_one_by_one_are_of_one_project(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": "",
        "scripts/train.py": training("from pkg.ds import Bin"),
        "pkg/ds.py": DATASET,
    }
    assert found(tmp_path, files, "scripts", "pkg") == ["pkg/ds.py"]


def test_a_folder_of_a_project_is_known_by_its_own_name(tmp_path: Path) -> None:
    files = {"pkg/train.py": training("from pkg.ds import Bin"), "pkg/ds.py": DATASET}
    assert found(tmp_path, files | {"pyproject.toml": ""}, "pkg") == ["pkg/ds.py"]


# ---- which of several ----------------------------------------------------------------------------


@pytest.mark.parametrize("init", [False, True])
def test_projects_side_by_side_do_not_mix(tmp_path: Path, init: bool) -> None:
    files = {
        "one/train.py": training("from pkg.ds import Bin"),
        "one/pkg/ds.py": DATASET,
        "two/train.py": training("from pkg.ds import Bin"),
        "two/pkg/ds.py": FINE,
        "three/pkg/ds.py": DATASET,  # nobody loads it
        "four/train.py": training("from pkg.ds import Other", "Other"),  # another pkg
    }
    if init:
        files |= {f"{each}/pkg/__init__.py": "" for each in ("one", "two", "three")}
    assert found(tmp_path, files) == ["one/pkg/ds.py"]


def test_the_nearest_of_two_is_meant(tmp_path: Path) -> None:
    files = {
        "foo/train.py": training("from utils import Bin"),
        "foo/utils.py": FINE,
        "bar/train.py": training("from utils import Bin"),
        "bar/utils.py": DATASET,
        "utils.py": DATASET,
    }
    assert found(tmp_path, files) == ["bar/utils.py"]


@pytest.mark.parametrize("init", [False, True])
def test_the_first_thing_of_a_name_hides_all_others(tmp_path: Path, init: bool) -> None:
    files = {
        "scripts/train.py": training("from utils import Bin"),
        "scripts/utils.py": FINE,
        "scripts/other.py": training("from utils import ds", "ds.Bin"),
        "utils/Bin.py": DATASET,
        "utils/ds.py": DATASET,
    }
    if init:
        files["utils/__init__.py"] = ""
    assert found(tmp_path, files) == []


@pytest.mark.parametrize("init", [False, True])
def test_between_equals_nothing_is_guessed(tmp_path: Path, init: bool) -> None:
    files = {
        "train.py": training("from pkg.ds import Bin"),
        "one/pkg/ds.py": DATASET,
        "two/pkg/ds.py": DATASET,
    }
    if init:
        files |= {"one/pkg/__init__.py": "", "two/pkg/__init__.py": ""}
    assert found(tmp_path, files) == []


def test_a_file_elsewhere_is_not_the_library_of_its_name(tmp_path: Path) -> None:
    files = {
        "train.py": training("from datasets import Bin"),
        "tools/datasets.py": DATASET,
        "pkg/__init__.py": "",
        "pkg/datasets.py": DATASET,
        "pkg/run.py": training("from datasets import Bin").partition("if __name__")[0],
    }
    assert found(tmp_path, files) == []


# ---- Python's own --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "module", "data", "meant"),
    [
        ("train.py", "queue", "queue.py", True),  # sys.path[0] comes first
        ("train.py", "queue", "queue/__init__.py", True),
        ("train.py", "email.ds", "email/ds.py", False),  # Python's own has an __init__.py
        ("train.py", "email.ds", "email/ds.py, email/__init__.py", True),
        ("run/train.py", "queue", "queue.py", False),
        ("train.py", "time", "time.py", False),  # built in
        ("train.py", "io", "io.py", False),  # loaded before
    ],
)
def test_names_of_the_standard_library_mean_a_file_only_beside_the_program(
    tmp_path: Path, script: str, module: str, data: str, meant: bool
) -> None:
    path, _, init = data.partition(", ")
    files = {script: training(f"from {module} import Bin"), path: DATASET}
    if init:
        files[init] = ""
    assert found(tmp_path, files) == ([path] if meant else [])
