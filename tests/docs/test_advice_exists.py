"""Advice names only what exists: commands, their options, functions, arguments and their values.

All strings of the package are read, and all pages. A name of another library that a page speaks of
is listed here, so that a name that nobody knows is a mistake of ours.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import antifreeze
from antifreeze import DataLoader, policies
from antifreeze.cli import attach, check, explain, platform, run, scan

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "antifreeze"
# Files whose strings are shown to users: there an argument is looked for without backticks, too.
# (Bars have names with an equals sign of their own.)
ROOMS = ("_reporting", "_processes", "_loading", "_worker", "doctor/attach/causes")
TELLS = [
    SOURCE / "errors.py",
    SOURCE / "_engine" / "arguments.py",
    SOURCE / "_engine" / "iterator.py",
    *(
        path
        for room in ROOMS
        for end in ("py", "md")
        for path in (SOURCE / room).rglob(f"*.{end}")
        if path.parent.name != "progress"
    ),
]
# Arguments and variables of others.
FOREIGN = frozenset(
    {
        *("add_dist_sampler", "authkey", "daemon", "device", "dtype", "file", "force", "id"),
        *("frozen_default", "maxlen", "maxsize", "mmap_mode", "non_blocking", "out", "stdout"),
        *("random_state", "requires_grad", "stderr", "strategy", "tracker_fd"),
        *("use_multi_epochs_loader", "use_stateful_dataloader", "limit", "capture_output"),
        *("lock", "mode", "readonly", "retrans", "size", "stdin", "timeo", "uri"),
    }
)
ATTRIBUTE = re.compile(r"(?<![\w./-])antifreeze\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?!\.?\w*\.)")
COMMAND = re.compile(r"`antifreeze ([a-z][^`]*)`|^(?:\$ )antifreeze ([a-z].*)$", re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
ARGUMENT = re.compile(r"(?<![\w.{\"'\[-])([a-z_][a-z_0-9]*)=(?![={])(\"[^\"{}]*\"|'[^'{}]*'|\w*)")
LOADER = re.compile(r"`loader\.([a-z_]+)")


def _strings(path: Path) -> Iterator[str]:
    """Yield the strings of a file, with {} for what is put into them."""
    tree = ast.parse(path.read_text())
    inner = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [each.value if isinstance(each, ast.Constant) else "{}" for each in node.values]
            yield "".join(map(str, parts))
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner
        ):
            yield node.value


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return all that is told to users, each with its file."""
    found = [
        (str(path.relative_to(ROOT)), text)
        for path in sorted(SOURCE.rglob("*.py"))
        for text in _strings(path)
    ]
    pages = [
        ROOT / "README.md",
        *sorted(SOURCE.rglob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    return (*found, *((str(path.relative_to(ROOT)), path.read_text()) for path in pages))


def _exists(name: str) -> bool:
    thing: Any = antifreeze
    path = "antifreeze"
    for part in name.split("."):
        path += f".{part}"
        if not hasattr(thing, part):
            try:
                importlib.import_module(path)
            except ImportError:
                return False
        thing = getattr(thing, part)
    return True


def test_functions_and_classes_that_are_named_exist() -> None:
    named = {(match[1], file) for file, text in texts() for match in ATTRIBUTE.finditer(text)}
    assert len({name for name, _ in named}) > 10
    tables = {"check", "check.per"}  # of pyproject.toml: [tool.antifreeze.check]
    missing = {(name, file) for name, file in named if name not in tables and not _exists(name)}
    assert not missing


@cache
def _verbs() -> dict[str, argparse.ArgumentParser]:
    verbs = argparse.ArgumentParser().add_subparsers()
    for each in (attach, check, explain, platform, run, scan):
        each.add_to(verbs)
    return dict(verbs.choices)


def test_commands_that_are_named_exist_and_have_their_options() -> None:
    wrong, seen = set(), set()
    for file, text in texts():
        for match in COMMAND.finditer(text):
            line = (match[1] or match[2]).partition("    ")[0].partition(" #")[0]
            try:
                verb, *words = shlex.split(line)
            except ValueError:  # a part of a sentence
                verb, *words = line.split()
            seen.add(verb)
            if verb not in _verbs():
                wrong.add((file, line))
                continue
            known = _verbs()[verb]._option_string_actions
            script = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
            own = words[:script] if verb == "run" else words  # what follows is the script's
            options = [word.partition("=")[0] for word in own if word.startswith("--")]
            wrong |= {(file, line) for option in options if option not in known}
    assert len(seen) >= 5
    assert not wrong


@cache
def _arguments() -> frozenset[str]:
    taken: list[Callable[..., Any]] = [DataLoader.__init__, policies.Budget, policies.Policy]
    taken += [policies.raising, policies.replacing, policies.skipping]
    return frozenset(name for each in taken for name in inspect.signature(each).parameters)


def _named_arguments() -> Iterator[tuple[str, str, str]]:
    """Yield arguments with their values and files: in backticks, or in what is said to users."""
    tell = {str(path.relative_to(ROOT)) for path in TELLS}
    assert len(tell) > 30
    for file, text in texts():
        places = [text] if file in tell else SPAN.findall(text)
        for place in places:
            for name, value in ARGUMENT.findall(place):
                yield name, value, file


def test_arguments_that_are_named_exist() -> None:
    named = set(_named_arguments())
    assert {"on_error", "num_workers", "sample_timeout"} <= {name for name, _, _ in named}
    unknown = {(name, file) for name, _, file in named if name not in _arguments() | FOREIGN}
    assert not unknown


FILES = ("quarantine", "fault_log")  # whose values are made on the pages
VALUE = re.compile(r"\"\w+\"|'\w+'|[0-9]+|True|False|None")
NAMED = sorted(
    {
        (name, value)
        for name, value, _ in _named_arguments()
        if name in inspect.signature(DataLoader.__init__).parameters
        and name not in FILES
        and VALUE.fullmatch(value)
    }
)


@pytest.mark.parametrize(("name", "value"), NAMED)
def test_values_that_are_named_are_taken(name: str, value: str) -> None:
    others: dict[str, Any] = {}
    if name in ("persistent_workers", "prefetch_factor", "timeout", "multiprocessing_context"):
        others["num_workers"] = 1
    DataLoader([1, 2, 3], **others, **{name: ast.literal_eval(value)})


def test_what_is_named_of_a_loader_exists() -> None:
    loader: Any = DataLoader([1, 2, 3])
    named = {(match, file) for file, text in texts() for match in LOADER.findall(text)}
    assert {"faults", "explain"} <= {name for name, _ in named}
    torchs = {"load_state_dict"}  # of StatefulDataLoader, which AF211 is about
    missing = {each for each in named if not hasattr(loader, each[0]) and each[0] not in torchs}
    assert not missing
