"""Imports go one way: read those of every file and hold them against the rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import antifreeze

ROOT = Path(antifreeze.__file__).parent
PURE = {
    *("__future__", "abc", "array", "bisect", "collections", "collections.abc", "contextlib"),
    *("dataclasses", "enum", "functools", "heapq", "itertools", "math", "operator", "struct"),
    "typing",
}
IMPURE_NAMES = {"open", "print", "input", "exec", "eval", "__import__"}


@dataclass(frozen=True)
class Module:
    name: str  # below the package: "_core.worker_slots", "loader"
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(), str(self.path))

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """Give what this file imports, its own package's modules as "antifreeze....", once each."""
        return tuple(dict.fromkeys(self._imports()))

    def _imports(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                for alias in node.names:
                    full = f"{base}.{alias.name}"
                    yield full if full in NAMES else base

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = ["antifreeze", *self.name.split(".")]
        if self.path.name != "__init__.py":
            package.pop()
        package = package[: len(package) - (node.level - 1)]
        return ".".join([*package, *([node.module] if node.module else [])])


def _modules() -> Iterator[Module]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        if parts:
            yield Module(".".join(parts), path)


MODULES = {module.name: module for module in _modules()}
NAMES = {f"antifreeze.{name}" for name in MODULES}


def _in(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _reached(start: Module) -> set[str]:
    """Give every module of ours that importing this one's imports leads to."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        for name in todo.pop().imports:
            ours = name.removeprefix("antifreeze.")
            if name.startswith("antifreeze.") and ours in MODULES and ours not in seen:
                seen.add(ours)
                todo.append(MODULES[ours])
    return seen


def _of(*packages: str) -> list[Module]:
    return [module for module in MODULES.values() if _in(module.name, *packages)]


def test_there_is_something_to_read() -> None:
    assert len(_of("_core")) > 10
    assert "_core.events" in _reached(MODULES["_engine.driver"])
    assert "_processes.backend" in _reached(MODULES["loader"])
    assert "antifreeze._core.faults" in set(MODULES["errors"].imports)


@pytest.mark.parametrize("module", _of("_core"), ids=lambda module: module.name)
def test_the_core_imports_itself_and_pure_parts_of_the_standard_library(module: Module) -> None:
    for name in module.imports:
        assert name in PURE or _in(name, "antifreeze._core"), f"{module.name} imports {name}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name):
            # Classes are made there, as `dataclasses` makes them.
            allowed = {"exec"} if module.name == "_core.messages" else set()
            assert node.id not in IMPURE_NAMES - allowed, f"{module.name} uses {node.id}"


# who -> what its imports may never lead to
WALLS = {
    "_core": [
        "_engine.driver",
        "_processes",
        "_worker",
        "_transport",
        "_linux.clock",
        "loader",
        "errors",
    ],
    "_transport": ["_core.supervisor", "_engine.driver", "_processes", "_worker", "loader"],
    "_worker": [
        "_core.supervisor",
        "_engine.driver",
        "_processes",
        "loader",
        "doctor",
        "view",
        "testing",
    ],
    "_processes": ["_core.supervisor", "_engine.driver", "loader", "doctor", "view", "testing"],
    "_engine.driver": ["loader", "doctor", "view", "testing"],
    "loader": ["doctor", "view", "testing", "cli", "cli.gpu_check"],
    "doctor": ["_core.supervisor", "_engine.driver", "_processes", "loader", "cli.gpu_check"],
    "view": ["_core.supervisor", "_engine.driver", "_processes", "loader"],
}


@pytest.mark.parametrize("package", WALLS)
def test_imports_go_one_way(package: str) -> None:
    for module in _of(package):
        beyond = sorted(name for name in _reached(module) if _in(name, *WALLS[package]))
        assert not beyond, f"{module.name} leads to {beyond}"


def test_the_driver_knows_the_contract_of_backends_and_no_backend() -> None:
    backends = {name for name in _reached(MODULES["_engine.driver"]) if _in(name, "_processes")}
    assert backends <= {"_processes", "_processes.backend"}


MAKES_PROCESSES = (
    "integrations.multiprocessing_children",  # makes none: it travels with those of the program
    "_processes",
    "_transport.worker_slabs",
    "doctor.attach.gather.bounded_subprocess",  # py-spy, and who may be left behind
    "doctor.check.process_pool",  # to read many files
    "cli.gpu_check.bounded_processes",  # a check that hangs must not be the end of the command
)


def test_processes_are_made_by_backends_alone() -> None:
    for module in MODULES.values():
        if _in(module.name, *MAKES_PROCESSES):
            continue
        for name in module.imports:
            about_processes = _in(name, "multiprocessing", "torch.multiprocessing", "subprocess")
            assert not about_processes, f"{module.name} imports {name}"
        for used in _attributes_of(module, "os"):
            assert used not in {"fork", "forkpty", "posix_spawn"}, f"{module.name}: os.{used}"


# It is for people: what is decided, counted or named comes from events, commands and tickets.
READS_EVENT_LOG = {
    "_engine.attach_server",  # shows its last entries to whoever asks from outside
    "_engine.driver",  # holds it
    "_engine.iterator",  # copies it for `attach_server`
}
WRITES_EVENT_LOG = "_core.supervisor"


def test_the_event_log_is_written_by_one_module_and_read_for_people_alone() -> None:
    log = "antifreeze._core.inspection.event_log"
    assert "_core.inspection.event_log" in MODULES
    importers = {module.name for module in MODULES.values() if log in module.imports}
    assert importers - {WRITES_EVENT_LOG} <= READS_EVENT_LOG
    touchers = {
        module.name
        for module in MODULES.values()
        if any(_is_event_log(node) for node in ast.walk(module.tree))
    }
    assert touchers == {WRITES_EVENT_LOG, *READS_EVENT_LOG}


def _is_event_log(node: ast.AST) -> bool:
    """Whether this takes the event log of a supervisor or driver, or its entries."""
    if isinstance(node, ast.Constant):
        return node.value == "event_log"  # for `getattr`
    return isinstance(node, ast.Attribute) and node.attr in ("event_log", "latest_events")


def test_the_supervisor_only_writes_its_event_log() -> None:
    uses = [
        node.attr
        for node in ast.walk(MODULES[WRITES_EVENT_LOG].tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "event_log"
    ]
    assert sorted(uses) == ["is_whole", "record"]


def test_one_file_reads_a_clock() -> None:
    readers = {
        module.name
        for module in MODULES.values()
        if {"time", "datetime"} & {name.split(".")[0] for name in module.imports}
    }
    assert readers == {"_linux.clock"}


def _attributes_of(module: Module, name: str) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == name
        ):
            yield node.attr
