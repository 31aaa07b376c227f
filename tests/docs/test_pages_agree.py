"""The pages tell what the code says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import torch

import antifreeze
from antifreeze._core.inspection.state_diagrams import pages
from antifreeze.doctor.attach import pages as hangs
from antifreeze.doctor.rules import rule_pages as rules

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)#]+)\)")


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


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text and "make test" in text


def test_every_number_of_stats_is_defined() -> None:
    page = (ROOT / "docs" / "waiting.md").read_text()
    names = antifreeze.DataLoader(range(3)).stats()
    missing = [name for name in names if f"`{name}`" not in page]
    assert not missing
