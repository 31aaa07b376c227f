"""The view of a file that rules get: every question that a rule can ask.

What it answers with is in the other modules (`definitions`, `loaders`, `loader_loops`,
`worker_code`).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import library_names, program_facts
from .call_arguments import Arguments, read_arguments
from .call_signatures import signature_mismatch
from .definitions import (
    PICKLING,
    Class,
    Dataset,
    DatasetKind,
    Function,
    find_class,
    find_function,
)
from .file_summary import Summary, summarise
from .loader_loops import LoaderLoop, find_loops, loader_of, without_wrappers
from .loaders import Loader, dataset_name, find_loaders
from .project import Project
from .step_budget import Budget
from .syntax import constants
from .syntax.constants import UNKNOWN
from .syntax.module import Module
from .syntax.node_text import mentions_evaluation, text_of
from .syntax.scopes import FunctionNode, Kind
from .transformers_trainer import facts_of_trainers
from .value_dependencies import ValueDependencies, value_dependencies
from .value_origins import origins
from .worker_code import WorkerCode, find_worker_code


class View:
    """One file in its project. Nodes of other files may be asked about, too."""

    def __init__(
        self,
        module: Module,
        project: Project,
        *,
        beside: View | None = None,
        only_calls: Mapping[FunctionNode, ast.Call] | None = None,
    ) -> None:
        """`beside`: the view of the file that is checked, if this is another one. `only_calls`:
        functions of which one call matters, which may be in the file that is checked."""
        self.module = module
        self.project = project
        # Of all that rules ask here, and what they ask of themselves.
        self.budget: Budget = beside.budget if beside is not None else Budget()
        self.only_calls = dict(only_calls or {})
        self._calls_of: dict[FunctionNode, list[ast.Call]] = {}
        self.answers: dict[Hashable, Any] = {}  # of walks that would ask the same again and again
        self._returned: dict[ast.AST, list[ast.expr]] = {}
        self._other_files: dict[Path, View] = {}
        self._by_worker_code: dict[ast.AST, View] = {}  # views of other files
        if beside is None:
            project.visit(module)

    def __repr__(self) -> str:
        return f"View({self.module.path})"

    @property
    def path(self) -> Path:
        return self.module.path

    def module_of(self, node: ast.AST) -> Module:
        """Return the file that a node is of."""
        self.budget.spend()
        if self.module.holds(node):
            return self.module
        home = self.project.module_of(node)
        if home is None:  # to take it for one of this file would be to answer at random
            raise LookupError(f"{type(node).__name__} is of no file that was read")
        return home

    # ---- what a node stands for ------------------------------------------------------------------

    def resolve(self, node: ast.AST) -> str | None:
        """Return the qualified name of a name or attribute: `numpy.random.default_rng`, `open`."""
        home = self.module_of(node)
        name = home.resolve(node)
        return self.project.canonical(name, home.path) if name is not None else None

    def values(self, node: ast.expr) -> tuple[ast.expr, ...]:
        """Return the expressions a variable may stand for; none if one of them is not known."""
        return self.module_of(node).values(node)

    def value(self, node: ast.expr) -> ast.expr | None:
        """Return the one expression that a variable stands for, or None."""
        found = self.values(node)
        return found[0] if len(found) == 1 else None

    def constant(self, node: ast.expr) -> Any:
        """Return the constant that an expression is, through variables; or UNKNOWN."""
        every = self.values(node)
        found = [constants.constant(each) for each in every]
        if not found or any(each is UNKNOWN or each != found[0] for each in found):
            return UNKNOWN
        return found[0]

    def type_of(self, node: ast.expr) -> str | None:
        """Return the qualified name of the class or function that made a value: `h5py.File`."""
        for value in self.origins(node):
            if isinstance(value, ast.Call):
                return self.resolve(value.func)
        return None

    def origins(self, node: ast.expr) -> tuple[ast.expr, ...]:
        """Return what a variable may stand for, as far as it is seen: unlike `values` also through
        parameters to their defaults and the calls in this file, without promising that there is no
        more."""
        return origins(node, self)

    def is_closed_after(self, name: ast.Name) -> bool:
        """Whether a name is bound by `with`, which closes it at its end."""
        return any(each.kind is Kind.WITH for each in self.module_of(name).bindings(name))

    def returned(self, call: ast.expr) -> list[ast.expr]:
        """Return what a call of a function of this file may return; nothing for any other."""
        if not isinstance(call, ast.Call) or not isinstance(call.func, (ast.Name, ast.Attribute)):
            return []
        function = self.function_of(call.func)
        if function is None or function.module is not self.module:
            return []
        if function.node not in self._returned:  # `len(x)` asks for it, wherever it stands
            self._returned[function.node] = [e for e in function.returns if e is not None]
        return self._returned[function.node]

    def calls_of(self, function: FunctionNode) -> list[ast.Call]:
        """Return the calls in this file of a function; for `__init__`, of its class."""
        if function in self.only_calls:
            return [self.only_calls[function]]
        if function not in self._calls_of:
            self._calls_of[function] = list(self._find_calls_of(function))
        return self._calls_of[function]

    def _find_calls_of(self, function: FunctionNode) -> Iterator[ast.Call]:
        """Look by name first: to look at what every call calls would parse half the project."""
        home = self.module_of(function)
        owner = home.scopes.parents.get(function)
        if not isinstance(owner, ast.ClassDef):
            name = self.project.canonical(home.qualified(function), home.path)
            yield from self._calls_by_name.get(name, [])
        elif function.name == "__init__":
            wanted = home.qualified(owner)
            for name, calls in self._calls_by_name.items():
                if name != wanted and wanted not in self.project.ancestors(name, self.path):
                    continue
                made = self.class_of(calls[0].func)
                init = made.method("__init__") if made is not None else None
                if init is not None and init.node is function:
                    yield from calls
        else:
            for call in self.method_calls(function.name):
                called = self.function_of(call.func)
                if called is not None and called.node is function:
                    yield call

    def call_arguments(self, call: ast.Call, parameters: Sequence[str] = ()) -> Arguments:
        """Return the arguments of a call by name, with constants followed through variables and
        `**dict(...)`. `parameters`: the names of the positional ones, in order."""
        return read_arguments(call, parameters, self.module_of(call), self.constant)

    def arguments(self, call: ast.Call, function: FunctionNode) -> Arguments:
        """Return the arguments of a call of a function of the project, by name."""
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        if isinstance(self.module_of(function).scopes.parents.get(function), ast.ClassDef):
            names = names[1:]
        return self.call_arguments(call, names)

    def dependencies(self, node: ast.expr, function: Function) -> ValueDependencies:
        """Return what an expression in a function depends on: its parameters, calls, attributes."""
        return value_dependencies(node, function, self)

    # ---- what is in the file ---------------------------------------------------------------------

    @functools.cached_property
    def loaders(self) -> tuple[Loader, ...]:
        """Return every construction of a DataLoader: torch's, ours, subclasses, `partial`s."""
        return tuple(find_loaders(self))

    @functools.cached_property
    def loops(self) -> tuple[LoaderLoop, ...]:
        """Return every loop over a loader."""
        return tuple(find_loops(self))

    @functools.cached_property
    def classes(self) -> tuple[Class, ...]:
        return tuple(
            Class(each, self.module, self.project) for each in self.module.nodes(ast.ClassDef)
        )

    @functools.cached_property
    def datasets(self) -> tuple[Dataset, ...]:
        """Return the dataset classes of this file: by their bases, or because a loader has them."""
        nodes = [each.node for each in self.classes if self._kind(each) is not None]
        for loader in self.loaders:
            found = loader.dataset
            if found is not None and found.module is self.module and found.node not in nodes:
                nodes.append(found.node)
        return tuple(self._dataset(each) for each in nodes)

    @functools.cached_property
    def training_arguments(self) -> tuple[ast.Call, ...]:
        """Return the constructions of transformers' TrainingArguments, for `call_arguments()`."""
        return tuple(self.calls(*library_names.TRAINING_ARGUMENTS))

    @functools.cached_property
    def worker_code(self) -> tuple[WorkerCode, ...]:
        """Return all functions of this file that run in workers: what loads samples (if a loader of
        the dataset has workers, or none was found), transforms, collate and worker_init functions,
        each with what it calls."""
        return tuple(each for each in self._all_worker_code if each.entry_point is None)

    @property
    def worker_code_in_other_files(self) -> tuple[WorkerCode, ...]:
        """Return the functions of other files that run in workers by way of this one."""
        return tuple(each for each in self._all_worker_code if each.entry_point is not None)

    @functools.cached_property
    def _all_worker_code(self) -> list[WorkerCode]:
        return find_worker_code(self)

    def beside(self, module: Module) -> View:
        """Return a view of another file; this one stays the one that is checked."""
        return View(module, self.project, beside=self)

    def view_of_worker_code(self, code: WorkerCode) -> View:
        """Return a view of another file as if it had no dataset, and no function that runs in
        workers but this one."""
        node = code.function.node
        if node not in self._by_worker_code:
            module = code.function.module
            if module.path not in self._other_files:
                only = dict(self._calls_into(module))
                self._other_files[module.path] = View(
                    module, self.project, beside=self, only_calls=only
                )
            other = self._other_files[module.path]
            self._by_worker_code[node] = WorkerCodeView(other, code, self.start_method)
        return self._by_worker_code[node]

    def _calls_into(self, module: Module) -> Iterator[tuple[FunctionNode, ast.Call]]:
        """Yield the functions of another file that this file calls and that run in workers, each
        with the call that leads there."""
        for code in self.worker_code_in_other_files:
            node, call = code.function.node, code.entry_point
            if code.function.module is not module or not isinstance(call, ast.Call):
                continue
            if isinstance(node, ast.Lambda):
                continue
            called = self.function_of(call.func)
            if called is not None and called.node is node:
                yield node, call

    def calls(self, *names: str) -> list[ast.Call]:
        """Return the calls of functions or classes, by qualified name: `calls("h5py.File")`."""
        return [call for name in names for call in self._calls_by_name.get(name, [])]

    @functools.cached_property
    def _calls_by_name(self) -> dict[str, list[ast.Call]]:
        table: dict[str, list[ast.Call]] = {}
        for call in self.module.nodes(ast.Call):
            name = self.resolve(call.func)
            if name is not None:
                table.setdefault(name, []).append(call)
        return table

    def constructions(
        self, bases: frozenset[str], also: frozenset[str] = frozenset()
    ) -> Iterator[tuple[Class, list[ast.Call]]]:
        """Yield the classes of the project that this file makes objects of, with the calls: those
        that descend from some bases, and those of some qualified names."""
        for name, calls in self._calls_by_name.items():
            if self.project.bases(name, self.path) is None:
                continue
            if name not in also and bases.isdisjoint(self.project.ancestors(name, self.path)):
                continue  # before its file is parsed
            owner = self.class_of(calls[0].func)
            if owner is not None:
                yield owner, calls

    def undefined(self, function: Function) -> list[ast.Name]:
        """Return the names in a function that nothing binds: to use one is a NameError."""
        found = function.module.undefined(function.node)
        return sorted(found, key=lambda name: (name.lineno, name.col_offset))

    def signature_mismatch(self, call: ast.Call) -> str:
        """Return why a call of a function or class of the project cannot work: "lacks 'path'"; or
        ''.

        A class without an `__init__` that we can see fits everything.
        """
        if not isinstance(call.func, (ast.Name, ast.Attribute)):
            return ""
        owner = self.class_of(call.func)
        function = owner.method("__init__") if owner is not None else self.function_of(call.func)
        if function is None or isinstance(function.node, ast.Lambda):
            if owner is not None and owner.is_known_whole and (call.args or call.keywords):
                return "takes no arguments" if not owner.node.decorator_list else ""
            return ""
        if owner is None and (function.owner is not None or function.node.decorator_list):
            return ""  # a method, or something else by now
        return signature_mismatch(call, function.node, bound=owner is not None)

    def method_calls(self, *names: str) -> list[ast.Call]:
        """Return the calls `x.name(...)`, whatever x is."""
        return [
            call
            for call in self.module.nodes(ast.Call)
            if isinstance(call.func, ast.Attribute) and call.func.attr in names
        ]

    # ---- from one to the other -------------------------------------------------------------------

    def dataset_of(self, node: ast.expr) -> Dataset | None:
        """Return the dataset class of an expression, if it is one of the project's."""
        name = dataset_name(node, self)
        found = self.project.definition(name, self.path) if name is not None else None
        if found is None or not isinstance(found[1], ast.ClassDef):
            return None
        return self._dataset(found[1], found[0])

    def loader_of(self, node: ast.expr) -> Loader | None:
        """Return the loader that an expression stands for, if it is made in this file."""
        made = self._loaders_by_node
        return loader_of(without_wrappers(node, self), self, made) if made else None

    @functools.cached_property
    def _loaders_by_node(self) -> dict[ast.Call, Loader]:
        return {each.node: each for each in self.loaders}

    def takes_torchs_arguments(self, loader: Loader) -> bool:
        """Whether a loader's arguments mean what those of torch's mean: not where a class of
        the project has an `__init__` of its own."""
        own = self.class_of(loader.node.func)
        return loader.kind in library_names.SAME_SIGNATURE_AS_TORCH and (
            own is None or own.method("__init__") is None
        )

    def class_of(self, node: ast.expr) -> Class | None:
        """Return the project's class that an expression names."""
        return find_class(node, self.module_of(node), self.project)

    def function_of(self, node: ast.expr) -> Function | None:
        """Return the project's function that an expression names: also through `partial`,
        variables, and objects with `__call__`."""
        return find_function(node, self.module_of(node), self.project)

    def _kind(self, found: Class) -> DatasetKind | None:
        if found.descends_from(*library_names.ITERABLE_DATASETS):
            return DatasetKind.ITERABLE
        return DatasetKind.MAP if found.descends_from(*library_names.MAP_DATASETS) else None

    def _dataset(self, node: ast.ClassDef, module: Module | None = None) -> Dataset:
        dataset = Dataset(node, module or self.module, self.project)
        by_methods = DatasetKind.MAP if dataset.method("__getitem__") else DatasetKind.ITERABLE
        dataset.kind = self._kind(dataset) or by_methods
        return dataset

    def here(self, node: ast.AST, otherwise: ast.AST) -> ast.AST:
        """Return a node if it is of this file, else another: hits must be of this file."""
        return node if self.module.holds(node) else otherwise

    # ---- where a node is -------------------------------------------------------------------------

    def function_around(self, node: ast.AST) -> FunctionNode | None:
        return self.module_of(node).function_around(node)

    def loop_around(self, node: ast.AST) -> ast.For | ast.While | ast.AsyncFor | None:
        """Return the nearest loop statement whose body a node is in, within the same function."""
        return self.module_of(node).loop_around(node)

    def variable_of(self, node: ast.AST) -> str:
        """Return the name that an expression is bound to: loader, or self.loader; '' if to none."""
        match self.module_of(node).scopes.parents.get(node):
            case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
                return text_of(target)
            case ast.keyword(arg=str() as name):
                return name
            case _:
                return ""

    def for_evaluation(self, node: ast.AST) -> bool:
        """Whether the name a value is given, or its function's, is one of validation or tests,
        where order, repetition and speed matter less."""
        function = self.function_around(node)
        return mentions_evaluation(f"{self.variable_of(node)} {function.name if function else ''}")

    def runs_on_import(self, node: ast.AST) -> bool:
        """Whether a node runs when the file is imported: not under the main guard, and not in a
        function, unless that is called so."""
        function = self.module.function_around(node)
        called = function is None or function in self._run_on_import
        return called and not program_facts.is_guarded(node, self.module)

    @functools.cached_property
    def _run_on_import(self) -> frozenset[FunctionNode]:
        return program_facts.run_on_import(self)

    # ---- the program -----------------------------------------------------------------------------

    @functools.cached_property
    def summary(self) -> Summary:
        """Return what other files need to know of this one."""
        return dataclasses.replace(
            self._own_summary,
            loaders=(
                *(fact for each in self.loaders if (fact := each.fact()) is not None),
                *facts_of_trainers(self),
            ),
            distributed=program_facts.distributed_evidence(self),
            start_method=program_facts.start_method_set(self),
        )

    @functools.cached_property
    def distributed(self) -> str:
        """Return what shows that the program has several ranks, here or in a file that imports this
        one: "DistributedSampler, line 12". Empty if nothing does."""
        here = program_facts.distributed_evidence(self)
        if here:
            return here
        for each in self.project.importers(self.path):
            if each.distributed:
                return f"{each.distributed} of {each.path.name}"
        return ""

    @functools.cached_property
    def start_method(self) -> str:
        """Return how workers start, as far as the source says: spawn, forkserver, fork, or ''."""
        here = program_facts.start_method_set(self)
        if here:
            return here
        for each in self.project.importers(self.path):
            if each.start_method:
                return each.start_method
        python = self.project.python
        newer = python is not None and python >= program_facts.FORKSERVER_BY_DEFAULT
        return "forkserver" if newer else ""

    def sent_by(self, dataset: Dataset) -> str:
        """Return the start method by which a dataset is pickled and sent to workers of torch's
        loader: spawn or forkserver. Empty if there are none, or the source does not say."""
        for each in dataset.loaders:
            method = each.start_method or self.start_method
            if each.workers.any and not each.ours and method in PICKLING:
                return method
        return ""

    def imports(self, *packages: str) -> bool:
        """Whether this file imports one of these packages, or a part of it."""
        return self._own_summary.imports_any(*packages)

    @functools.cached_property
    def _own_summary(self) -> Summary:
        return self.project.summary_of(self.path) or summarise(self.module)


class WorkerCodeView(View):
    """The view of a file that has no dataset, and one function that runs in workers."""

    def __init__(self, file: View, code: WorkerCode, start_method: str) -> None:
        """`file`: the view of the whole file, whose answers this one takes over. `start_method`: of
        the file that is checked."""
        super().__init__(file.module, file.project, beside=file, only_calls=file.only_calls)
        self.answers, self._calls_of, self._returned = file.answers, file._calls_of, file._returned
        self._file = file
        self._code = code
        self._start_method = start_method

    @functools.cached_property
    def datasets(self) -> tuple[Dataset, ...]:
        return ()

    @functools.cached_property
    def worker_code(self) -> tuple[WorkerCode, ...]:
        return (self._code,)

    @functools.cached_property
    def start_method(self) -> str:
        return self._start_method

    @functools.cached_property
    def _calls_by_name(self) -> dict[str, list[ast.Call]]:
        return self._file._calls_by_name
