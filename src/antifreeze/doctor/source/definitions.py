"""Functions and classes of the project, with their bases and the functions that they reach."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from . import library_names
from .file_summary import LoaderFact, Workers
from .project import Project
from .syntax.module import AttributeAssignment, Module
from .syntax.reaching_definitions import survives_method
from .syntax.scopes import FunctionNode

MOST_REACHED_FUNCTIONS = 40  # functions that are followed from one start
PICKLING = ("spawn", "forkserver")  # start methods under which the dataset is pickled
# Bases that bring no methods a dataset is asked for.
_PLAIN_BASES = frozenset({"object", "abc.ABC", "typing.Generic", "typing.Protocol"})


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function, method or lambda, wherever it is defined."""

    node: FunctionNode | ast.Lambda
    module: Module
    owner: Class | None = None  # of a method

    def __repr__(self) -> str:
        return f"Function({self.name})"

    @property
    def name(self) -> str:
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name

    @property
    def parameters(self) -> list[str]:
        """Return the names it is called with, `self` included, `*args` and `**kwargs` not."""
        arguments = self.node.args
        return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]

    def nodes(self) -> Iterator[ast.AST]:
        """Return the nodes of its body, but not those of functions and classes defined in it."""
        return iter(self.module.body_of(self.node))

    def calls(self) -> Iterator[ast.Call]:
        return (each for each in self.nodes() if isinstance(each, ast.Call))

    @property
    def returns(self) -> list[ast.expr | None]:
        """Return what it returns; None for a bare `return`."""
        if isinstance(self.node, ast.Lambda):
            return [self.node.body]
        return [each.value for each in self.nodes() if isinstance(each, ast.Return)]

    @property
    def is_generator(self) -> bool:
        return any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in self.nodes())


class Class:
    """A class of the project."""

    def __init__(self, node: ast.ClassDef, module: Module, project: Project) -> None:
        self.node = node
        self.module = module
        self.project = project
        self.name = node.name
        self.qualified = module.qualified(node)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.qualified})"

    @functools.cached_property
    def ancestors(self) -> tuple[str, ...]:
        """Return the qualified names of all it descends from, itself first."""
        return self.project.ancestors(self.qualified, self.module.path)

    def descends_from(self, *names: str) -> bool:
        return any(each in names for each in self.ancestors)

    @functools.cached_property
    def lineage(self) -> tuple[Class, ...]:
        """Return the classes of the project among its ancestors, itself first."""
        found = [self]
        for name in self.ancestors[1:]:
            place = self.project.definition(name, self.module.path)
            if place is not None and isinstance(place[1], ast.ClassDef):
                found.append(Class(place[1], place[0], self.project))
        return tuple(found)

    @property
    def is_known_whole(self) -> bool:
        """Whether every base was found, so that what is not there is truly missing."""
        ours = {each.qualified for each in self.lineage}
        known_bases = _PLAIN_BASES | {library_names.MAP_DATASET, library_names.ITERABLE_DATASET}
        dynamic = any(keyword.arg == "metaclass" for keyword in self.node.keywords)
        return not dynamic and all(
            each in ours or each.partition("[")[0] in known_bases for each in self.ancestors
        )

    @functools.cached_property
    def methods(self) -> dict[str, Function]:
        """Return the methods in its own body."""
        return {
            each.name: Function(each, self.module, self)
            for each in self.node.body
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
        }

    def method(self, name: str) -> Function | None:
        """Return a method, its own or inherited from a class of the project."""
        for each in self.lineage:
            if name in each.methods:
                return each.methods[name]
        return None

    def assignments(self, attribute: str) -> list[AttributeAssignment]:
        """Return every assignment to an attribute, in this class and in those it inherits from."""
        return [given for _, given in self._assignments.get(attribute, [])]

    @functools.cached_property
    def attributes(self) -> dict[str, list[AttributeAssignment]]:
        """Return all assignments to attributes of `self`, by name; its own first, then inherited.
        What the same method overwrites is left out: other methods never see it."""
        return {
            name: [
                given
                for module, given in every
                if len(every) == 1 or survives_method(given, module)
            ]
            for name, every in self._assignments.items()
        }

    @functools.cached_property
    def _assignments(self) -> dict[str, list[tuple[Module, AttributeAssignment]]]:
        table: dict[str, list[tuple[Module, AttributeAssignment]]] = {}
        for each in self.lineage:
            for name, found in each.module.assignments(each.node).items():
                table.setdefault(name, []).extend((each.module, given) for given in found)
        return table

    def reached(self, *starts: str) -> tuple[Function, ...]:
        """Return the functions of the project that run when these methods do, themselves first.

        Follows `self.method()`, properties, `self.reader.method()` of objects that the class makes,
        and plain functions; not what is passed around.
        """
        found = [each for name in starts if (each := self.method(name)) is not None]
        return reached_from(found, self.project, self)

    def owns(self, node: ast.AST, module: Module) -> bool:
        """Whether a name is the `self` of this class or of one it inherits from."""
        found = module.class_of_self(node)
        return found is not None and any(found is each.node for each in self.lineage)

    def methods_of_attribute(self, attribute: str, method: str) -> Iterator[Function]:
        """Yield the method of the object that an attribute is made with: `self.a = Reader(...)`."""
        for each in self.lineage:
            for given in each.module.assignments(each.node).get(attribute, []):
                if isinstance(given.value, ast.Call):
                    made = find_class(given.value.func, each.module, self.project)
                    if made is not None and (found := made.method(method)) is not None:
                        yield found


class DatasetKind(Enum):
    MAP = "map-style"
    ITERABLE = "iterable"


class Dataset(Class):
    """A dataset class, with what is known of its loaders."""

    kind: DatasetKind

    @functools.cached_property
    def loading(self) -> tuple[Function, ...]:
        """Return the functions that run in a worker for a sample: `__getitem__` and what it
        calls."""
        if self.kind is DatasetKind.ITERABLE:
            return self.reached("__iter__", "__next__")
        return self.reached("__getitem__", "__getitems__")

    @functools.cached_property
    def preparing(self) -> tuple[Function, ...]:
        """Return the functions that run in the main process: `__init__` and what it calls."""
        return self.reached("__init__", "__post_init__")

    @functools.cached_property
    def loaders(self) -> tuple[LoaderFact, ...]:
        """Return what is known of every loader of it, in all files."""
        return tuple(self.project.loaders_of(self.qualified, self.module.path))

    @property
    def workers(self) -> Workers | None:
        """Whether a loader of it has workers; None if no loader of it was found."""
        found = {each.workers for each in self.loaders}
        for each in (Workers.SOME, Workers.LIKELY, Workers.NONE):
            if each in found:
                return each
        return None

    @property
    def only_ours(self) -> bool:
        """Whether all its loaders, and there are some, are antifreeze's."""
        return bool(self.loaders) and all(each.ours for each in self.loaders)

    @property
    def is_forked(self) -> bool:
        """Whether the source says that all workers that have it are forked."""
        with_workers = [each for each in self.loaders if each.workers.any]
        return bool(with_workers) and all(each.start_method == "fork" for each in with_workers)

    @property
    def sends_itself(self) -> bool:
        """Whether it says itself what is pickled of it: `__getstate__`, `__reduce__`."""
        return any(map(self.method, ("__getstate__", "__reduce__", "__reduce_ex__")))

    def uses(self, attribute: str) -> list[ast.Attribute]:
        """Return the places where a sample's loading reads `self.attribute`."""
        return self._reads.get(attribute, [])

    @functools.cached_property
    def _reads(self) -> dict[str, list[ast.Attribute]]:
        table: dict[str, list[ast.Attribute]] = {}
        for function in self.loading:
            for node in function.nodes():
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Load)
                    and function.module.class_of_self(node.value) is not None
                ):
                    table.setdefault(node.attr, []).append(node)
        return table

    def sets_anew(self, attribute: str) -> bool:
        """Whether `__getitem__`, `__setstate__` or what they call gives `self.attribute`; or a
        `worker_init_fn` may, by `get_worker_info().dataset`."""
        functions = {*self.loading, *self.reached("__setstate__", "__getstate__", "worker_init")}
        nodes = {function.node for function in functions}
        if any(each.method in nodes for each in self.assignments(attribute)):
            return True
        started = any(each.has_worker_init for each in self.loaders)
        return started and self.project.any_file_sets(attribute)


def reached_from(
    starts: Iterable[Function], project: Project, receiver: Class | None = None
) -> tuple[Function, ...]:
    """Return the functions of the project that run when these do, themselves first. `receiver`: the
    class whose object `self` is in methods that it may inherit."""
    queue = list(starts)
    mine = {each.node for each in receiver.lineage} if receiver is not None else set()
    seen: dict[ast.AST, Function] = {}
    while queue and len(seen) < MOST_REACHED_FUNCTIONS:
        function = queue.pop(0)
        if function.node in seen:
            continue
        seen[function.node] = function
        inherits = function.owner is not None and function.owner.node in mine
        owner = receiver if inherits else function.owner
        queue += (each for _, each in called_functions(function, owner, project))
    return tuple(seen.values())


def called_functions(
    function: Function, owner: Class | None, project: Project
) -> Iterator[tuple[ast.expr, Function]]:
    """Yield the functions of the project that one calls, each with the place."""
    module = function.module
    for node in function.nodes():
        match node:
            case ast.Attribute(value=ast.Name()) if owner and module.class_of_self(node.value):
                if (method := owner.method(node.attr)) is not None:
                    yield node, method
            case ast.Call(func=ast.Name() as name):
                if (called := find_function(name, module, project)) is not None:
                    yield node, called
            case ast.Call(
                func=ast.Attribute(attr=name, value=ast.Attribute(attr=attribute, value=me))
            ) if owner and module.class_of_self(me):
                yield from ((node, each) for each in owner.methods_of_attribute(attribute, name))
            case _:
                pass


def find_function(
    node: ast.expr, module: Module, project: Project, depth: int = 0
) -> Function | None:
    """Return the project's function that an expression names: a function, method, lambda, `partial`
    of one, or an object whose class has `__call__`."""
    if depth > 4:  # f = partial(f, ...)
        return None
    values = module.values(node) if not isinstance(node, ast.Lambda) else (node,)
    for value in values or (node,):
        if isinstance(value, ast.Lambda):
            return Function(value, module)
        if isinstance(value, ast.Call):
            called = module.resolve(value.func)
            if called == "functools.partial" and value.args:
                return find_function(value.args[0], module, project, depth + 1)
            owner = find_class(value.func, module, project)
            return owner.method("__call__") if owner is not None else None
    return _named_function(node, module, project)


def _named_function(node: ast.expr, module: Module, project: Project) -> Function | None:
    if isinstance(node, ast.Attribute):
        owner = module.class_of_self(node.value)
        if owner is not None:
            return Class(owner, module, project).method(node.attr)
    definition = find_definition(node, module, project)
    if definition is None or isinstance(definition[1], ast.ClassDef):
        return None
    parent = definition[0].scopes.parents.get(definition[1])
    owned = Class(parent, definition[0], project) if isinstance(parent, ast.ClassDef) else None
    return Function(definition[1], definition[0], owned)


def find_class(node: ast.expr, module: Module, project: Project) -> Class | None:
    """Return the project's class that an expression names."""
    definition = find_definition(node, module, project)
    if definition is None or not isinstance(definition[1], ast.ClassDef):
        return None
    return Class(definition[1], definition[0], project)


def find_definition(
    node: ast.expr, module: Module, project: Project
) -> tuple[Module, ast.ClassDef | FunctionNode] | None:
    if isinstance(node, ast.Name):  # in this very file, at whatever depth
        for binding in module.bindings(node):
            if isinstance(binding.node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                return module, binding.node
    name = module.resolve(node)
    return project.definition(name, module.path) if name is not None else None
