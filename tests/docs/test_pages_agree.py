"""The pages tell what the code says."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import torch

import antifreeze
from antifreeze._core.inspection.state_diagrams import pages
from antifreeze.doctor.attach import pages as hangs
from antifreeze.doctor.rules import rule_pages as rules

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)#]+)\)")
PLACE = re.compile(
    r"`([\w/]+\.py)`(?: \(([^)]*)\))?"
)  # a file, and names in it: `file.py` (`name`)
NAME = re.compile(r"`([A-Za-z_][\w.]*\w)`(?!\.py)")


def test_the_state_pages_are_those_the_tables_give() -> None:
    written = {path.name: path.read_text() for path in (ROOT / "docs" / "states").glob("*.md")}
    assert written == pages(), "run `make docs`"


def test_the_pages_of_hangs_are_those_the_causes_give() -> None:
    written = {path.name: path.read_text() for path in (ROOT / "docs" / "hangs").glob("*.md")}
    assert written == hangs.pages(), "run `make docs`"


def test_the_pages_of_rules_are_those_the_rules_give() -> None:
    written = {path.name: path.read_text() for path in (ROOT / "docs" / "rules").glob("*.md")}
    assert written == rules.pages(), "run `make docs`"


def test_the_migration_page_has_every_argument() -> None:
    page = (ROOT / "docs" / "migration.md").read_text()
    parameters = inspect.signature(torch.utils.data.DataLoader).parameters
    missing = [name for name in parameters if f"`{name}`" not in page]
    assert not missing


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in LINK.findall(page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name} -> {target}")
    assert not broken


def test_the_architecture_page_names_every_part() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    package = ROOT / "src" / "antifreeze"
    top = [p for p in package.iterdir() if p.name not in ("__init__.py", "py.typed", "__pycache__")]
    missing = [p.name for p in top if p.name != "_version.py" and p.name not in page]
    assert not missing


def _rows() -> list[str]:
    """Return the rows of the table "To change ..."."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    section = page.partition("## To change ...")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def _places(row: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the files that a row names, and of each the names that follow it in parentheses."""
    folder = ""
    for name, inside in PLACE.findall(row):
        is_neighbour = "/" not in name and name.startswith("test_")
        path = folder + name if is_neighbour else name
        folder = path.rpartition("/")[0] + "/" if "/" in path else ""
        yield path, [each for each in NAME.findall(inside) if not each.endswith(".py")]


def _defined(tree: ast.AST, path: str = "") -> Iterator[str]:
    """Yield what a file defines: "name", and what is in a class also as "Class.name"."""
    for node in ast.iter_child_nodes(tree):
        names: list[str] = []
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names = [node.id]
        for name in names:
            yield name
            yield f"{path}{name}"
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{path}{node.name}." if isinstance(node, ast.ClassDef) else path
            yield from _defined(node, inner)


def test_the_table_of_changes_names_files_and_functions_that_exist() -> None:
    rows = _rows()
    assert len(rows) > 30
    missing, named = [], 0
    for row in rows:
        for path, names in _places(row):
            places = ROOT / "src" / "antifreeze" / path, ROOT / path
            file = next((each for each in places if each.exists()), None)
            if file is None:
                missing.append(path)
                continue
            defined = set(_defined(ast.parse(file.read_text()))) if names else set()
            missing += [f"{path}: {name}" for name in names if name not in defined]
            named += len(names)
    assert not missing
    assert named > 30


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text and "make test" in text


def test_every_number_of_stats_is_defined() -> None:
    page = (ROOT / "docs" / "waiting.md").read_text()
    names = antifreeze.DataLoader(range(3)).stats()
    missing = [name for name in names if f"`{name}`" not in page]
    assert not missing
