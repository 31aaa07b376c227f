"""A wheel has every file of the package that is not Python."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "antifreeze"


def test_every_file_that_is_not_python_is_package_data() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = settings["package-data"]["antifreeze"]
    named = {pattern: set(PACKAGE.glob(pattern)) for pattern in patterns}
    assert all(named.values()), "a pattern that names no file"
    there = {
        path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert there and there == set().union(*named.values())
