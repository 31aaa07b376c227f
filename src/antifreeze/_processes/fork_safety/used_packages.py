"""Which packages the code of workers uses: read from its bytecode, never run.

1. Begin with the dataset, collate_fn and worker_init_fn: functions, and the classes of objects.
2. A name that code reads is looked up in the globals of its module. A module is used; a function is
   followed; so are methods of a class, and what is in an object.
3. A method counts once its name occurs in code that was followed, or if Python calls it by itself.
   What makes an object counts where its class is named: a dataset's `__init__` ran before the fork.
4. An import inside a function is a name, too. A module of the program's own that has been imported
   is followed; of one that has not, nothing is known.
5. The standard library, torch and numpy are not followed. In a large program the search ends early.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from ..._core.limits import LIMITS
from ..._linux.clock import thread_time
from ..._loading.dataset_walk import ATOMS, inside, is_users
from ..._loading.raw_attributes import (
    declared_module,
    instance_dict,
    is_one_of,
    module_of,
    mro,
    name_of_module,
    namespace,
)

# Looked up for every function that is read.
_FUNCTIONS_READ = LIMITS.searches.used_functions

# Not called in a worker for an object that was there before it.
_MAKING = frozenset(
    {"__init__", "__new__", "__post_init__", "__init_subclass__", "__del__"}
    | {"__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__getnewargs__"}
)


class UsedPackages:
    """The search, until this thread has used so much processor time."""

    def __init__(self, give_up: float) -> None:
        self.found: set[str] = set()
        self._give_up = give_up
        self._seen: set[tuple[int, bool]] = set()
        self._called: set[str] = set()
        self._uncalled: dict[str, list[FunctionType]] = {}  # methods of classes in use
        self._functions: list[FunctionType] = []  # to follow

    @property
    def names(self) -> set[str] | None:
        """All names that occur in the code that was followed; None if it was not followed to its
        end."""
        return None if self._is_over() else self._called

    def look_at(self, thing: Any) -> None:
        """Note an object that workers have, and follow what its code may call."""
        self._take(thing)
        while self._functions and not self._is_over():
            self._follow(self._functions.pop())

    def _is_over(self) -> bool:
        return len(self._seen) > _FUNCTIONS_READ or thread_time() > self._give_up

    def _take(self, thing: Any) -> None:
        level = [thing]
        for _ in range(LIMITS.searches.used_depth):
            following: list[Any] = []
            for each in level:
                kind: Any = type(each)
                if self._is_over():
                    return
                if issubclass(kind, ATOMS):
                    continue
                if issubclass(kind, type):
                    self._take_class(each, made=True)
                elif kind is ModuleType:
                    self._note(name_of_module(each))
                elif self._is_new(each):
                    self._take_object(each, kind)
                    following += [inner for _, inner in inside("", each)]
            level = following

    def _take_object(self, thing: Any, kind: Any) -> None:
        if kind is FunctionType:
            self._add(thing)
        elif kind is MethodType and type(thing.__func__) is FunctionType:
            self._add(thing.__func__)
        else:
            self._take_class(kind, made=False)

    def _take_class(self, kind: Any, *, made: bool) -> None:
        for each in mro(kind):
            module = declared_module(each)
            self._note(module)
            if not is_users(module) or not self._is_new(each, made):
                continue
            for name, value in list(namespace(each).items()):
                for function in _functions_of(value):
                    if name in self._called or (name[:2] == "__" and (made or name not in _MAKING)):
                        self._add(function)
                    else:
                        self._uncalled.setdefault(name, []).append(function)

    def _is_new(self, thing: Any, made: bool = False) -> bool:
        """Whether this is met first. `made`: a class whose objects are made in a worker."""
        if (id(thing), made) in self._seen:
            return False
        self._seen.add((id(thing), made))
        return True

    def _note(self, module: str) -> None:
        self.found.add(module.partition(".")[0])

    def _add(self, function: FunctionType) -> None:
        module = module_of(function)
        if is_users(module) and self._is_new(function.__code__):
            self._note(module)
            self._functions.append(function)

    def _follow(self, function: FunctionType) -> None:
        names = set(_names(function.__code__))
        self._call(names)
        modules = []
        for name in names:
            thing = dict.get(function.__globals__, name, sys.modules.get(name))
            if thing is None:
                self.found.add(name.partition(".")[0])  # what is imported here, perhaps
            elif type(thing) is ModuleType:
                self._note(name_of_module(thing))
                modules.append(thing)
            else:
                self._take(thing)
        for module in modules:
            if is_users(name_of_module(module)):
                inside_it = instance_dict(module)
                for name in names.intersection(inside_it):
                    self._take(inside_it[name])
        for inner in (function.__closure__, function.__defaults__, function.__kwdefaults__):
            self._take(inner)

    def _call(self, names: set[str]) -> None:
        for name in names - self._called:
            for method in self._uncalled.pop(name, ()):
                self._add(method)
        self._called |= names


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals, attributes and imports of a function and those inside it."""
    for name in code.co_names:
        yield name
        if "." in name:
            yield name.partition(".")[0]
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _names(constant)


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """Yield the functions behind an attribute of a class."""
    kind = type(value)
    each: Callable[..., Any] | None
    for each in (value.fget, value.fset) if kind is property else (value,):
        inner = each.__func__ if is_one_of(type(each), staticmethod, classmethod) else each  # type: ignore[union-attr]
        if type(inner) is FunctionType:
            yield inner
