"""What gathers and what analyses are apart: what decides reads facts, and touches nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from antifreeze.doctor import attach

ROOM = Path(next(iter(attach.__path__)))
PURE = [*(ROOM / "analyse").glob("*.py"), *(ROOM / "causes").glob("[!_]*.py"), ROOM / "diagnose.py"]
# How a page is read, and nobody who analyses reads one.
READS_PAGES = ("base.py", "page.py")
STANDARD = {
    *(
        "__future__",
        "collections",
        "contextlib",
        "dataclasses",
        "enum",
        "functools",
        "itertools",
        "math",
    ),
    *("pathlib.PurePath", "re", "signal", "typing"),
}
OWN = ("_core.native_pool_names", "_linux.syscalls", "_transport.own_frames", "_transport")


def _imports(path: Path) -> set[str]:
    """Return the modules that a file imports; those of ours by their name below the package."""
    package = ["antifreeze", "doctor", "attach", *path.relative_to(ROOM).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            paths = {f"{module}.{each.name}" for each in node.names} if module == "pathlib" else {}
            found |= paths or {module.partition(".")[0]}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1]
            found.add(".".join([*above, *filter(None, [node.module])]))
    return found


@pytest.mark.parametrize("path", sorted(PURE), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_analyses_imports_nothing_that_gathers(path: Path) -> None:
    allowed = STANDARD | ({"pathlib.Path"} if path.name in READS_PAGES else set())
    rooms = tuple(f"antifreeze.doctor.{each}" for each in ("attach.analyse", "attach.causes"))
    own = {f"antifreeze.{each}" for each in OWN}
    own |= {"antifreeze.doctor.findings", "antifreeze.doctor.attach.facts"}
    wrong = {
        each for each in _imports(path) if each not in allowed | own and not each.startswith(rooms)
    }
    assert not wrong


def test_the_rooms_are_not_empty() -> None:
    assert len(PURE) > 50
    assert len([*(ROOM / "gather").glob("[!_]*.py")]) > 10


def test_there_are_not_too_many_files_in_a_room() -> None:
    for room in (ROOM, ROOM / "gather", ROOM / "analyse"):
        assert len([*room.iterdir()]) <= 25, room
