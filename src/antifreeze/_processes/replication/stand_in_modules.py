"""Stand-ins for the program's own modules in a clean process: what was sent, under its name.

A worker must see what a forked one would. So what was not sent, and is asked for all the same, is
made from the module's own file, as an import does, with two differences:

1. What was sent stays what it is, also while the module's code runs: a class that is derived there
   from one that was sent is derived from that very one.
2. What the program had in its module at that moment is known by name: what is not among it is not
   there, a module among it is imported under its own name, and plain values are those of the
   program (`carried`).

Packages run before what is in them. Where modules import each other in a circle they are run in the
order in which the program first did. One thread runs them at a time (`stand_in_lock`); others that
ask for what is not there yet wait for it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Iterator, MutableMapping
from dataclasses import field
from importlib.machinery import ModuleSpec
from threading import get_ident
from types import ModuleType
from typing import Any

from ..._core.frozen_values import frozen
from ..._core.limits import LIMITS
from .stand_in_lock import StandInLock


@frozen
class Told:
    """What a stand-in knows of its module, as the program had it."""

    name: str
    attributes: dict[str, Any]  # those that import sets, and are plain
    modules: dict[str, str] = field(default_factory=dict)  # its names for modules
    others: tuple[str, ...] = ()  # all its other names
    family: tuple[str, ...] = ()  # modules of its outermost package, the first imported first


Around = tuple[Told, ...]  # a module, and before it the packages around it, the outermost first

_told: dict[str, Told] = {}  # of each stand-in
_begun: dict[str, int] = {}  # those whose own code runs, or has; and the thread
_sent: dict[str, frozenset[str]] = {}  # what was there before the code that runs
_failed: Counter[str] = Counter()  # how often a module's code has failed
_again: set[tuple[int, str]] = set()  # outermost packages, by thread, that are run in another order
_lock = StandInLock()
carried: dict[str, dict[str, Any]] = {}  # plain values of the program's modules


_OF_MODULES: Any = ModuleType.__dict__["__dict__"].__get__  # type: ignore[index]


def namespace_of(module: ModuleType) -> dict[str, Any]:
    """Return what is in a module, as it is: none is asked."""
    return _OF_MODULES(module)  # type: ignore[no-any-return]


class StandIn(ModuleType):
    """A module of the program's own, of which only what is needed was sent."""

    def __getattr__(self, name: str) -> Any:
        return _find(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set it; unless an import does, of a module that something else of that name hides."""
        inner = f"{self.__name__}.{name}"
        is_inner = isinstance(value, ModuleType) and value.__name__ == inner
        if not (is_inner and _has_other(self, inner)):
            super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        told = _told.get(self.__name__)
        if told is not None and "__dir__" in told.others:
            own = namespace_of(self).get("__dir__") or _find(self, "__dir__")
            return sorted(own())
        known = () if told is None else (*told.modules, *told.others)
        return sorted({*namespace_of(self), *known})


class _Partial(StandIn):
    """A stand-in whose code runs: what that makes may be half of what it will be."""

    def __getattribute__(self, name: str) -> Any:
        of_any = ModuleType.__getattribute__  # not of `super`: its class is another soon
        if not name.startswith("__"):
            own = of_any(self, "__name__")
            if name not in _sent.get(own, ()):
                _lock.wait_for(own)
        return of_any(self, name)


def stand_in(around: Around) -> ModuleType:
    """Return the stand-in for a module; make it, and those for the packages around it."""
    outer: ModuleType | None = None
    for told in around:
        module = sys.modules.get(told.name)
        if module is None:
            _PackagesFirst.stand()
            module = sys.modules.setdefault(told.name, StandIn(told.name))
        if isinstance(module, StandIn) and told.name not in _told:
            namespace_of(module).update(told.attributes)
            if (spec := _spec(told)) is not None:
                module.__spec__, module.__loader__ = spec, spec.loader
            _told[told.name] = told
        if outer is not None:
            setattr(outer, told.name.rpartition(".")[2], module)
        outer = module
    assert outer is not None
    return outer


def _has_other(outer: ModuleType, name: str) -> bool:
    """Whether a package has something else under the name of a module in it."""
    short, told = name.rpartition(".")[2], _told.get(outer.__name__)
    if told is None:
        return False
    return short in told.others or told.modules.get(short, name) != name


def _spec(told: Told) -> ModuleSpec | None:
    file, path = told.attributes.get("__file__"), told.attributes.get("__path__")
    if file is None:
        return None
    outer = sys.modules.get(told.name.rpartition(".")[0])
    where = getattr(outer, "__path__", None) if "." in told.name else None
    with contextlib.suppress(Exception):  # finders of the program's may raise anything
        found = importlib.machinery.PathFinder.find_spec(told.name, where)
        if found is not None and found.origin == file:
            return found
    return importlib.util.spec_from_file_location(told.name, file, submodule_search_locations=path)


def _find(module: StandIn, name: str) -> Any:
    """Return what the program has under a name in its module, though it was not sent."""
    here, told = namespace_of(module), _told.get(module.__name__)
    if told is not None:
        if name in (values := carried.get(told.name, {})):
            return here.setdefault(name, values[name])
        if name in told.modules:
            return here.setdefault(name, importlib.import_module(told.modules[name]))
        # Who asks for `__all__` takes all that is there: `from module import *`.
        known = name in told.others or "__getattr__" in told.others or name == "__all__"
        if module.__spec__ is not None and known:
            _complete(told)
            if name in here:
                return here[name]
            if name in told.others and _lock.runs(told.name):
                raise _circular(told, name)
            if "__getattr__" in here:
                return here["__getattr__"](name)
    raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")


def _circular(told: Told, name: str) -> AttributeError:
    return AttributeError(
        f"partially initialized module {told.name!r} has no attribute {name!r} (most likely due to"
        " a circular import)"
    )


def _is_complete(name: str) -> bool:
    return name in _begun and not _lock.runs(name)


def _complete(told: Told) -> None:
    """Run the module's own code, and before it that of the packages around it. In a circle, where
    that code has called this, do nothing."""
    if not _is_complete(told.name):
        with _lock.turn(told.name):
            if told.name not in _begun:
                _run_all(told)


def _run_all(told: Told) -> None:
    before = set(_begun)
    try:
        for each in _outwards(told.name):
            _run(each)
    except (AttributeError, ImportError) as error:
        again = get_ident(), told.name.partition(".")[0]
        if _lock.is_nested or again in _again:  # whoever began it tries again
            raise
        for each, thread in list(_begun.items()):
            if each not in before and thread == get_ident():
                del _begun[each]
        _again.add(again)
        try:
            for each in told.family[: told.family.index(told.name) + 1]:
                _run(each) if each in _told else importlib.import_module(each)
        except (AttributeError, ImportError):
            raise error from None
        finally:
            _again.discard(again)


def _outwards(name: str) -> Iterator[str]:
    steps = name.split(".")
    for place in range(len(steps)):
        yield ".".join(steps[: place + 1])


def _run(name: str) -> None:
    module = sys.modules.get(name)
    spec = None if module is None else module.__spec__
    if not isinstance(module, StandIn) or spec is None:
        return
    with _lock.turn(name):
        if name in _begun:
            return
        if _failed[name] >= LIMITS.sending.module_tries:
            raise ImportError(f"the code of module {name!r} failed {_failed[name]} times")
        loader: Any = spec.loader
        code = loader.get_code(name)
        with _lock.running(name), _partial(module):
            _begun[name] = get_ident()
            try:
                _fill(module, code)
            except BaseException:
                _begun.pop(name, None)
                _failed[name] += 1
                raise


def _fill(module: StandIn, code: Any) -> None:
    """Run a module's code in its stand-in, then have the stand-in be what the program had."""
    here, name = namespace_of(module), module.__name__
    sent = _sent[name]
    exec(code, here, _Locals(here, sent))
    here.update({each: value for each, value in carried.get(name, {}).items() if each in here})
    told = _told[name]
    for each in set(here).difference(sent, told.others, told.modules):
        if not each.startswith("__"):  # the program has taken it away since, or never had it
            del here[each]


@contextlib.contextmanager
def _partial(module: StandIn) -> Iterator[None]:
    """Have other threads wait for what is not in a stand-in yet."""
    name = module.__name__
    _sent[name] = frozenset(each for each in namespace_of(module) if not each.startswith("__"))
    module.__class__ = _Partial
    try:
        yield
    finally:
        _sent.pop(name, None)
        _make_whole(module)


def _make_whole(module: ModuleType | None) -> None:
    if type(module) is _Partial:  # else the module's code has put another class there
        module.__class__ = StandIn  # type: ignore[assignment]


def _forget_others() -> None:
    """Have what other threads were running at a fork be run again, in the child."""
    _again.clear()
    for name in _lock.renew():
        _begun.pop(name, None)
        _sent.pop(name, None)
        _make_whole(sys.modules.get(name))


os.register_at_fork(after_in_child=_forget_others)


class _PackagesFirst:
    """A finder: a module that is not here is imported after the packages around it, as ever."""

    @classmethod
    def stand(cls) -> None:
        if cls not in sys.meta_path:
            sys.meta_path.insert(0, cls)

    @staticmethod
    def find_spec(name: str, path: object, target: object = None) -> ModuleSpec | None:
        outer = _told.get(name.rpartition(".")[0])
        if outer is None or _is_complete(outer.name):
            return None
        with contextlib.suppress(Exception):  # in the program it is there, however that came about
            _complete(outer)
        if _lock.runs(outer.name):  # and imports this one, in a circle
            return None
        # Out of sight: else Python would find it, and load it once more by its own spec.
        present = sys.modules.pop(name, None)
        return None if present is None else ModuleSpec(name, _Present(present))  # type: ignore[arg-type]


class _Present:
    """A loader of what has been imported meanwhile."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it has run."""
        module.__spec__ = self._spec


class _Locals(MutableMapping[str, Any]):
    """A module's names while its code runs: what was sent is not set again."""

    def __init__(self, here: dict[str, Any], sent: frozenset[str]) -> None:
        self._here, self._sent = here, sent

    def __getitem__(self, name: str) -> Any:
        return self._here[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._sent:
            self._here[name] = value

    def __delitem__(self, name: str) -> None:
        if name not in self._sent:
            del self._here[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._here)

    def __len__(self) -> int:
        return len(self._here)
