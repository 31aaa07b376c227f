"""The summary of a file that other files need: small, frozen, and sent between processes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from .syntax.module import Module
from .syntax.scopes import Kind

# By text, not by tree: most files are read shallowly. Each takes one walk over the text, whatever
# is in it: a line may have a megabyte.
_METHOD = re.compile(r"\.(\w+)\(")
_EPOCHS = re.compile(r"^[ \t\f]*(?:for|while)\b[^\n]*epoch", re.MULTILINE | re.IGNORECASE)
_SCRIPT = re.compile(r"""^if[ (]+__name__ ?== ?["']__main__""", re.MULTILINE)
_STORE = re.compile(r"(?<!self)\.(\w+)[ \t]*([:,]|(?:[-+*/|&@%^]|\*\*|//|<<|>>)?=)(?!=)")


class Workers(Enum):
    """Whether a loader has workers."""

    NONE = "none"  # 0, or not given
    LIKELY = "likely"  # a number is given that only the running program knows
    SOME = "some"

    @property
    def any(self) -> bool:
        return self is not Workers.NONE


@dataclass(frozen=True, slots=True)
class LoaderFact:
    """A loader somewhere, as the files of its dataset see it."""

    dataset: str  # the qualified name of its class
    workers: Workers
    ours: bool
    has_collate: bool
    has_worker_init: bool = False
    has_timeout: bool = False  # it gives up waiting for a worker some day
    single: bool = False  # it has one worker, no more
    start_method: str = ""  # of its workers: spawn, forkserver, fork; '' if the source does not say


@dataclass(frozen=True, slots=True)
class Summary:
    """One file."""

    path: Path
    name: str
    is_package: bool = False
    names: dict[str, str] = field(default_factory=dict)  # imported or other names, at the top
    stars: tuple[str, ...] = ()
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # with bases; "?": not known
    functions: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()  # all modules, wherever they are imported
    method_calls: frozenset[str] = frozenset()  # `x.name(...)`: the names
    stores: frozenset[str] = frozenset()  # `x.name = ...`, where x is not self: the names
    has_collate: bool = False  # it speaks of `collate_fn=`
    has_epochs: bool = False  # it has a loop that speaks of epochs
    is_script: bool = False  # it asks whether it is the program that is run
    loaders: tuple[LoaderFact, ...] = ()
    distributed: str = ""  # what shows that the program has several ranks; empty: nothing
    start_method: str = ""  # the one it sets for all
    is_notebook: bool = False
    is_whole: bool = True  # as of the module
    is_repaired: bool = False  # it was not Python before parts of it were left out
    mentions_data_loading: bool = False  # it speaks of loaders, datasets or ranks

    def imports_any(self, *tops: str) -> bool:
        """Whether one of these packages is imported, or a part of it."""
        return any(
            each == top or each.startswith(top + ".") for each in self.imports for top in tops
        )


def summarise(module: Module, *, is_package: bool = False) -> Summary:
    """Summarise all but the loaders, which take a view (`view.summary`). A module that was read
    shallowly will do."""
    names: dict[str, str] = {}
    for name, bindings in module.scopes.top.names.items():
        for binding in bindings:
            if binding.kind is Kind.IMPORT:
                names[name] = binding.qualified
                break
            if binding.kind is Kind.ASSIGNED and isinstance(
                binding.value, (ast.Name, ast.Attribute)
            ):
                target = module.resolve(binding.value)
                if target is not None and target != f"{module.name}.{name}":
                    names[name] = target
    text = "\n".join(module.lines)
    return Summary(
        path=module.path,
        name=module.name,
        is_package=is_package,
        names=names,
        stars=tuple(module.scopes.top.stars),
        classes={
            module.qualified(each)[len(module.name) + 1 :]: tuple(
                module.resolve(base) or "?" for base in each.bases
            )
            for each in module.nodes(ast.ClassDef)
        },
        functions=frozenset(
            each.name
            for each in module.tree.body
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
        ),
        imports=frozenset(_imports(module)),
        method_calls=frozenset(_METHOD.findall(text)),
        is_notebook=module.is_notebook,
        is_whole=module.is_whole,
        stores=frozenset(_stores(text)),
        has_collate=re.search(r"\bcollate_fn\s*=(?!\s*None)", text) is not None,
        has_epochs=_EPOCHS.search(text) is not None,
        is_script=_SCRIPT.search(text) is not None,
    )


def _stores(text: str) -> Iterator[str]:
    """Yield the names in `x.name = ...`, `x.name += ...`, and where an `=` follows in the line:
    `x.name: int = ...`, `x.name, y = ...`."""
    equals = line_end = -1  # the next ones, looked for once each
    for match in _STORE.finditer(text):
        if match[2] in (":", ","):
            if equals < match.end():
                equals = text.find("=", match.end())
                if equals < 0:
                    equals = len(text)
            if line_end < match.end():
                line_end = text.find("\n", match.end())
                if line_end < 0:
                    line_end = len(text)
            if equals >= line_end or text.startswith("==", equals):
                continue
        yield match[1]


def _imports(module: Module) -> set[str]:
    found = set(module.scopes.top.stars)
    for node in module.nodes(ast.Import):
        found.update(alias.name for alias in node.names)
    for scope in module.scopes.of_node.values():
        for bindings in scope.names.values():
            for each in bindings:
                if each.kind is Kind.IMPORT and isinstance(each.node, ast.ImportFrom):
                    found.add(each.qualified)
    return found
