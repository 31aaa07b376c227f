"""What the program changed in libraries it has imported: carried to a process that imports them.

`ImageFile.LOAD_TRUNCATED_IMAGES = True` holds for a forked worker without a word. For one that
comes from a clean process plain values (numbers, strings, and lists, tuples, dicts and sets of
them) with a public name are sent and set; so are registries, to which the program may have added,
and what it has put in place of a library's function or class. A library that is imported later, in
a worker, gets its values then.

Of the program's own modules nothing is needed here: they are sent, not imported (`user_code`).
"""

from __future__ import annotations
import __future__

import functools
import hashlib
import marshal
import pickle
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from ..._reporting.log import logger
from ...integrations.import_hooks import Follower
from . import user_code
from .mapped_memory import Areas
from .pointer_values import LEFT_OUT, with_addresses, without_addresses
from .stand_in_modules import Around, Told
from .user_code import MACHINERY, is_own

_SCALARS = frozenset({bool, int, float, complex, str, bytes, type(None)})
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
_TOLD = _SCALARS | _CONTAINERS
# The last is what `from __future__ import annotations` leaves behind.
_CODE = (FunctionType, BuiltinFunctionType, ModuleType, type, __future__._Feature)
_WRAPPERS = frozenset({functools.partial, MethodType, type(functools.cache(len))})
Known = dict[str, bytes]  # digests of the plain values of modules, by name
PLAIN_ITEMS = 1_000  # in one value, counted to the ground; a larger one is no setting
PLAIN_DEPTH = 50  # containers, one in the other; what is deeper is no setting, nor fit to be walked
_LEFT_ALONE = frozenset({"__main__", "__mp_main__", "antifreeze"})
# Their values are the process's own; functions that the program has put there are not.
_OF_PROCESS = frozenset({"sys", "os", "posix"})


def collect(known: Known, *, of_program: bool = True) -> dict[str, dict[str, Any]]:
    """Read the libraries of this process, in 10 to 30 ms: what the other one does not have."""
    own = {name for name in list(sys.modules) if is_own(name)}
    areas = Areas()
    found: dict[str, dict[str, Any]] = {}
    for name, module in list(sys.modules.items()):
        if name in own or name.partition(".")[0] in _LEFT_ALONE:
            continue
        if not isinstance(module, ModuleType) or (name in _OF_PROCESS and not of_program):
            continue
        if values := _values(module, own, of_program, areas):
            found[name] = values
    return {name: values for name, values in found.items() if not _is_known(known, name, values)}


def digests() -> Known:
    """Read the libraries of this process, which is clean: what need not be sent to it."""
    found = collect({}, of_program=False)
    known = {name: _digest(values) for name, values in found.items()}
    return {name: digest for name, digest in known.items() if digest is not None}


def _is_known(known: Known, name: str, values: dict[str, Any]) -> bool:
    return (digest := known.get(name)) is not None and digest == _digest(values)


def _digest(values: dict[str, Any]) -> bytes | None:
    try:
        written = marshal.dumps(values, 2)  # equal only if types and order are; later versions
    except ValueError:  # count references, too. There is something in it that is not plain
        return None
    return hashlib.blake2b(written, digest_size=16).digest()


def _values(module: ModuleType, own: set[str], of_program: bool, areas: Areas) -> dict[str, Any]:
    values: dict[str, Any] = {}
    attributes = vars(module).copy()  # of all modules, 60,000: every test counts
    only_code = module.__name__ in _OF_PROCESS
    for name, value in attributes.items():
        kind = type(value)
        if kind is FunctionType or kind is type:
            if of_program and value.__module__ in own:
                values[name] = value
        elif kind in _WRAPPERS:
            if of_program and _is_put_there(module, name, value, own):
                values[name] = value
        elif kind not in _TOLD or name[:1] == "_" or only_code:
            continue
        elif kind in _SCALARS or _plain_items(value, PLAIN_ITEMS) > 0:
            kept = without_addresses(value, areas)
            if kept is not LEFT_OUT:
                values[name] = kept
            if kept is not value and of_program:
                _log_left_out(module.__name__, name)
        elif of_program and (registry := _registry(module, value, own)) is not None:
            values[name] = registry
    return values


def _is_put_there(module: ModuleType, name: str, value: Any, own: set[str]) -> bool:
    """Whether the program has put a callable into a library's module: one of its own code, one that
    calls what has that name in the library, or a method among the builtins (`gettext.install`)."""
    if isinstance(value, functools.partial):
        called = value.func
        displaces = getattr(called, "__name__", None) == name and value is vars(
            sys.modules.get(getattr(called, "__module__", None) or "", module)
        ).get(name)
        return displaces or getattr(called, "__module__", None) in own
    if isinstance(value, MethodType):
        return module.__name__ == "builtins" or value.__func__.__module__ in own
    return getattr(value, "__module__", None) in own  # a function with a cache


def _registry(module: ModuleType, value: Any, own: set[str]) -> Any:
    """Return a container of functions and classes as it is to be sent, if it is: the program may
    have added to it."""
    leaves = _leaves(value, PLAIN_ITEMS)
    if leaves is None:
        return _added(value, own) if type(value) is dict else None
    if any(leaf.__module__ in own for leaf in leaves):
        return value if all(_is_sent(leaf, own) for leaf in leaves) else _added(value, own)
    return None if module.__name__.partition(".")[0] in _steady() else Registry(value)


def _is_sent(leaf: Any, own: set[str]) -> bool:
    """Whether a function or class is the program's own, or found by its name."""
    if leaf.__module__ in own or isinstance(leaf, FunctionType):
        return True
    found: Any = sys.modules.get(leaf.__module__)
    for step in leaf.__qualname__.split("."):
        found = getattr(found, step, None)
    return found is leaf


def _added(registry: dict[Any, Any], own: set[str]) -> Added | None:
    """Return the entries of a registry that the program has made for classes and functions of its
    own, or with them; None if there are none."""
    if len(registry) >= PLAIN_ITEMS:
        return None
    entries = {}
    for key, value in registry.copy().items():
        if any(
            isinstance(each, FunctionType | type) and each.__module__ in own
            for each in (key, value)
        ):
            entries[key] = value
    return Added(entries) if entries else None


def _leaves(value: Any, left: int, depth: int = PLAIN_DEPTH) -> list[Any] | None:
    """Return the functions and classes in a container; None if there is anything else in it."""
    if len(value) >= left or not depth:
        return None
    found: list[Any] = []
    for each in [*value, *value.values()] if type(value) is dict else value:
        if type(each) in _CONTAINERS:
            inner = _leaves(each, left - len(value), depth - 1)
            if inner is None:
                return None
            found += inner
        elif isinstance(each, FunctionType | type):
            found.append(each)
        elif type(each) not in _SCALARS:
            return None
    return found


@functools.cache
def _steady() -> frozenset[str]:
    """Name libraries that fill nothing but caches of their own: those everybody has."""
    return frozenset({"torch", "numpy", *sys.stdlib_module_names})


@functools.cache  # once for each
def _log_left_out(module: str, name: str) -> None:
    logger.debug(
        "antifreeze: %s.%s is an address in this process, or holds some: these are not sent to"
        " workers of a clean process",
        module,
        name,
    )


def without_registered(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what was collected without registries, and without classes of the program's own."""
    return {
        module: {name: value for name, value in values.items() if not _is_registered(value)}
        for module, values in found.items()
    }


def _is_registered(value: Any) -> bool:
    if type(value) in _CONTAINERS:
        return bool(_leaves(value, PLAIN_ITEMS))
    return isinstance(value, Added | type)


class Added:
    """What the program has added to a registry that cannot be sent as a whole."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        self.entries = entries


class Registry:
    """A container of things of libraries, which are found by name; what cannot be is left out."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> Any:
        try:
            return pickle.loads, (pickle.dumps(self._value),)
        except Exception:
            return Registry, (None,)


def around_script() -> Around:
    return (Told("__main__", {}),)


def plain_of_script() -> list[tuple[Around, str, Any]]:
    """Return the plain values of the script, by name."""
    around = around_script()
    return [(around, name, value) for name, value in _plain_of("__main__").items()]


def plain_of_program() -> dict[str, dict[str, Any]]:
    """Return the plain values of the program's own modules, private ones, too: whoever imports one
    in a worker finds there what the program has set. All of a module, or nothing: a module that
    keeps anything else (`connection`) must not find half of its state (`is_connected`)."""
    own = [name for name in list(sys.modules) if is_own(name) and name not in user_code.SCRIPTS]
    found = {}
    for name in own:
        values = _plain_of(name)
        here = vars(sys.modules[name]).copy()
        others = [here[each] for each in here if not (each in values or each in MACHINERY)]
        if values and all(issubclass(type(value), _CODE) for value in others):  # none is asked
            found[name] = values
    return found


def _plain_of(name: str) -> dict[str, Any]:
    here = vars(sys.modules[name]).copy()
    return {
        each: value for each, value in here.items() if is_plain(value) and each not in MACHINERY
    }


def is_plain(value: Any) -> bool:
    kind = type(value)
    return kind in _SCALARS or (kind in _CONTAINERS and _plain_items(value, PLAIN_ITEMS) > 0)


def _plain_items(value: Any, left: int, depth: int = PLAIN_DEPTH) -> int:
    """Return how many items may still come, 0 if there are too many, or one that is not plain."""
    if len(value) >= left or not depth:
        return 0
    left -= len(value)
    inner = [*value, *value.values()] if type(value) is dict else value
    for each in inner:
        if type(each) in _SCALARS:
            continue
        if type(each) not in _CONTAINERS:
            return 0
        if (left := _plain_items(each, left, depth - 1)) <= 0:
            return 0
    return left


# ---- in the clean process -----------------------------------------------------------------------


def install(carried: dict[str, dict[str, Any]]) -> None:
    """Set what was carried, now and whenever a library is imported."""
    for name, values in carried.items():
        if (module := sys.modules.get(name)) is not None:
            _set(values, module)
    Follower({name: functools.partial(_set, values) for name, values in carried.items()}).stand()


def _set(values: dict[str, Any], module: ModuleType) -> None:
    present = vars(module)
    for name, value in values.items():
        if isinstance(value, Registry):
            continue
        there = present.get(name, module)
        if isinstance(value, Added):
            if type(there) is dict:
                there.update(value.entries)
            continue
        whole = with_addresses(value, there)
        if whole is not LEFT_OUT:
            _put(module, name, there, whole)


def _put(place: Any, name: str, present: Any, value: Any) -> None:
    """Set a value if it is another; a container keeps its identity, which others may have taken."""
    same = type(present) is type(value) and present == value
    # In a container 1.0 is not 1, and the order counts.
    if same and (type(value) in _SCALARS or repr(present) == repr(value)):
        return
    match present:
        case list() if type(value) is list:
            present[:] = value
        case dict() if type(value) is dict:
            present.clear()
            present.update(value)
        case set() if type(value) is set:
            present.clear()
            present.update(value)
        case _:
            setattr(place, name, value)
