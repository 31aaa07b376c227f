"""The program's own code on its way to a clean process: sent as it is in memory, never imported.

1. A class or a function of the script, or of a module of the program's own, is sent itself, with
   the globals it uses. So what the program has filled in, patched, or edited on disk since arrives
   as it is here; and what a module does when it is imported (opens a log, changes the directory,
   begins a loop) is not done again.
2. Functions of one module have one dict of globals there, too: that of a stand-in for the module,
   under its name in `sys.modules`. What a function imports while it runs, of modules that are here,
   is sent as its globals are. What was not sent is imported when it is asked for
   (`stand_in_modules`).
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
import re
import site
import sys
from collections.abc import Callable, Iterator
from multiprocessing import spawn
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from cloudpickle import cloudpickle  # type: ignore[import-untyped]

from ..._linux import platform_support
from ..._loading.raw_attributes import attribute, instance_dict, name_of_module, namespace
from .name_lookups import Lookups, inner, lookups_in
from .stand_in_modules import Around, Told, namespace_of, stand_in
from .whole_modules import ReplacedModule, WholeModule, fill

SCRIPTS = ("__main__", "__mp_main__")  # the second: in a child of multiprocessing's own making
_DIFFERS = frozenset({"hash", "id"})  # hashes of words, and addresses, are of one process
_TOLD = ("__package__", "__name__", "__path__", "__file__", "__doc__")
MACHINERY = frozenset(
    {"__annotations__", "__builtins__", "__cached__", "__conditional_annotations__", "__loader__"}
    | {"__annotate__", "__annotate_func__", "__spec__", "__warningregistry__", *_TOLD}
)

# Who uses these may look for anything in a module.
_LOOKING = frozenset(
    {"globals", "eval", "exec", "modules", "__main__", "import_module", "__import__"}
)


_IDENTIFIER = re.compile(r"[^\W\d]\w*")
# What a module has that answers for it.
_ANSWERING = frozenset({"__getattr__", "__dir__"})


def globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function, or one inside of it, names."""
    for code in inner(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


def is_own(name: str) -> bool:
    """Say whether a module that is here belongs to the program, and is written in Python."""
    if name in SCRIPTS:
        return True
    module = sys.modules.get(name)
    if module is None or name.partition(".")[0] == "antifreeze":
        return False
    # Its own, not that of its class, as `torch.ops` has it; nor asked of a `__getattr__`.
    path = instance_dict(module).get("__file__")
    if path is None:  # made by hand, if it was not found by anybody
        outer = name.rpartition(".")[0]
        alone = type(module) is ModuleType and attribute(module, "__spec__") is None
        return alone and (not outer or is_own(outer))
    return type(path) is str and path.endswith((".py", ".pyc")) and not _is_of_library(path)


def is_of_library(name: str) -> bool:
    path = attribute(sys.modules.get(name), "__file__")
    return type(path) is str and _is_of_library(path)


def _is_of_library(path: str) -> bool:
    return path.startswith(_places_of_libraries())


@functools.cache
def _places_of_libraries() -> tuple[str, ...]:
    # Those of this environment; of the one it was made from; and where torch is, wherever that is.
    standard = os.path.dirname(os.__file__)
    with_torch = os.path.dirname(os.path.dirname(torch.__file__))
    places = (standard, with_torch, *site.getsitepackages(), site.getusersitepackages())
    return (*(place + os.sep for place in places), "<frozen")


class UserCode:
    """What one pickler has sent of it."""

    def __init__(self, globals_ref: dict[int, Any]) -> None:
        """`globals_ref`: where cloudpickle keeps, for each dict of globals, what stands for it."""
        self._globals_ref = globals_ref
        self._own: dict[str, bool] = {}
        self._told: dict[str, Around] = {}  # one for each module: pickle sends it once
        self.sent: list[tuple[Around, str, Any]] = []  # classes and functions, with their names
        # What functions import while they run: names in modules.
        self._imported: dict[tuple[str, str], bool] = {}  # and whether they were taken
        self.looks_for_names = False  # a function that was sent may look for others by name
        self.words: set[str] = set()  # in its code: these may be the names
        # Modules of which all is to be sent: True if nothing less will do; and those that were.
        self._whole: dict[str, bool] = {}
        self._taken: set[str] = set()
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
        outer = _names_in(thing.__module__).get(steps[0])
        found = outer
        for step in steps[1:]:
            found = getattr(found, step, None)
        if found is thing:  # else it is not found by name here either
            self.sent.append((self.around(thing.__module__), qualified, thing))
            if outer is not thing:
                self.sent.append((self.around(thing.__module__), steps[0], outer))

    def note_annotations(self, kind: type) -> None:
        """Take note of what annotations of a class name that are still strings: whoever asks for
        its type hints looks that up in its module."""
        here = _names_in(kind.__module__)
        for annotation in list(namespace(kind).get("__annotations__", {}).values()):
            for name in _IDENTIFIER.findall(annotation) if type(annotation) is str else ():
                if name in here and kind.__module__ not in SCRIPTS:
                    self._imported.setdefault((kind.__module__, name), False)

    def seed(self, function: FunctionType) -> None:
        """Have a function's globals be those of its module there, too. Raises TypeError if it would
        find something else there than here."""
        self._refuse_what_would_differ(function)
        lookups = lookups_in(function)
        if any(not _LOOKING.isdisjoint(each.co_names) for each in inner(function.__code__)):
            self.looks_for_names = True
        self._note_lookups(function, lookups)
        self._note_imports(function, lookups)
        given = function.__globals__
        name = given.get("__name__")
        if id(given) in self._globals_ref or type(name) is not str:
            return
        if _names_in(name) is given:
            self._globals_ref[id(given)] = _Globals(self.around(name), is_own(name))

    def around(self, name: str) -> Around:
        """Tell of a module, and of the packages around it, the outermost first."""
        if name not in self._told:
            outer = name.rpartition(".")[0]
            self._told[name] = (*(self.around(outer) if outer else ()), _told_of(name))
            if name not in SCRIPTS and is_own(name) and type(sys.modules[name]) is not ModuleType:
                self._whole[name] = True  # its class may do anything with what is in it
        return self._told[name]

    def _note_lookups(self, function: FunctionType, lookups: Lookups) -> None:
        """Take note of modules in which a function may look for anything."""
        name = function.__globals__.get("__name__")
        looks = lookups.own_module or lookups.any_module
        if lookups.script or (name in SCRIPTS and looks):
            self.words.update(lookups.words)
        is_known = False
        if lookups.own_module and type(name) is str and self._may_be_whole(name):
            self._whole[name], is_known = True, True
        if lookups.any_module:
            for word in sorted(lookups.words):
                if word != name and self._may_be_whole(word):
                    self._whole[word], is_known = True, True
            for each in () if is_known or lookups.own_module else list(sys.modules):
                if self._may_be_whole(each):
                    self._whole.setdefault(each, False)

    def named_in_script(self) -> dict[str, Any]:
        """Return what in the script has a name that is written in the code that looks there."""
        here = _names_in("__main__")
        steps = {step for word in self.words for step in _IDENTIFIER.findall(word)}
        found = {}
        for name in sorted(steps.intersection(here).difference(MACHINERY)):
            value = here[name]
            if type(value) is ModuleType and self._is_own_module(value):
                value = WholeModule(self.around(value.__name__), {})  # no more than the stand-in
            found[name] = value
        return found

    @staticmethod
    def _may_be_whole(name: str) -> bool:
        return name not in SCRIPTS and is_own(name)

    def take_whole(self) -> list[tuple[WholeModule | ReplacedModule, bool]]:
        """Return the modules of which all is to be sent, and whether they must be. Each is returned
        once."""
        new = [(name, must) for name, must in self._whole.items() if name not in self._taken]
        self._taken.update(name for name, _ in new)
        return [(self._whole_module(name), must) for name, must in new]

    def _whole_module(self, name: str) -> WholeModule | ReplacedModule:
        module = sys.modules[name]
        if not issubclass(type(module), ModuleType):
            outer = name.rpartition(".")[0]
            return ReplacedModule(name, self.around(outer) if outer else (), module)
        content, inner = _content(module), {}
        for each, value in content.items():
            if type(value) is ModuleType and self._is_own_module(value):
                inner[each] = WholeModule(self.around(value.__name__), {})
        made = WholeModule(self.around(name), inner)
        made.content = {each: value for each, value in content.items() if each not in inner}
        return made

    @staticmethod
    def _is_own_module(module: ModuleType) -> bool:
        return sys.modules.get(module.__name__) is module and is_own(module.__name__)

    def _note_imports(self, function: FunctionType, lookups: Lookups) -> None:
        names, imported = set(function.__code__.co_names), list(_imports_in(function.__code__))
        if not imported:
            return
        package = str(function.__globals__.get("__package__") or "")
        left = [name for each in imported for name in _resolved(each, package)]
        for code in inner(function.__code__):
            names.update(code.co_names)
        seen: set[str] = set()
        while left:
            name = left.pop()
            if _is_replaced(name):
                self._whole[name] = True
            if name in seen or not is_own(name):
                continue
            seen.add(name)
            here = _names_in(name)
            if name not in SCRIPTS:
                self.around(name)  # it may be of a class of its own
                if lookups.imported or not _ANSWERING.isdisjoint(here):
                    self._whole.setdefault(name, False)
            for each in sorted(names.intersection(here)):
                value = here[each]
                if type(value) is ModuleType:
                    left.append(value.__name__)
                else:
                    self._imported.setdefault((name, each), False)

    def take_imported(self) -> list[tuple[str, str, Any]]:
        """Return what functions that were sent import while they run: module, name, and value. Each
        is returned once."""
        new = [each for each, taken in self._imported.items() if not taken]
        found = []
        for module, name in new:
            self._imported[module, name] = True
            if name in (here := _names_in(module)):
                found.append((module, name, here[name]))
        return found

    def _refuse_what_would_differ(self, function: FunctionType) -> None:
        code, name = function.__code__, function.__qualname__
        if _is_of_library(code.co_filename):  # what a decorator has made: `repr` of dataclasses
            return
        for each in inner(code):
            if "__subclasses__" in each.co_names:
                raise TypeError(
                    f"{name} asks for subclasses; those that nothing refers to are not sent"
                )
            for builtin in sorted(_DIFFERS.intersection(each.co_names)):
                if each.co_name != "__hash__" and _calls(each, builtin, function.__globals__):
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
        if sys.modules.get(name) is not module:
            return _reduce_inner_module(module) or cloudpickle._module_reduce(module)
        if not is_own(name):
            return cloudpickle._module_reduce(module)
        content = {} if name in SCRIPTS else _content(module)
        kind = type(module) if type(module) is not ModuleType else None
        return stand_in, (self.around(name),), (content, kind), None, None, fill


def _names_in(name: str) -> dict[str, Any]:
    """Return what is in a module, whatever stands for it."""
    module: Any = sys.modules.get(name)
    return namespace_of(module) if issubclass(type(module), ModuleType) else instance_dict(module)


def _is_replaced(name: str) -> bool:
    """Whether something that is no module stands in a module's place, and is the program's own."""
    module = sys.modules.get(name)
    if module is None or issubclass(type(module), ModuleType):
        return False
    methods = [each for each in namespace(type(module)).values() if type(each) is FunctionType]
    return any(os.path.isfile(path) and not _is_of_library(path) for path in map(_file_of, methods))


def _file_of(function: FunctionType) -> str:
    return function.__code__.co_filename


def _calls(code: CodeType, builtin: str, given: dict[str, Any]) -> bool:
    """Whether code uses a builtin, not an attribute or a global of that name."""
    if builtin in given:
        return False
    return any(
        each.opname in ("LOAD_GLOBAL", "LOAD_NAME") and each.argval == builtin
        for each in dis.get_instructions(code)
    )


def _changed_variables(function: FunctionType) -> set[str]:
    """Return the variables of enclosing functions that a function sets (`nonlocal`)."""
    if not function.__closure__:
        return set()
    sets = ("STORE_DEREF", "DELETE_DEREF")
    return {each.argval for each in dis.get_instructions(function) if each.opname in sets}


def _reduce_inner_module(module: ModuleType) -> Any:
    """Return how a module is found that is none by itself, but an attribute of one, as `torch.ops`;
    None if it is not."""
    outer, _, name = module.__name__.rpartition(".")
    if outer not in sys.modules or is_own(outer):
        return None
    found = getattr(sys.modules[outer], name, None) is module
    return (_attribute_of, (outer, name)) if found else None


def _content(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in MACHINERY}


def _is_found(value: Any) -> bool:
    """Whether something is a module, of a class of its own, that is imported by its name."""
    is_module = issubclass(type(value), ModuleType)
    return is_module and sys.modules.get(name_of_module(value)) is value


def _told_of(name: str) -> Told:
    here = _names_in(name).copy()
    attributes = {each: here[each] for each in _TOLD if here.get(each) is not None}
    if "__path__" in attributes:
        attributes["__path__"] = list(attributes["__path__"])
    if name in SCRIPTS:  # it is never imported there
        return Told(name, attributes)
    modules, others = {}, []
    for each, value in here.items():
        if type(value) is ModuleType or _is_found(value):
            modules[each] = value.__name__
        elif each not in MACHINERY:
            others.append(each)
    top = name.partition(".")[0]
    family = tuple(each for each in list(sys.modules) if each.partition(".")[0] == top)
    return Told(name, attributes, modules, tuple(others), family)


@functools.lru_cache(maxsize=1024)
def _imports_in(code: CodeType) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return what a function imports while it runs: the module, with a dot for each level, and the
    names that are taken from it."""
    found = []
    for each in inner(code):
        if not each.co_names:
            continue
        before: list[Any] = [None, None]
        for step in dis.get_instructions(each):
            if step.opname == "IMPORT_NAME":
                level, names = before
                found.append(("." * int(level or 0) + step.argval, tuple(names or ())))
            before = [before[1], step.argval]
    return tuple(found)


def _resolved(imported: tuple[str, tuple[str, ...]], package: str) -> list[str]:
    """Return the modules that an import statement may name, in full."""
    name, names = imported
    try:
        full = importlib.util.resolve_name(name, package) if name.startswith(".") else name
    except ImportError:  # it goes beyond the top: it will raise there, too
        return []
    steps = full.split(".")
    inner = [f"{full}.{each}" for each in names]
    return [*(".".join(steps[: place + 1]) for place in range(len(steps))), *inner]


class _Globals(dict[str, Any]):
    """Stands for a module's globals; where it is unpickled, it is those of the module there."""

    def __init__(self, around: Around, own: bool) -> None:
        super().__init__(around=around)  # not empty: cloudpickle leaves it alone
        self._around, self._own = around, own

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if self._own:
            return _own_globals, (self._around,)
        return _globals, (self._around[-1].name,)


class Script:
    """The program's script; where it is unpickled, it has been run, but for what it guards."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        path = getattr(main, "__file__", None)
        return run_script, (None if spec is None else spec.name, path and os.path.abspath(path))


# ---- in the clean process ------------------------------------------------------------------------


def run_script(name: str | None, path: str | None) -> None:
    """Run the program's script as multiprocessing does for a process it has spawned."""
    platform_support.runs_script_again = True
    sys.modules["__main__"] = ModuleType("__main__")  # else it would seem to have been run
    try:
        if name is not None:
            spawn._fixup_main_from_name(name)  # type: ignore[attr-defined]
        elif path is not None:
            spawn._fixup_main_from_path(path)  # type: ignore[attr-defined]
    finally:
        platform_support.runs_script_again = False


def install(sent: list[tuple[Around, str, Any]]) -> None:
    """Have what was sent be found under its name: in batches it is pickled by that."""
    for around, qualified, thing in sent:
        if not qualified:  # a whole module
            continue
        if isinstance(thing, type):
            type.__setattr__(thing, "__qualname__", qualified)  # a metaclass may refuse
        if "." not in qualified:
            namespace_of(stand_in(around))[qualified] = thing


def _attribute_of(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _own_globals(around: Around) -> dict[str, Any]:
    return namespace_of(stand_in(around))


def _globals(name: str) -> dict[str, Any]:
    return vars(importlib.import_module(name))
