"""Tables whose keys are found by the program's own code: filled when that code is there.

A table that is filled too early has its keys where a half-made class, or a half-made key, puts
them; nobody finds them there later. While pickle fills a table, only what the table is in is
half-made, and of each class what is `late`. So:

1. A class of such keys comes in two parts. The first has no such table in it, nor a function that
   uses one: what has is late. Classes that are met in a first part get only their own first part
   there. So no table is filled while a first part is on its way; and the second parts follow when
   the outermost first part is complete.
2. Code that finds or makes keys must be in the first part: else it is refused. So is a table that
   is in one of its own keys.
3. Where all has arrived, each such table is asked for all of its keys. Code that reads what no
   analysis sees (`getattr`, say) raises there, and nothing is loaded with what is wrong.

Only jobs with such classes pay for it: they are pickled again, once to find the tables, and once
with what was found in mind.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from ...._loading.raw_attributes import mro, qualified_name
from ..unsendable import Unsendable
from .hash_code import (
    has_attributes_alone,
    has_hash_code,
    is_all_plain,
    keys_to_be_read,
    needed_names,
    stores_its_hash,
)

TABLES = (dict, set, frozenset)
# Pickles things to nowhere: shows each to the first function, and goes into no class or function
# for which the second one returns True.
Walk = Callable[[Any, Callable[[Any], None], Callable[[Any], bool]], None]


class KeysMatter(BaseException):
    """It is to be pickled again: there are tables keyed by objects of these classes, or may be.

    No Exception: nobody who tries whether something can be sent may take it for a refusal.
    """

    def __init__(self, classes: frozenset[type]) -> None:
        super().__init__(classes)
        self.classes = classes


class _Found(Exception):
    """What is looked for was found."""


class KeyedTables:
    """The tables that one pickler has met, and the classes that it sends in two parts."""

    def __init__(self, keyed: frozenset[type], is_own: Callable[[Any], bool], walk: Walk) -> None:
        """`keyed`: the classes of keys that are known."""
        self._keyed, self._is_own, self._walk = keyed, is_own, walk
        self._classes: dict[int, tuple[Any, frozenset[type]]] = {}  # of tables, by address
        self._met: dict[int, tuple[Any, int]] = {}  # tables with such keys, and how many these are
        self._simple: dict[type, bool] = {}  # whether objects of a class are what they have
        self.by_name = False  # classes are imported there, and whole
        self.open = 0  # first parts, one in the other, that are being pickled
        self.second_parts: list[_Part] = []  # that follow when none is

    def see(self, table: Any) -> None:
        """Take a table that is about to be pickled. Raises Unsendable."""
        if self._classes_of(table, table):
            self._met[id(table)] = table, len(table)

    def see_cache(self, function: Any, arguments: Sequence[Any]) -> None:
        """Take a function with a cache that is about to be pickled. Raises Unsendable."""
        if self._classes_of(function, arguments):
            self._met[id(function)] = function, len(arguments)

    def has_key_of_own(self, table: Any) -> bool:
        return issubclass(type(table), TABLES) and bool(self._classes_of(table, table))

    def finish(self) -> None:
        """Raise KeysMatter if classes of keys were met that are not known."""
        found = {each for table, _ in self._met.values() for each in self._classes[id(table)][1]}
        if not found <= self._keyed:
            raise KeysMatter(self._keyed | found)

    def met(self) -> list[tuple[Any, int]]:
        return list(self._met.values())

    def is_keyed(self, kind: type) -> bool:
        return kind in self._keyed

    def in_parts(self, kind: type, setter: Any, first: Any, second: Any) -> Any:
        """Return the state of a class whose setter is `has_its_parts`. `setter`: sets a part."""
        rest = _Part(setter, kind, second)
        if self.open:
            self.second_parts.append(rest)
            return _First(self, setter, kind, first), None
        return _First(self, setter, kind, first), _Rest(self, rest)

    def late_in(self, kind: type, content: dict[Any, Any]) -> set[Any]:
        """Return which attributes of a class come in its second part. Raises Unsendable."""
        if not self._reaches_table(list(content.values())):
            return set()
        late = {name for name, value in content.items() if self._reaches_table(value)}
        names = {each[-1] if type(each) is tuple else each for each in late}
        heirs = [each for each in self._keyed if kind in mro(each)]
        for heir in sorted(heirs, key=qualified_name):
            for name in needed_names(heir, self._is_own):
                if name in names:
                    raise Unsendable(
                        f"{qualified_name(kind)}.{name}, which makes or finds keys of the class"
                        f" {qualified_name(heir)}, uses a table with keys of the program's own"
                    )
        return late

    def _reaches_table(self, thing: Any) -> bool:
        def see(part: Any) -> None:
            if self.has_key_of_own(part):
                raise _Found

        try:
            self._walk(thing, see, lambda code: code in self._keyed)
        except _Found:
            return True
        except Exception:  # it is refused when it is sent
            return False
        return False

    def _classes_of(self, table: Any, keys: Any) -> frozenset[type]:
        """Return the classes of the program's own whose code finds the keys of a table, and their
        bases."""
        if (known := self._classes.get(id(table))) is not None and known[0] is table:
            return known[1]
        to_read = keys_to_be_read(keys)
        if not to_read:
            return frozenset()
        classes = self._classes_in(to_read, table)
        self._classes[id(table)] = table, classes
        return classes

    def _classes_in(self, keys: list[Any], table: Any) -> frozenset[type]:
        found: set[type] = set()
        plain, others = self._plain_kinds(keys)
        for kind in plain:
            if self._is_own(kind) and has_hash_code(kind):
                found.update(each for each in mro(kind) if self._is_own(each))

        def see(part: Any) -> None:
            if part is table:
                raise _Found

        def is_leaf(code: Any) -> bool:
            if not self._is_own(code):
                return False
            if not isinstance(code, FunctionType) and has_hash_code(code):
                found.update(each for each in mro(code) if self._is_own(each))
            return True

        try:
            if others:
                self._walk(others, see, is_leaf)
        except _Found:
            raise Unsendable(
                f"a {type(table).__name__} that is in one of its own keys, and would be asked for"
                " it before it is whole"
            ) from None
        except Exception:  # it is refused when it is sent
            return frozenset()
        for each in found:
            if stores_its_hash(each) and not self.by_name:
                raise Unsendable(
                    f"{qualified_name(each)}.__hash__ keeps what it returns, which is another"
                    " number there"
                )
        return frozenset(found)

    def _plain_kinds(self, keys: Sequence[Any]) -> tuple[set[type], list[Any]]:
        """Return the classes of the keys that have nothing in them to be looked at, and all other
        keys: there may be very many."""
        for kind in set(map(type, keys)) - self._simple.keys():
            self._simple[kind] = has_attributes_alone(kind, self._is_own)
        kinds, others = set[type](), list[Any]()
        for key in keys:
            if self._simple[type(key)] and is_all_plain(key):
                kinds.add(type(key))
            else:
                others.append(key)
        return kinds, others


class _Part:
    """A part of a class; where it is unpickled, the class has it."""

    def __init__(self, setter: Any, kind: type, state: Any) -> None:
        self.setter, self.kind, self.state = setter, kind, state

    def __reduce__(self) -> Any:
        return _set_part, (self.setter, self.kind, self.state)


class _First(_Part):
    """The first part of a class: pickle asks for it when it begins, and for its end at its end."""

    def __init__(self, tables: KeyedTables, setter: Any, kind: type, state: Any) -> None:
        super().__init__(setter, kind, state)
        self._tables = tables

    def __reduce__(self) -> Any:
        self._tables.open += 1
        return _set_part, (self.setter, self.kind, self.state, _End(self._tables))


class _End:
    def __init__(self, tables: KeyedTables) -> None:
        self._tables = tables

    def __reduce__(self) -> Any:
        self._tables.open -= 1
        return bool, ()


class _Rest:
    """The second part of a class, and of those whose first parts were met in its first part."""

    def __init__(self, tables: KeyedTables, own: _Part) -> None:
        self._tables, self._own = tables, own

    def __reduce__(self) -> Any:
        left, self._tables.second_parts = self._tables.second_parts, []
        return bool, ([*left, self._own],)


# ---- in the clean process -----------------------------------------------------------------------


def _set_part(setter: Any, kind: type, state: Any, end: bool = False) -> None:
    setter(kind, state)


def has_its_parts(kind: type, state: Any) -> None:
    """Nothing: they were set one by one."""


def check(tables: list[tuple[Any, int]]) -> None:
    """Raise TypeError for a table that does not find its keys, now that all is there."""
    for table, count in tables:
        for each in [table] if issubclass(type(table), TABLES) else _caches_of(table):
            if len(each) < count or not all(map(_contains(each), _keys(each))):
                of = {type(key).__qualname__: None for key in _keys(each)}
                raise TypeError(
                    f"a {type(table).__name__} does not find its keys ({', '.join(of)}): their"
                    " __hash__ or __eq__ depends on what was not there yet when it was made"
                )


def _caches_of(function: Any) -> list[Any]:
    own = vars(function)
    return [each for each in gc.get_referents(function) if type(each) is dict and each is not own]


def _kind(table: Any) -> Any:
    return next(each for each in TABLES if issubclass(type(table), each))


def _contains(table: Any) -> Callable[[Any], bool]:
    return _kind(table).__contains__.__get__(table)  # type: ignore[no-any-return]


def _keys(table: Any) -> list[Any]:
    return list(_kind(table).__iter__(table))
