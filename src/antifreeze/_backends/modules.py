"""What the program changed in modules it has imported: carried to a process that imports them anew.

`ImageFile.LOAD_TRUNCATED_IMAGES = True` holds for a forked worker without a word. For one that
comes from a clean process:

1. Plain values (numbers, strings, and lists, tuples, dicts and sets of them) are sent and set: of
   libraries those with a public name, of the program's own modules and their classes all.
2. So is what the script itself has put in place of a library's function or class.
3. Of the rest of the program's own modules only the kind is told. If an import does not bring the
   same (`TABLE = None`, and filled in later), a clean process is not what the program is.

A module that is imported later, in a worker, gets its values then.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import site
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

from .._core.messages import frozen
from .faithful import Unsendable

logger = logging.getLogger("antifreeze")

_SCALARS = frozenset({bool, int, float, complex, str, bytes, type(None)})
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
PLAIN_ITEMS = 1_000  # in one value, counted to the ground; a larger one is no setting
# Theirs is the process's own, or ours.
_LEFT_ALONE = frozenset({"__main__", "__mp_main__", "sys", "os", "posix", "antifreeze"})


@frozen
class Attributes:
    """Of one module."""

    values: dict[str, Any]  # plain ones, and the script's own functions and classes
    of_classes: dict[str, dict[str, Any]]
    kinds: dict[str, str]  # of all others; only of the program's own modules


def collect(*, of_script: bool = True) -> dict[str, Attributes]:
    """Read the modules of this process, in about 10 ms. Raises Unsendable if one of the program's
    own is being imported: it runs the loop, and would run another one in a clean process."""
    found: dict[str, Attributes] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _LEFT_ALONE or not isinstance(module, ModuleType):
            continue
        own = _is_own(module)
        if own and getattr(getattr(module, "__spec__", None), "_initializing", False):
            raise Unsendable(f"the module {name} is not yet imported: it is what runs here")
        attributes = _own(module, of_script) if own else _public(module, of_script)
        if attributes.values or attributes.kinds or attributes.of_classes:
            found[name] = attributes
    return found


def _public(module: ModuleType, of_script: bool) -> Attributes:
    values: dict[str, Any] = {}
    for name, value in list(vars(module).items()):  # of all modules, 60,000: every test counts
        kind = type(value)
        if kind is FunctionType or kind is type:
            if value.__module__ == "__main__" and of_script:
                values[name] = value
        elif name[:1] != "_" and (
            kind in _SCALARS or (kind in _CONTAINERS and _plain_items(value, PLAIN_ITEMS) > 0)
        ):
            values[name] = value
    return Attributes(values, {}, {})


def _own(module: ModuleType, of_script: bool) -> Attributes:
    values: dict[str, Any] = {}
    of_classes: dict[str, dict[str, Any]] = {}
    kinds: dict[str, str] = {}
    for name, value in list(vars(module).items()):
        if name.startswith("__") or not name.isidentifier():
            continue
        if is_plain(value) or (of_script and _is_of_script(value)):
            values[name] = value
        elif type(value) is type:
            if value.__module__ == module.__name__ and (plain := dict(_plain_of(value))):
                of_classes[name] = plain
        elif not isinstance(value, ModuleType | FunctionType | type):
            kinds[name] = _kind(value)
    return Attributes(values, of_classes, kinds)


def _plain_of(kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(kind).items()):
        if not name.startswith("__") and is_plain(value):
            yield name, value


def is_plain(value: Any) -> bool:
    kind = type(value)
    return kind in _SCALARS or (kind in _CONTAINERS and _plain_items(value, PLAIN_ITEMS) > 0)


def _plain_items(value: Any, left: int) -> int:
    """Give how many items may still come, 0 if there are too many, or one that is not plain."""
    if len(value) >= left:
        return 0
    left -= len(value)
    inner = [*value, *value.values()] if type(value) is dict else value
    for each in inner:
        if type(each) in _SCALARS:
            continue
        if type(each) not in _CONTAINERS or (left := _plain_items(each, left)) <= 0:
            return 0
    return left


def _is_of_script(value: Any) -> bool:
    return type(value) in (FunctionType, type) and value.__module__ == "__main__"


def _kind(value: Any) -> str:
    kind = type(value)
    sized = f" of {len(value)}" if kind in _CONTAINERS else ""
    return f"{kind.__module__}.{kind.__qualname__}{sized}".removeprefix("builtins.")


def _is_own(module: ModuleType) -> bool:
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and not path.startswith(_of_libraries())


def is_of_library(name: str) -> bool:
    """Say whether a module that is imported here belongs to a library, not to the program."""
    path = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(path, str) and path.startswith(_of_libraries())


@functools.cache
def _of_libraries() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    places = {sysconfig.get_paths()[name] for name in names}
    places |= {*site.getsitepackages(), site.getusersitepackages()}
    return (*places, "<frozen")


# ---- in the clean process -----------------------------------------------------------------------


class Unlike(list[str]):
    """What could not be made the same."""

    _is_told = False

    def tell(self) -> None:
        """Say from here on, once, if there is something new: it is too late to fork."""
        self._is_told = True

    def note(self, what: str) -> None:
        self.append(what)
        if self._is_told:
            self._is_told = False
            logger.warning("antifreeze: in workers, %s is not what the program made of it", what)


def install(carried: dict[str, Attributes]) -> Unlike:
    """Set what was carried, now and whenever a module is imported. Gives a list that fills with
    what could not be made the same."""
    unlike = Unlike()
    for name, attributes in carried.items():
        if (module := sys.modules.get(name)) is not None:
            _set(module, attributes, unlike)
    sys.meta_path.insert(0, _Finder(carried, unlike))
    return unlike


def _set(module: ModuleType, attributes: Attributes, unlike: Unlike) -> None:
    present = vars(module)
    for name, value in attributes.values.items():
        _put(module, name, present.get(name, module), value)
    for name, values in attributes.of_classes.items():
        kind = present.get(name)
        if isinstance(kind, type):
            for each, value in values.items():
                _put(kind, each, vars(kind).get(each, module), value)
    for name, kind_told in attributes.kinds.items():
        there = _kind(present[name]) if name in present else "missing"
        if there != kind_told:
            unlike.note(f"{module.__name__}.{name} ({kind_told}; in a clean process: {there})")


def _put(place: Any, name: str, present: Any, value: Any) -> None:
    """Set a value if it is another; a container keeps its identity, which others may have taken."""
    if type(present) is type(value) and present == value:
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


class _Finder(importlib.abc.MetaPathFinder):
    """Stands before all others: has a module found by them, and its values set when it is there."""

    def __init__(self, carried: dict[str, Attributes], unlike: Unlike) -> None:
        self._carried, self._unlike = carried, unlike

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        attributes = self._carried.get(name)
        if attributes is None:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, attributes, self._unlike)
                return spec  # type: ignore[no-any-return]
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, behind: Any, attributes: Attributes, unlike: Unlike) -> None:
        self._behind, self._attributes, self._unlike = behind, attributes, unlike

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._behind.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._behind  # as if nobody had stood before
        self._behind.exec_module(module)
        _set(module, self._attributes, self._unlike)
