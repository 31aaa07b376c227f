"""See that a search for generators would find what it found before, without the search.

Before every epoch without workers somebody has to look for generators that are new in the dataset.
Most datasets have the same form every time: so the form is noted once, and compared after that.

1. A form is a tree: the types of what each object holds, in their order, and below that the forms
   of those that hold something themselves. Where all is plain (numbers, words, tensors), it only
   has to stay plain. Where there was a generator there must be the same one.
2. Objects that are held twice are in the tree twice. A search looks at them once: at the place that
   is nearest, so it finds the same in the same order.
3. What is large, deep, or says that it is of another class, has no form and is searched every time.
4. A form holds nothing of the user's but classes and generators: what a program drops is gone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from operator import is_
from types import FunctionType, GetSetDescriptorType, ModuleType
from typing import Any

from .._core.limits import LIMITS
from . import rng_search as search
from .dataset_walk import ATOMS, DESCRIPTORS, is_users
from .rng_adapters import KINDS

# Looked up for every object of a walk.
_DEPTH = LIMITS.searches.dataset_depth
_ITEMS = LIMITS.searches.dataset_items

_PLAIN = search._PLAIN
_all_plain = _PLAIN.issuperset
_own = object.__getattribute__
_Check = Callable[[Any], bool]


class Formless(Exception):
    """There is something that has to be searched."""


class Form:
    """What some objects were like when they were searched."""

    def __init__(self, roots: tuple[Any, ...]) -> None:
        """Note the form of these objects. Raises an exception if they have none."""
        self._left = LIMITS.searches.generator_objects
        self._classes: dict[type, _Check] = {}
        self._modules: dict[str, None] = {}
        self._roots = tuple((type(root), self._note_root(root)) for root in roots)
        self._in_classes = tuple(self._classes.items())
        names = [name for name in self._modules if is_users(name)]
        self._in_modules = tuple((name, _module_check(name)) for name in names)

    def __repr__(self) -> str:
        return f"<Form of {LIMITS.searches.generator_objects - self._left} objects>"

    def holds(self, roots: tuple[Any, ...]) -> bool:
        """Whether a search in these objects would find what it would have found then."""
        try:
            for root, (kind, check) in zip(roots, self._roots):  # noqa: B905 - as many as then
                if type(root) is not kind or (check is not None and not check(root)):
                    return False
            for each, check in self._in_classes:
                if not check(each):
                    return False
            for name, check in self._in_modules:  # noqa: SIM110 - half as long
                if not check(sys.modules.get(name)):
                    return False
            return True
        except Exception:  # something has changed meanwhile, in another thread
            return False

    def _note_root(self, root: Any) -> _Check | None:
        if search._is_generator(root):  # it is not found where it is met again
            raise Formless
        return self._note(root, 0)

    def _note(self, thing: Any, depth: int) -> _Check | None:
        """Return what compares an object with this one, which is of the same type; None if there is
        nothing to compare."""
        kind: Any = type(thing)
        self._left -= 1
        if self._left < 0 or depth >= _DEPTH - 1:
            raise Formless
        if kind is FunctionType:
            return self._note_function(thing, depth)
        if kind in search._BARE:
            return self._note_held(thing, _entries_of(kind), depth)
        about = search._of(kind)
        if about.pretends or not all(map(_has_usual_dict, kind.__mro__)):
            raise Formless
        self._modules.update(dict.fromkeys(about.modules))
        for each in about.of_user:
            if each not in self._classes:
                self._classes[each] = _never  # until it is known: it may hold one of its own
                self._classes[each] = self._note_class(each, depth)
        check = None
        if not about.opaque:
            held_by: Callable[[Any], Any] = _values
            if about.slots or about.is_container:
                held_by = partial(search._attributes, kind=kind, about=about)
            check = self._note_held(thing, held_by, depth)
        return _identity(thing, check) if about.is_generator and depth else check

    def _note_held(self, thing: Any, held_by: Callable[[Any], Any], depth: int) -> _Check | None:
        try:
            held = [*held_by(thing)]
        except AttributeError:  # it has no attributes, and can have none
            return None
        if _all_plain(map(type, held)):
            if held_by is _values:
                return _plain_values
            return lambda it: _all_plain(map(type, held_by(it)))
        return self._tree(held, held_by, depth)

    def _tree(self, held: list[Any], held_by: Callable[[Any], Any], depth: int) -> _Check:
        """Return what compares the things that are held, one by one."""
        kinds = [*map(type, held)]
        inner = [
            (at, check)
            for at, each in enumerate(held)
            if not issubclass(kinds[at], ATOMS) and (check := self._note(each, depth + 1))
        ]

        def check_all(thing: Any) -> bool:
            now = [*held_by(thing)]
            if [*map(type, now)] != kinds:
                return False
            for at, check in inner:  # noqa: SIM110 - half as long
                if not check(now[at]):
                    return False
            return True

        return check_all

    def _note_function(self, function: Any, depth: int) -> _Check:
        module = str(function.__module__)
        self._modules[module] = None
        if _is_bare(function):
            return lambda it: it.__module__ == module and _is_bare(it)
        held = self._tree(search._in_function(function), search._in_function, depth)
        return lambda it: it.__module__ == module and held(it)

    def _note_class(self, kind: type, depth: int) -> _Check:
        held = search._in_class(kind)
        about = search._classes[kind]
        functions = [search._unwrapped(vars(kind).get(about.names[at])) for at in about.functions]
        if not (_all_plain(map(type, held)) and all(map(_is_bare, functions))):
            return self._tree(held, search._in_class, depth)
        return _bare_class(about)


def _entries_of(kind: type) -> Callable[[Any], Any]:
    """Return what gives the entries of a container, as a search does."""
    if kind is list or kind is tuple:
        return lambda it: it[:_ITEMS]
    if kind is dict:
        return lambda it: islice(it.values(), _ITEMS)
    return partial(search._entries, kind=kind)


def _values(thing: Any) -> Any:
    attributes = _own(thing, "__dict__")
    return attributes.values() if type(attributes) is dict else ()


def _plain_values(thing: Any) -> bool:
    attributes = _own(thing, "__dict__")
    return type(attributes) is dict and _all_plain(map(type, attributes.values()))


def _identity(generator: Any, check: _Check | None) -> _Check:
    if check is None:
        return lambda it: it is generator
    return lambda it: it is generator and check(it)


def _has_usual_dict(kind: type) -> bool:
    return type(vars(kind).get("__dict__")) in (type(None), GetSetDescriptorType)


def _never(thing: Any) -> bool:
    return False


def _is_bare(function: Any) -> bool:
    if type(function) is not FunctionType:
        return False
    usual = function.__defaults__ or ()
    return not (function.__closure__ or function.__kwdefaults__) and _all_plain(map(type, usual))


def _module_check(name: str) -> _Check:
    module = sys.modules.get(name)
    if module is None:
        return lambda it: it is None
    if type(module) is not ModuleType:  # something that a program has put in its place
        raise Formless
    values = [*vars(module).values()]
    kinds = [*map(type, values)]
    places = [at for at, kind in enumerate(kinds) if kind is FunctionType]
    holding = [at for at in places if not _is_bare(values[at])]
    bare = [at for at in places if at not in holding]
    others = [at for at, kind in enumerate(kinds) if kind.__name__ in KINDS]
    found = _candidates(name, values, others, holding)

    def check(thing: Any) -> bool:
        if type(thing) is not ModuleType:
            return False
        now = [*thing.__dict__.values()]
        if [*map(type, now)] != kinds:
            return False
        for at in bare:
            it = now[at]
            usual = it.__defaults__
            if (usual and not _all_plain(map(type, usual))) or it.__kwdefaults__ or it.__closure__:
                return False
        if not others and not holding:
            return True
        again = _candidates(name, now, others, holding)
        return len(again) == len(found) and all(map(is_, again, found))

    return check


def _candidates(name: str, values: list[Any], others: list[int], holding: list[int]) -> list[Any]:
    """Return the generators among the globals of a module, and in its functions."""
    held = [values[at] for at in others]
    for at in holding:
        if values[at].__module__ == name:
            inside = search._in_function(values[at])
            held += [it for it in inside if type(it).__name__ in KINDS]
    return [it for it in held if search._is_generator(it)]


def _bare_class(about: search._Namespace) -> _Check:
    """Return what sees that a class which holds nothing still does not."""
    kinds, names = about.kinds, about.names
    bare = [at for at in about.functions if kinds[at] is FunctionType]
    wrapped = [at for at in about.functions if kinds[at] is not FunctionType]
    passed = {FunctionType, *search._WRAPPERS, *DESCRIPTORS, *_PLAIN}
    named = not passed.issuperset(kinds)  # something is passed over for its name

    def check(kind: Any) -> bool:
        space = kind.__dict__
        now = [*space.values()]
        if [*map(type, now)] != kinds:
            return False
        for at in bare:
            it = now[at]
            usual = it.__defaults__
            if (usual and not _all_plain(map(type, usual))) or it.__kwdefaults__ or it.__closure__:
                return False
        for at in wrapped:
            if not _is_bare(search._unwrapped(now[at])):
                return False
        return not named or [*space] == names

    return check
