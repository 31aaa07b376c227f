"""What is recognized by name in stacks and in event logs exists, under that name."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import antifreeze
from antifreeze._transport import own_frames
from antifreeze._transport.own_frames import OwnClass, OwnFrame, OwnProcess
from antifreeze.doctor.attach.analyse import library_files

ABOVE = Path(antifreeze.__file__).parent.parent
NAMED = OwnFrame | OwnClass | OwnProcess
ROOMS = [
    each.name if each.suffix else f"{each.name}/"
    for each in (ABOVE / "antifreeze").iterdir()
    if each.name.startswith("_")
]
OWN_PATH = re.compile(rf"antifreeze/|(?:{'|'.join(map(re.escape, ROOMS))})")


def _constants() -> Iterator[str | NAMED]:
    for name, value in vars(own_frames).items():
        if name.startswith("__") or name in ("ABOVE_PACKAGE", "HERE"):  # of this machine
            continue
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, str | NAMED):
                yield each


PATHS = sorted({each for each in _constants() if isinstance(each, str) and "/" in each})
NAMES = sorted({each for each in _constants() if isinstance(each, NAMED)}, key=repr)


def test_there_are_names_of_each_kind() -> None:
    assert len(PATHS) >= 8
    assert {type(each) for each in NAMES} == {OwnFrame, OwnClass, OwnProcess}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_that_of_a_file_or_of_a_folder_with_modules(path: str) -> None:
    assert path.startswith(own_frames.PACKAGE)
    place = ABOVE / path
    assert own_frames.installed_path(path).rstrip("/") == str(place)
    if path.endswith("/"):
        assert list(place.glob("*.py")), path
    else:
        assert place.is_file(), path


@pytest.mark.parametrize("named", NAMES, ids=repr)
def test_a_name_stands_in_its_file(named: NAMED) -> None:
    nodes = [*ast.walk(ast.parse((ABOVE / named.file).read_text()))]
    match named:
        case OwnFrame(function=name):
            found = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert name in found
        case OwnClass(name=name):
            assert name in {each.name for each in nodes if isinstance(each, ast.ClassDef)}
        case OwnProcess(name=name):
            texts = [each.value for each in nodes if isinstance(each, ast.Constant)]
            assert any(isinstance(each, str) and each.startswith(name) for each in texts)
            assert name.startswith(own_frames.PROCESSES)


def test_no_other_module_of_attach_names_our_own_files() -> None:
    modules = sorted((ABOVE / "antifreeze" / "doctor" / "attach").rglob("*.py"))
    assert len(modules) > 50
    found = [
        f"{module.name}:{node.lineno}: {node.value!r}"
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and OWN_PATH.match(node.value)
    ]
    assert not found


@pytest.mark.parametrize(
    "file", [each for name, each in vars(library_files).items() if name.isupper()]
)
def test_a_file_of_python_or_of_torch_exists_in_the_ones_that_are_here(file: str) -> None:
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.origin is not None
    above = (
        Path(torch.origin).parent.parent if file.startswith("torch/") else Path(os.__file__).parent
    )
    assert (above / file).is_file()
