"""Imports go one way: read those of every file and hold them against the rules."""

from __future__ import annotations

import ast
import re
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
        """Return what this file imports, modules of ours as "antifreeze....", once each."""
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
    """Return every module of ours that importing this one's imports leads to."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        module = todo.pop()
        for name in module.imports:
            ours = name.removeprefix("antifreeze.")
            if (module.name, ours) in FOR_TYPES or not name.startswith("antifreeze."):
                continue
            if ours in MODULES and ours not in seen:
                seen.add(ours)
                todo.append(MODULES[ours])
    return seen


def _of(*packages: str) -> list[Module]:
    return [module for module in MODULES.values() if _in(module.name, *packages)]


def test_there_is_something_to_read() -> None:
    assert len(_of("_core")) > 10
    assert "_core.events" in _reached(MODULES["_engine.driver"])
    assert "_processes.backend_protocol" in _reached(MODULES["loader"])
    assert "antifreeze._core.faults" in set(MODULES["errors"].imports)


@pytest.mark.parametrize("module", _of("_core"), ids=lambda module: module.name)
def test_the_core_imports_itself_and_pure_parts_of_the_standard_library(module: Module) -> None:
    for name in module.imports:
        assert name in PURE or _in(name, "antifreeze._core"), f"{module.name} imports {name}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name):
            # Classes are made there, as `dataclasses` makes them.
            allowed = {"exec"} if module.name == "_core.frozen_values" else set()
            assert node.id not in IMPURE_NAMES - allowed, f"{module.name} uses {node.id}"


# A name that stands in annotations only: who -> whose. Nothing is imported where it runs.
FOR_TYPES = {("_reporting.progress.loop", "loader")}


def test_what_is_imported_for_types_alone_is_so() -> None:
    for name, ours in FOR_TYPES:
        checking, others = set[ast.AST](), set[ast.AST]()
        tree = MODULES[name].tree
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                checking |= {*ast.walk(node)}
        others = {node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)} - checking
        last = ours.rpartition(".")[2]
        assert any(isinstance(node, ast.ImportFrom) and node.module == last for node in checking)
        assert not any(getattr(node, "module", None) == last for node in others)


# The rooms, from the innermost: what each is above, and what it may never lead to.
OUTSIDE = ("__main__", "cli", "doctor", "testing")  # they use the others, and none of those them
DECIDES = ("_core.supervisor", "_engine", "loader")
LOADS = ("_loading", "_worker", "data")
STARTS = ("_processes", "integrations")
MAIN_PROCESS = (*DECIDES, *STARTS, "stats")
EVERYTHING_ELSE = (*OUTSIDE, *DECIDES, *LOADS, *STARTS, "_reporting", "_transport", "stats")
# Room -> what its imports may never lead to. What is in a room that has no row of its own is in
# the row of the room around it; a folder or a file in none is an error.
WALLS: dict[str, tuple[str, ...]] = {
    "_core": (
        *(*OUTSIDE, "_engine", "loader", *LOADS, *STARTS, "_reporting", "_transport", "stats"),
        *("_linux", "_torch_internals", "errors", "policies"),
    ),
    "_torch_internals": ("_core", "_linux", "errors", "policies", *EVERYTHING_ELSE),
    "_import_path": ("_core", "_linux", "errors", "policies", *EVERYTHING_ELSE),
    "_linux": ("_torch_internals", "errors", "policies", *EVERYTHING_ELSE),
    "policies": ("_linux", "_torch_internals", "errors", *EVERYTHING_ELSE),
    "data": (
        *(*OUTSIDE, *DECIDES, "_loading", "_worker", *STARTS, "_reporting", "_transport", "stats"),
        *("_core", "_linux", "_torch_internals", "errors", "policies"),
    ),
    "_transport": (*OUTSIDE, *DECIDES, *LOADS, *STARTS, "stats", "errors", "policies"),
    "errors": (*OUTSIDE, *DECIDES, *LOADS, *STARTS, "_transport", "stats", "policies"),
    "stats": (*OUTSIDE, *DECIDES, *LOADS, *STARTS, "_torch_internals"),
    "_reporting": (*OUTSIDE, "_engine", "loader"),
    "_loading": (*OUTSIDE, *MAIN_PROCESS, "_worker"),
    "_worker": (*OUTSIDE, *MAIN_PROCESS),
    "_processes": (*OUTSIDE, *DECIDES, "stats"),
    "_processes.fork_safety": (
        *(*OUTSIDE, *DECIDES, "integrations", "stats", "_reporting.reporter", "errors"),
        *("_processes.process_backend", "_processes.starting"),
    ),
    "_processes.replication": (*OUTSIDE, *DECIDES, "stats", "_processes.process_backend"),
    "_processes.starting": (*OUTSIDE, *DECIDES, "stats", "_processes.process_backend"),
    "_engine": ("loader", *OUTSIDE),
    "loader": OUTSIDE,
    "integrations": OUTSIDE,
    "testing": ("__main__", "cli", "doctor"),
    "doctor": (
        *("__main__", "cli", "testing", "_core.supervisor", "loader", *LOADS, *STARTS, "stats"),
        *("_engine.driver", "_engine.iterator", "_torch_internals", "errors", "policies"),
    ),
    # What is checked is never run, and what checks it knows nothing of loaders.
    "doctor.source": ("_core", "_linux", "_engine", "doctor.rules", "doctor.check"),
    "doctor.rules": ("_core", "_linux", "_engine", "_transport", "doctor.attach", "doctor.check"),
    "doctor.check": ("_core", "_engine", "_transport", "doctor.attach"),
    "doctor.attach": ("doctor.check", "doctor.rules"),
    "cli": ("__main__", "testing"),
    "cli.gpu_check": ("__main__", "testing", "doctor"),
}
IN_NO_ROW = {"__main__", "_version"}  # the command, and a constant
# Frozen values that rooms exchange: no wall is against them, and they lead nowhere.
VALUES = {"_loading.observations"}


@pytest.mark.parametrize("room", WALLS)
def test_imports_go_one_way(room: str) -> None:
    modules = _of(room)
    assert any(len(module.tree.body) > 1 for module in modules), f"{room} is empty or missing"
    for module in modules:
        reached = _reached(module) - VALUES - {name.rpartition(".")[0] for name in VALUES}
        beyond = sorted(name for name in reached if _in(name, *WALLS[room]))
        assert not beyond, f"{module.name} leads to {beyond}"


@pytest.mark.parametrize("name", sorted(VALUES))
def test_values_lead_to_nothing_but_what_values_are_made_of(name: str) -> None:
    assert _reached(MODULES[name]) <= {"_core", "_core.frozen_values"}


def test_no_wall_is_against_a_room_that_is_not_there() -> None:
    for room, beyond in WALLS.items():
        assert [name for name in beyond if name not in MODULES] == [], room
        assert not _in(room, *beyond), f"{room} may not lead to itself"


def _folders() -> list[Path]:
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_dir() and not any(part == "__pycache__" for part in path.parts)
    ]


def test_every_folder_and_every_file_is_in_a_row() -> None:
    names = [".".join(path.relative_to(ROOT).parts) for path in _folders()]
    assert len(names) > 25
    assert [name for name in names if not _in(name, *WALLS)] == []
    assert {name for name in MODULES if not _in(name, *WALLS)} == IN_NO_ROW


# One file for each rule, and for each way to hang, with its page beside it.
CATALOGUES = ("doctor/rules", "doctor/attach/causes")
FILES_OF_A_ROOM = 25
FILES_AT_THE_TOP, FOLDERS_AT_THE_TOP = 12, 13


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


def test_no_room_is_too_large_to_look_over() -> None:
    assert len(_files(ROOT)) <= FILES_AT_THE_TOP
    assert len([path for path in _folders() if path.parent == ROOT]) <= FOLDERS_AT_THE_TOP
    sizes = {path.relative_to(ROOT).as_posix(): len(_files(path)) for path in _folders()}
    assert {*CATALOGUES} <= {*sizes}
    large = {name: size for name, size in sizes.items() if size > FILES_OF_A_ROOM}
    assert {*large} <= {*CATALOGUES}, large


LINES_OF_A_FILE = 500


def test_no_file_is_too_long_to_read() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for path in ROOT.rglob("*.py")
    }
    assert len(lengths) > 100
    assert {name for name, lines in lengths.items() if lines > LINES_OF_A_FILE} == set()


def test_the_driver_knows_the_contract_of_backends_and_no_backend() -> None:
    backends = {name for name in _reached(MODULES["_engine.driver"]) if _in(name, "_processes")}
    assert backends <= {"_processes", "_processes.backend_protocol"}


MAKES_PROCESSES = (
    "integrations.multiprocessing_children",  # makes none: it travels with those of the program
    "_processes",
    "doctor.attach.gather.bounded_subprocess",  # py-spy, and who may be left behind
    "doctor.check.process_pool",  # to read many files
    "cli.gpu_check.bounded_processes",  # a check that hangs must not be the end of the command
)


# Modules with which processes are started, and names of others. Threads are no processes.
STARTERS = (
    *("multiprocessing", "torch.multiprocessing", "subprocess", "pty", "_posixsubprocess"),
    *("concurrent.futures.process", "asyncio.subprocess"),
)
STARTING_NAMES = re.compile(
    r"(os|posix)\.(fork|forkpty|system|popen|posix_spawnp?|spawn[lv]p?e?)"
    r"|concurrent\.futures\.(ProcessPoolExecutor|process)"
    r"|(asyncio\.)?create_subprocess_(exec|shell)|(.+\.)?subprocess_(exec|shell)"
)


def _dotted(node: ast.AST, bound: dict[str, str]) -> str | None:
    """Return the path of a name, as far as an expression is one that was imported."""
    match node:
        case ast.Name(id=name):
            return bound.get(name, name)
        case ast.Attribute(value=value, attr=attribute):
            home = _dotted(value, bound)
            return f"{home or '?'}.{attribute}"
        case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name)), *_]):
            return f"{_dotted(value, bound)}.{name}"
    return None


def starters_in(tree: ast.AST) -> set[str]:
    """Return by which names a file may start processes."""
    bound, found = dict[str, str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                found.add(alias.name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                found.add(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        if path := _dotted(node, bound):
            found.add(path)
    return {name for name in found if _in(name, *STARTERS) or STARTING_NAMES.fullmatch(name)}


def test_processes_are_made_by_backends_alone() -> None:
    assert all(name in MODULES for name in MAKES_PROCESSES)
    for module in MODULES.values():
        if not _in(module.name, *MAKES_PROCESSES):
            assert starters_in(module.tree) == set(), module.name
    for name in MAKES_PROCESSES:
        assert any(starters_in(module.tree) for module in _of(name)), f"{name} makes none"


def test_the_reader_of_starters_sees_each_way_to_start_a_process() -> None:
    for source in (
        "import subprocess",
        "from subprocess import Popen as P",
        "import multiprocessing.pool",
        "from torch import multiprocessing",
        "import torch\ntorch.multiprocessing.spawn(print)",
        "from concurrent.futures import ProcessPoolExecutor",
        "from concurrent import futures\nfutures.ProcessPoolExecutor()",
        "import concurrent.futures as f\nf.ProcessPoolExecutor",
        "from concurrent.futures.process import BrokenProcessPool",
        "import os\nos.fork()",
        "from os import fork",
        "import os as system\nsystem.posix_spawn('a', [], {})",
        "import os\nos.posix_spawnp",
        "import os\nos.spawnvpe(0)",
        "import os\nos.system('a')",
        "import os\nos.popen('a')",
        "import os\ngetattr(os, 'fork')",
        "import asyncio\nasyncio.create_subprocess_exec('a')",
        "import asyncio\nasyncio.create_subprocess_shell('a')",
        "from asyncio import create_subprocess_exec",
        "import asyncio\nasyncio.get_running_loop().subprocess_exec(print)",
        "import pty",
        "import pty as terminal",
    ):
        assert starters_in(ast.parse(source)), source
    for source in (
        "from concurrent.futures import ThreadPoolExecutor",
        "import os\nos.waitpid(1, 0)",
        "import asyncio\nasyncio.run(print)",
        "from . import subprocess_names",
        "TEXT = 'import subprocess'",
    ):
        assert not starters_in(ast.parse(source)), source


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


KERNELS_OWN = "_linux"  # the room in which files of the kernel are read, and its calls are made
KERNEL_PATH = re.compile(r"(?<![\w.])/(?:proc|sys)(?![\w.-])")
# A text with such a path that opens nothing: module and text -> why it is there.
NO_KERNEL_PATHS = {
    ("doctor.attach.causes.file_lock", "/proc/locks: "): "evidence: the table that shows the lock",
    (
        "doctor.attach.gather.collect",
        "did not answer in time, in /proc,",
    ): "a message: why a process could not be looked at",
    (
        "doctor.attach.gather.collect",
        "/proc did not answer in time about process ",
    ): "a message: what is missing from the answer",
}


def _docstrings(tree: ast.AST) -> set[ast.AST]:
    """Return all texts that stand alone as statements: nothing can use them."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def kernel_paths_in(tree: ast.AST) -> set[str]:
    """Return the constants of a file that have a path below /proc or /sys, but for docstrings; of
    an f-string each part by itself."""
    docstrings, found = _docstrings(tree), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in docstrings:
            value = node.value
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            if isinstance(text, str) and KERNEL_PATH.search(text):
                found.add(text)
    return found


def test_files_of_the_kernel_are_named_in_their_room_alone() -> None:
    found = {
        (module.name, text)
        for module in MODULES.values()
        if not _in(module.name, KERNELS_OWN)
        for text in kernel_paths_in(module.tree)
    }
    assert found == {*NO_KERNEL_PATHS}
    readers = [module.name for module in _of(KERNELS_OWN) if kernel_paths_in(module.tree)]
    assert len(readers) > 5


def test_the_reader_of_kernel_paths_sees_each_way_to_write_one() -> None:
    for source in (
        "open('/proc/self/maps')",
        "open(f'/proc/{pid}/status')",
        "os.listdir('/proc')",
        "os.path.join('/proc', 'self')",
        "Path('/proc')",
        "open(b'/proc/self/maps')",
        "read('/sys/fs/cgroup/memory.max')",
        "PATHS = {'maps': '/proc/self/maps'}",
        "def f(path='/sys'): pass",
        "f'{root}' '/proc/self'",
    ):
        assert kernel_paths_in(ast.parse(source)), source
    for source in (
        "'''A page about /proc/self/maps.'''",
        "def f():\n    'Read /proc/self/maps.'\n    return 1",
        "open('copies/proc/maps')",
        "NAMES = ('multiprocessing/process.py', '/processes', '/system')",
        "x = 1  # not /proc/self/maps",
    ):
        assert not kernel_paths_in(ast.parse(source)), source


# Who loads a library, and which: the C library stands in one table.
LOADS_LIBRARIES = {
    "_linux.libc",
    "_processes.fork_safety.native_thread_pools",  # OpenMP and OpenBLAS, where they are loaded
    "_processes.replication.reducers",  # loads what a dataset had loaded, in another process
}


def _names_loader(node: ast.AST) -> bool:
    loaders = ("CDLL", "PyDLL", "cdll", "pydll", "pythonapi", "LoadLibrary")
    name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "name", None)
    return name in loaders


def test_functions_of_the_c_library_stand_in_one_table() -> None:
    found = {
        module.name
        for module in MODULES.values()
        if any(_names_loader(node) for node in ast.walk(module.tree))
    }
    assert found == LOADS_LIBRARIES
