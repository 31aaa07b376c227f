"""The program's own code on its way to a clean process: sent as it is in memory, never imported.

1. A class or a function of the script, or of a module of the program's own, is sent itself, with
   the globals it uses. So what the program has filled in, patched, or edited on disk since arrives
   as it is here; and what a module does when it is imported (opens a log, changes the directory,
   begins a loop) is not done again.
2. Functions of one module have one dict of globals there, too: that of a stand-in for the module,
   under its name in `sys.modules`. What of it was not sent is imported when it is asked for.
3. Libraries are imported: they are what they were.
4. Where the user wants a clean process, and a module holds what cannot be sent, everything is found
   by name, as torch's workers do: modules are imported, and the script is run once more, not as
   `__main__` (`Script`).
"""

from __future__ import annotations

import dis
import functools
import importlib.util
import os
import site
import sys
from collections.abc import Callable
from multiprocessing import spawn
from types import FunctionType, ModuleType
from typing import Any

import torch
from cloudpickle import cloudpickle  # type: ignore[import-untyped]

from .. import _platform

SCRIPTS = ("__main__", "__mp_main__")  # the second: in a child of multiprocessing's own making
_DIFFERS = frozenset({"hash", "id"})  # hashes of words, and addresses, are of one process
_TOLD = ("__package__", "__name__", "__path__", "__file__")

# Who uses these may look for anything in a module.
_LOOKING = frozenset({"globals", "eval", "exec", "modules", "__main__", "import_module"})

# What a stand-in must know of its module, and of the packages around it: name and attributes.
Names = tuple[tuple[str, dict[str, Any]], ...]


def is_own(name: str) -> bool:
    """Say whether a module that is here belongs to the program, and is written in Python."""
    if name in SCRIPTS:
        return True
    module = sys.modules.get(name)
    if module is None or name.partition(".")[0] == "antifreeze":
        return False
    path = getattr(module, "__file__", None)
    if path is None:  # made by hand, if it was not found by anybody
        outer = name.rpartition(".")[0]
        alone = type(module) is ModuleType and module.__spec__ is None
        return alone and (not outer or is_own(outer))
    return isinstance(path, str) and path.endswith((".py", ".pyc")) and not _is_of_library(path)


def is_of_library(name: str) -> bool:
    path = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(path, str) and _is_of_library(path)


def _is_of_library(path: str) -> bool:
    return path.startswith(_places_of_libraries())


@functools.cache
def _places_of_libraries() -> tuple[str, ...]:
    # Those of this environment; of the one it was made from; and where torch is, wherever that is.
    standard = os.path.dirname(os.__file__)
    with_torch = os.path.dirname(os.path.dirname(torch.__file__))
    places = (standard, with_torch, *site.getsitepackages(), site.getusersitepackages())
    return (*(place + os.sep for place in places), "<frozen")


class OwnCode:
    """What one pickler has sent of it."""

    def __init__(self, globals_ref: dict[int, Any]) -> None:
        """`globals_ref`: where cloudpickle keeps, for each dict of globals, what stands for it."""
        self._globals_ref = globals_ref
        self._own: dict[str, bool] = {}
        self.sent: list[tuple[Names, str, Any]] = []  # classes and functions, with their names
        self.looks_for_names = False  # a function that was sent may look for others by name
        # Of closures: how many functions have a variable, and whether one of them changes it.
        self._cells: dict[int, tuple[int, bool]] = {}

    def takes(self, thing: Any) -> bool:
        """Say whether a class or function is the program's own."""
        name = getattr(thing, "__module__", None)
        if type(name) is not str:
            return False
        if name not in self._own:
            self._own[name] = is_own(name)
        return self._own[name]

    def note(self, thing: Any) -> None:
        """Take note that a class or a function is sent itself."""
        qualified: str = thing.__qualname__
        steps = qualified.split(".")
        outer = vars(sys.modules.get(thing.__module__, _NOTHING)).get(steps[0])
        found = outer
        for step in steps[1:]:
            found = getattr(found, step, None)
        if found is thing:  # else it is not found by name here either
            self.sent.append((_names(thing.__module__), qualified, thing))
            if outer is not thing:
                self.sent.append((_names(thing.__module__), steps[0], outer))

    def seed(self, function: FunctionType) -> None:
        """Have a function's globals be those of its module there, too. Raises TypeError if it would
        find something else there than here."""
        self._refuse_what_would_differ(function)
        if not _LOOKING.isdisjoint(function.__code__.co_names):
            self.looks_for_names = True
        given = function.__globals__
        name = given.get("__name__")
        if id(given) in self._globals_ref or type(name) is not str:
            return
        if vars(sys.modules.get(name, _NOTHING)) is given:
            self._globals_ref[id(given)] = _Globals(_names(name), is_own(name))

    def _refuse_what_would_differ(self, function: FunctionType) -> None:
        code, name = function.__code__, function.__qualname__
        if _is_of_library(code.co_filename):  # what a decorator has made: `repr` of dataclasses
            return
        if "__subclasses__" in code.co_names:
            raise TypeError(
                f"{name} asks for subclasses; those that nothing refers to are not sent"
            )
        for builtin in sorted(_DIFFERS.intersection(code.co_names)):
            if _calls(function, builtin) and function.__name__ != "__hash__":
                raise TypeError(f"{name} uses {builtin}(), which gives something else there")
        changed = _changed_variables(function)
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            others, changes = self._cells.get(id(cell), (0, False))
            changes = changes or variable in changed
            self._cells[id(cell)] = others + 1, changes
            if others and changes:
                raise TypeError(
                    f"{name} shares the variable {variable!r} with another function, and one of"
                    " them changes it: each would have its own"
                )

    def reduce_module(self, module: ModuleType) -> Any:
        """Send a module: the program's own as all that is in it, others by name."""
        name = module.__name__
        if sys.modules.get(name) is not module or not is_own(name):
            return cloudpickle._module_reduce(module)
        content = {} if name in SCRIPTS else _content(module)
        return stand_in, (_names(name),), content, None, None, _fill


_NOTHING = ModuleType("nothing")


def reduce_class(kind: type) -> Any:
    """Send a class as cloudpickle does, but with its slots: made without them, its objects would
    have a dict there, and could not come back."""
    reduced = cloudpickle._dynamic_class_reduce(kind)
    slots = vars(kind).get("__slots__")
    if not slots or reduced[0] is not cloudpickle._make_skeleton_class:
        return reduced  # of none there is nothing to keep, and a NamedTuple makes them itself
    make, (constructor, name, bases, given, *rest), (attributes, more), *others = reduced
    slots = (slots,) if isinstance(slots, str) else tuple(slots)
    made = {"__slots__", *slots, *(f"_{name.lstrip('_')}{slot}" for slot in slots)}
    attributes = {each: value for each, value in attributes.items() if each not in made}
    given = {**given, "__slots__": slots}
    return make, (constructor, name, bases, given, *rest), (attributes, more), *others


def _calls(function: FunctionType, builtin: str) -> bool:
    """Whether a function uses a builtin, not an attribute or a global of that name."""
    if builtin in function.__globals__:
        return False
    return any(
        each.opname == "LOAD_GLOBAL" and each.argval == builtin
        for each in dis.get_instructions(function)
    )


def _changed_variables(function: FunctionType) -> set[str]:
    """Return the variables of enclosing functions that a function sets (`nonlocal`)."""
    if not function.__closure__:
        return set()
    sets = ("STORE_DEREF", "DELETE_DEREF")
    return {each.argval for each in dis.get_instructions(function) if each.opname in sets}


def _content(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if not name.startswith("__")}


def _names(name: str) -> Names:
    """Tell of a module, and of the packages around it, the outermost first."""
    told: list[tuple[str, dict[str, Any]]] = []
    while name:
        here = vars(sys.modules[name]) if name in sys.modules else {}
        attributes = {each: here[each] for each in _TOLD if here.get(each) is not None}
        if "__path__" in attributes:
            attributes["__path__"] = list(attributes["__path__"])
        told.insert(0, (name, attributes))
        name = name.rpartition(".")[0]
    return tuple(told)


class _Globals(dict[str, Any]):
    """Stands for a module's globals; where it is unpickled, it is those of the module there."""

    def __init__(self, names: Names, own: bool) -> None:
        super().__init__(names=names)  # not empty: cloudpickle leaves it alone
        self._names, self._own = names, own

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (_own_globals, (self._names,)) if self._own else (_globals, (self._names[-1][0],))


class Script:
    """The program's script; where it is unpickled, it has been run, but for what it guards."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        path = getattr(main, "__file__", None)
        return run_script, (None if spec is None else spec.name, path and os.path.abspath(path))


# ---- in the clean process ------------------------------------------------------------------------


class StandIn(ModuleType):
    """A module of the program's own, of which only what is needed was sent."""

    def __getattr__(self, name: str) -> Any:
        here = vars(self)
        if name.startswith("__") or here.get("__file__") is None or self.__name__ in SCRIPTS:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if "__path__" in here and importlib.util.find_spec(f"{self.__name__}.{name}") is not None:
            raise AttributeError(name)  # a module of its own, which is found by itself
        if "__real__" not in here:
            here["__real__"] = _import_beside(self)
        return getattr(here["__real__"], name)


def _import_beside(module: StandIn) -> ModuleType:
    """Import what a stand-in stands for, under the same name, without taking its place."""
    name, path = module.__name__, module.__file__
    assert path is not None
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=vars(module).get("__path__")
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not there", name=name)
    real = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(real)
    return real


def stand_in(names: Names) -> ModuleType:
    """Give the stand-in for a module; make it, and those for the packages around it."""
    outer: ModuleType | None = None
    for name, attributes in names:
        module = sys.modules.get(name)
        if module is None:
            module = sys.modules[name] = StandIn(name)
        if isinstance(module, StandIn):
            vars(module).update(attributes)
        if outer is not None:
            setattr(outer, name.rpartition(".")[2], module)
        outer = module
    assert outer is not None
    return outer


def run_script(name: str | None, path: str | None) -> None:
    """Run the program's script as multiprocessing does for a process it has spawned."""
    _platform.runs_script_again = True
    sys.modules["__main__"] = ModuleType("__main__")  # else it would seem to have been run
    try:
        if name is not None:
            spawn._fixup_main_from_name(name)  # type: ignore[attr-defined]
        elif path is not None:
            spawn._fixup_main_from_path(path)  # type: ignore[attr-defined]
    finally:
        _platform.runs_script_again = False


def install(sent: list[tuple[Names, str, Any]]) -> None:
    """Have what was sent be found under its name: in batches it is pickled by that."""
    for names, qualified, thing in sent:
        if isinstance(thing, type):
            thing.__qualname__ = qualified
        if "." not in qualified:
            vars(stand_in(names)).setdefault(qualified, thing)


def _fill(module: ModuleType, content: dict[str, Any]) -> None:
    vars(module).update(content)


def _own_globals(names: Names) -> dict[str, Any]:
    return vars(stand_in(names))


def _globals(name: str) -> dict[str, Any]:
    return vars(importlib.import_module(name))
