"""All checked files together: which file a name means, and what a class descends from."""

from __future__ import annotations

import ast
import functools
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

from . import library_names
from .file_summary import LoaderFact, Summary, Workers
from .import_to_file import ImportResolver, last_part
from .syntax.module import MOST_NAME_STEPS, Module, parse_module
from .syntax.scopes import FunctionNode

# Parsed modules from one file that is looked at to the next: some megabytes each.
MOST_KEPT_MODULES = 48
MOST_MODULES_PER_FILE = 300  # parsed for one file; what it names beyond these is not known


class Project:
    """The summaries of all files, and their trees when asked for.

    While one file is looked at, its own tree and those it led to stay: nodes of them are compared
    by identity, so none may be parsed a second time. `visit` lets go of all but `KEPT`.
    """

    def __init__(
        self,
        summaries: Iterable[Summary] = (),
        read: Callable[[Path], str] | None = None,
        python: tuple[int, int] | None = None,
        root: Path | None = None,
    ) -> None:
        self.python = python  # the oldest Python the project runs on, if it says so
        self._read = read or (lambda path: path.read_text(encoding="utf-8", errors="replace"))
        self._modules: OrderedDict[Path, Module | None] = OrderedDict()
        self._by_path: dict[Path, Summary] = {each.path: each for each in summaries}
        self._imports = ImportResolver(self._by_path.values(), root)
        # Names are asked for again and again, from the same folders.
        self._canonical: dict[tuple[str, str], str] = {}
        self._parted: dict[tuple[str, str], tuple[Summary | None, list[str]]] = {}
        self._ancestors: dict[tuple[str, str], tuple[str, ...]] = {}
        self._facts: dict[tuple[str, Path | None], list[LoaderFact]] | None = None
        self._bases: set[str] | None = None
        self._importers: dict[str, list[tuple[Summary, str]]] | None = None
        self._folders: dict[Path, str] = {}

    def __repr__(self) -> str:
        return f"Project({len(self._by_path)} files)"

    @property
    def summaries(self) -> Iterable[Summary]:
        return self._by_path.values()

    def summary_of(self, path: Path) -> Summary | None:
        return self._by_path.get(path)

    # ---- modules ---------------------------------------------------------------------------------

    def visit(self, module: Module) -> None:
        """Begin to look at a file: let go of what the files before it led to, but for a few."""
        self._modules[module.path] = module
        self._modules.move_to_end(module.path)
        while len(self._modules) > MOST_KEPT_MODULES:
            self._modules.popitem(last=False)

    def load(self, summary: Summary) -> Module | None:
        """Return the tree of another file; None if it cannot be read any more, or the file that is
        looked at has led to too many."""
        if summary.path not in self._modules:
            if len(self._modules) >= MOST_MODULES_PER_FILE:
                return None
            try:
                text = self._read(summary.path)
                module = parse_module(
                    summary.path,
                    summary.name,
                    text,
                    is_package=summary.is_package,
                    is_notebook=summary.is_notebook,
                    is_whole=summary.is_whole,
                )
            except (OSError, SyntaxError, ValueError, RecursionError):
                self._modules[summary.path] = None
                return None
            self._modules[summary.path] = module
        self._modules.move_to_end(summary.path)  # the last are kept for the next file
        return self._modules[summary.path]

    def module_of(self, node: ast.AST) -> Module | None:
        """Return the module that a node is of, among those parsed."""
        for module in reversed(self._modules.values()):
            if module is not None and module.holds(node):
                return module
        return None

    def find_module(self, name: str, near: Path) -> Summary | None:
        """Return the file that `import name` means in a file at `near`."""
        return self._imports.find(name, self._folder(near))

    # ---- names -----------------------------------------------------------------------------------

    def canonical(self, name: str, near: Path) -> str:
        """Resolve a name to where it is defined, through the re-exports of the project's files."""
        key = (name, self._folder(near))
        if key not in self._canonical:
            self._canonical[key] = self._follow(name, near)
        return self._canonical[key]

    def _folder(self, near: Path) -> str:
        if near not in self._folders:
            self._folders[near] = os.path.dirname(os.path.abspath(near))
        return self._folders[near]

    def _follow(self, name: str, near: Path) -> str:
        for _ in range(MOST_NAME_STEPS):
            name = library_names.canonical_spelling(name)
            if name in library_names.LOADING_CLASSES:
                return name
            summary, rest = self._split(name, near)
            if summary is None:
                return name
            if not rest:
                return summary.name
            target = self._step(summary, rest[0])
            if target is None:
                return ".".join([summary.name, *rest])
            name, near = ".".join([target, *rest[1:]]), summary.path
        return name

    def _step(self, summary: Summary, name: str) -> str | None:
        if name in summary.classes or name in summary.functions:
            return None
        if name in summary.names:
            return summary.names[name]
        for star in summary.stars:
            other = self.find_module(star, summary.path)
            if other is not None and (
                name in other.classes or name in other.functions or name in other.names
            ):
                return f"{other.name}.{name}"
        return None

    def _split(self, name: str, near: Path) -> tuple[Summary | None, list[str]]:
        """Split a name into the longest module of the project and the rest."""
        key = (name, self._folder(near))
        if key not in self._parted:
            self._parted[key] = self._part(name, near)
        return self._parted[key]

    def _part(self, name: str, near: Path) -> tuple[Summary | None, list[str]]:
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            if "<locals>" in parts[:end]:
                continue
            found = self.find_module(".".join(parts[:end]), near)
            if found is not None:
                return found, parts[end:]
        return None, parts

    # ---- classes and functions -------------------------------------------------------------------

    def bases(self, name: str, near: Path) -> tuple[str, ...] | None:
        """Return the bases of a class of the project, None if it is none."""
        summary, rest = self._split(name, near)
        if summary is None or ".".join(rest) not in summary.classes:
            return None
        bases = summary.classes[".".join(rest)]
        return tuple(self.canonical(each, summary.path) for each in bases)

    def ancestors(self, name: str, near: Path) -> tuple[str, ...]:
        """Return all that a class descends from, itself first, the nearest first."""
        key = (name, self._folder(near))
        if key not in self._ancestors:
            self._ancestors[key] = self._all_bases(name, near)
        return self._ancestors[key]

    def _all_bases(self, name: str, near: Path) -> tuple[str, ...]:
        seen: dict[str, None] = {}
        queue = [self.canonical(name, near)]
        while queue and len(seen) < 100:
            here = queue.pop(0)
            if here not in seen:
                seen[here] = None
                queue += self.bases(here, near) or ()
        return tuple(seen)

    def definition(
        self, name: str, near: Path
    ) -> tuple[Module, ast.ClassDef | FunctionNode] | None:
        """Return the class or function of the project that a name means, with its module."""
        name = self.canonical(name, near)
        summary, rest = self._split(name, near)
        if summary is None or not rest:
            return None
        module = self.load(summary)
        if module is None:
            return None
        here: ast.AST = module.tree
        for part in rest:
            if part == "<locals>":
                continue
            inside = ast.walk(here) if "<locals>" in rest else iter(getattr(here, "body", ()))
            if here is module.tree and "<locals>" not in rest:
                inside = iter(module.defined(part))
            found = [
                each
                for each in inside
                if isinstance(each, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
                and each.name == part
                and each is not here
            ]
            if not found and here is module.tree:  # under `if` or `try`
                found = [
                    binding.node
                    for binding in module.scopes.top.names.get(part, [])
                    if isinstance(
                        binding.node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
                    )
                ]
            if not found:
                return None
            here = found[-1]
        assert isinstance(here, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        return module, here

    # ---- the program as a whole ------------------------------------------------------------------

    def loaders_of(self, dataset: str, path: Path) -> list[LoaderFact]:
        """Return what is known of all loaders that load a dataset class, wherever they are. `path`:
        of its file, since many folders may have a `dataset.py` with a class of that name."""
        if self._facts is None:
            self._facts = {}
            for summary in self.summaries:
                for fact in summary.loaders:
                    name = self.canonical(fact.dataset, summary.path)
                    home, _ = self._split(name, summary.path)
                    key = name, home.path if home is not None else None
                    self._facts.setdefault(key, []).append(fact)
        return self._facts.get((dataset, path), [])

    def importers(self, path: Path) -> list[Summary]:
        """Return the files that import a file, or a name of it."""
        mine = self._by_path.get(path)
        if mine is None:
            return []
        if self._importers is None:
            self._importers = {}
            for each in self.summaries:
                for name in _beginnings(each.imports):
                    self._importers.setdefault(last_part(name), []).append((each, name))
        found = {
            each.path: each
            for each, name in self._importers.get(last_part(mine.name), [])
            if each is not mine and self.find_module(name, each.path) is mine  # no namesake
        }
        return list(found.values())

    def any_file_calls(self, method: str) -> bool:
        """Whether any file has a call `x.method(...)`."""
        return any(method in each.method_calls for each in self.summaries)

    @property
    def has_epochs(self) -> bool:
        """Whether any file has a loop over epochs: it is a program, not only a library."""
        return any(each.has_epochs for each in self.summaries)

    @functools.cached_property
    def any_file_collates(self) -> bool:
        """Whether any loader has a collate function of its own."""
        return any(each.has_collate for each in self.summaries)

    def any_file_sets(self, attribute: str) -> bool:
        """Whether any file has `x.attribute = ...`, where x is not `self`."""
        return any(attribute in each.stores for each in self.summaries)

    def has_subclasses(self, name: str) -> bool:
        """Whether a class of the project descends from this one."""
        if self._bases is None:
            self._bases = {
                self.canonical(base, summary.path)
                for summary in self.summaries
                for bases in summary.classes.values()
                for base in bases
            }
        return name in self._bases


def _beginnings(names: Iterable[str]) -> set[str]:
    """Return names and what they begin with: a.b.c, a.b, a."""
    found: set[str] = set()
    for name in names:
        while name and name not in found:
            found.add(name)
            name = name.rpartition(".")[0]
    return found


__all__ = ["Project", "Workers"]
