"""Each cause has a page beside it; a page that is not whole is refused, with the file and line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import antifreeze
from antifreeze.doctor.attach import causes
from antifreeze.doctor.attach.causes import all_causes
from antifreeze.doctor.attach.causes.page import Page, PageError, parse_page, read_page

ROOT = Path(__file__).parents[2]
FOLDER = Path(next(iter(causes.__path__)))
WHOLE = """# It hangs

It waits
for itself.

## How we can tell

It does not move.

## To get out now

End it.

## To prevent it

Do not wait.
"""


def test_each_cause_has_a_page_and_each_page_a_cause() -> None:
    names = {each.name.replace("-", "_") for each in all_causes()}
    assert len(names) > 40
    assert {path.stem for path in FOLDER.glob("*.md")} == names


def test_a_module_has_one_cause_by_its_own_name() -> None:
    for cause in all_causes():
        assert cause.find.__module__.rpartition(".")[2] == cause.name.replace("-", "_")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_is_whole_and_its_lines_are_short(path: Path) -> None:
    page = read_page(path)
    assert not page.title.endswith(".")
    assert max(map(len, path.read_text().split("\n"))) <= 100


def test_lines_of_a_paragraph_are_joined() -> None:
    assert parse_page(WHOLE, "page.md") == Page(
        "It hangs", "It waits for itself.", "It does not move.", "End it.", "Do not wait."
    )


@pytest.mark.parametrize(
    ("was", "now", "error"),
    [
        ("# It hangs\n", "It hangs\n", "page.md:1: the first line is no title"),
        ("# It hangs\n", "#  \n", "page.md:1: the first line is no title"),
        (WHOLE, "", "page.md:1: the first line is no title"),
        ("It waits\nfor itself.\n", "", "page.md:1: there is no text below"),
        ("End it.", "", "page.md:10: there is no text below"),
        ("Do not wait.", "", "page.md:14: there is no text below"),
        ("Do not wait.", "Do not.\n\nWait.", "page.md:17: the text of a section is one paragraph"),
        ("## To prevent it\n\nDo not wait.\n", "", "the section '## To prevent it' is missing"),
        ("## To prevent it", "## To avoid it", "page.md:14: the heading '## To avoid it' is unk"),
        ("## To prevent it", "### To prevent it", "page.md:14: the heading '### To prevent it' is"),
        ("## To prevent it", "## To get out now", "page.md:14: .* is not in its place"),
        ("## How we can tell\n\nIt does not move.\n", "", "page.md:7: .* is not in its place"),
    ],
)
def test_a_page_that_is_not_whole_is_refused(was: str, now: str, error: str) -> None:
    assert was in WHOLE
    with pytest.raises(PageError, match=error):
        parse_page(WHOLE.replace(was, now), "page.md")


def test_the_pages_are_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    package = Path(antifreeze.__file__).parent
    patterns = settings["tool"]["setuptools"]["package-data"]["antifreeze"]
    shipped = {path for pattern in patterns for path in package.glob(pattern)}
    assert {*FOLDER.glob("*.md")} <= shipped
