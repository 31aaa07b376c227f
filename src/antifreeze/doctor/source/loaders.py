"""Find every construction of a DataLoader in a file, with all that can be seen of it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import library_names
from .call_arguments import Argument, Arguments, read_arguments
from .definitions import Dataset, Function, find_class, find_definition, find_function
from .file_summary import LoaderFact, Workers
from .step_budget import cached_walk
from .syntax.scopes import FunctionNode
from .wrapped_datasets import datasets_behind

if TYPE_CHECKING:
    from .view import View

_COUNTS = ("os.cpu_count", "multiprocessing.cpu_count", "os.process_cpu_count", "len")


@dataclass(frozen=True, eq=False)
class Loader:
    """One `DataLoader(...)`, `super().__init__(...)` of a subclass, or call of a `partial`."""

    node: ast.Call
    kind: str  # the class, by its known name: torch.utils.data.DataLoader
    arguments: Arguments
    view: View

    def __repr__(self) -> str:
        return f"Loader(line {self.node.lineno}, {self.arguments})"

    def __getitem__(self, name: str) -> Argument:
        return self.arguments[name]

    @property
    def ours(self) -> bool:
        """Whether it is antifreeze's, of which much of what is said of torch's is not true."""
        return self.kind == library_names.ANTIFREEZE_DATALOADER

    @functools.cached_property
    def workers(self) -> Workers:
        """Whether it has workers."""
        argument = self["num_workers"]
        if argument.absent or (argument.given and argument.value in (0, None)):
            return Workers.NONE
        if argument.node is None:  # in **options
            return Workers.LIKELY
        number = isinstance(argument.value, int) and argument.value > 0
        counted = any(
            isinstance(each, ast.Call) and self.view.resolve(each.func) in _COUNTS
            for each in self.view.values(argument.node)
        )
        return Workers.SOME if number or counted or argument.is_("auto") else Workers.LIKELY

    @functools.cached_property
    def dataset(self) -> Dataset | None:
        """Return the class of its dataset, if it is one of the project's. `Subset` and
        `random_split` are looked through."""
        argument = self["dataset"]
        return self.view.dataset_of(argument.node) if argument.node is not None else None

    @functools.cached_property
    def dataset_expression(self) -> ast.expr | None:
        """Return the expression its dataset was made with: a call, a list, ..."""
        node = self["dataset"].node
        return self.view.value(node) if node is not None else None

    @functools.cached_property
    def collate(self) -> Function | None:
        """Return its collate function, if it is given and can be seen."""
        return self._function("collate_fn")

    @functools.cached_property
    def worker_init(self) -> Function | None:
        return self._function("worker_init_fn")

    def _function(self, name: str) -> Function | None:
        node = self[name].node
        return find_function(node, self.view.module, self.view.project) if node else None

    @property
    def function(self) -> FunctionNode | None:
        """Return the function it is made in; None: at module level."""
        return self.view.module.function_around(self.node)

    @property
    def hook(self) -> str:
        """Return the name of the Lightning hook it is made in: train_dataloader; or nothing."""
        function = self.function
        return function.name if function and function.name in library_names.LOADER_HOOKS else ""

    @property
    def in_loop(self) -> ast.For | ast.While | ast.AsyncFor | None:
        """Return the loop statement around it, in the same function."""
        return self.view.loop_around(self.node)

    @functools.cached_property
    def start_method(self) -> str:
        """Return how its workers start, as far as the source says: spawn, forkserver, fork, or
        ''."""
        node = self["multiprocessing_context"].node
        for value in self.view.values(node) if node is not None else ():
            if isinstance(value, ast.Call) and value.args:
                value = value.args[0]
            said = self.view.constant(value)
            if isinstance(said, str):
                return said
        return self.view.start_method if not self["multiprocessing_context"].given else ""

    @property
    def variable(self) -> str:
        """Return the name it is bound to: train_loader, or self.loader; '' if to none."""
        return self.view.variable_of(self.node)

    @property
    def for_evaluation(self) -> bool:
        """Whether its name or its function's says that it is for validation or tests."""
        return self.view.for_evaluation(self.node)

    def fact(self) -> LoaderFact | None:
        """Return what other files should know of it."""
        node = self["dataset"].node
        name = dataset_name(node, self.view) if node is not None else None
        if name is None:
            return None
        return LoaderFact(
            dataset=name,
            workers=self.workers,
            ours=self.ours,
            has_collate=not self["collate_fn"].absent,
            has_worker_init=not self["worker_init_fn"].absent,
            has_timeout=self["timeout"].given and self["timeout"].value != 0,
            single=self["num_workers"].is_(1),
            start_method=self.start_method,
        )


def find_loaders(view: View) -> Iterator[Loader]:
    """Yield the loaders that a file makes, in the order of the text."""
    for call in view.module.nodes(ast.Call):
        name = view.resolve(call.func)
        if name in library_names.LOADERS:
            yield Loader(call, name, _read(call, name, view), view)
        elif name is not None and (base := _loader_class(name, view)):
            yield Loader(call, base, _read_subclass(call, base, view), view)
        elif base := _super_of_loader(call, view):
            yield Loader(call, base, _read(call, base, view), view)
        elif name is None and (made := _from_partial(call, view)) is not None:
            yield made


def _parameters(kind: str) -> tuple[str, ...]:
    all_of_them = kind in (
        library_names.DATALOADER,
        library_names.ANTIFREEZE_DATALOADER,
    ) or kind.startswith("torchdata.")
    return library_names.LOADER_PARAMETERS if all_of_them else library_names.LOADER_PARAMETERS[:3]


def _read(call: ast.Call, kind: str, view: View, base: Arguments | None = None) -> Arguments:
    return read_arguments(call, _parameters(kind), view.module, view.constant, base)


def _loader_class(name: str, view: View) -> str:
    """Return the loader class that a class of the project descends from."""
    if "." not in name or view.project.bases(name, view.module.path) is None:
        return ""
    ancestors = view.project.ancestors(name, view.module.path)
    return next((each for each in ancestors if each in library_names.LOADERS), "")


def _read_subclass(call: ast.Call, kind: str, view: View) -> Arguments:
    owner = find_class(call.func, view.module, view.project)
    own = owner.method("__init__") if owner is not None else None
    if own is None:
        return _read(call, kind, view)
    read = read_arguments(call, own.parameters[1:], view.module, view.constant)
    taken = {each.name: each for each in read if each.name in library_names.LOADER_PARAMETERS}
    return Arguments(taken, open_ended=True)  # what it adds itself is seen at its super().__init__


def _super_of_loader(call: ast.Call, view: View) -> str:
    match call.func:
        case ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"))):
            owner = view.module.class_around(call)
            if owner is not None:
                return _loader_class(view.module.qualified(owner), view)
        case _:
            pass
    return ""


def _from_partial(call: ast.Call, view: View) -> Loader | None:
    values: Any = view.values(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else ()
    for value in values:
        if not (isinstance(value, ast.Call) and value.args):
            continue
        if view.resolve(value.func) != "functools.partial":
            continue
        kind = view.resolve(value.args[0])
        if kind in library_names.LOADERS:
            made = ast.copy_location(ast.Call(value.func, value.args[1:], value.keywords), value)
            inner = view.module.adopt(made, value)
            base = _read(inner, kind, view)
            return Loader(call, kind, _read(call, kind, view, base), view)
    return None


@cached_walk
def dataset_name(node: ast.expr, view: View, depth: int = 0) -> str | None:
    """Return the qualified name of a dataset's class, through wrappers, parameters, and functions
    of this file that return one."""
    for value in datasets_behind(node, view) if depth <= 4 else ():
        found = _made_by(value, view, depth) if isinstance(value, ast.Call) else None
        if found is not None:
            return found
    return None


def _made_by(call: ast.Call, view: View, depth: int) -> str | None:
    name = view.resolve(call.func)
    definition = find_definition(call.func, view.module, view.project)
    if definition is None or isinstance(definition[1], ast.ClassDef):
        return name
    if definition[0] is view.module:
        for value in Function(definition[1], view.module).returns:
            if value is not None and (found := dataset_name(value, view, depth + 1)) is not None:
                return found
    return name


__all__ = ["Loader", "dataset_name", "find_loaders"]
