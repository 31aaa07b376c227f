"""Pickle single objects for a process that inherited nothing: as they are, or not at all."""

from __future__ import annotations

import contextlib
import enum
import functools
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from multiprocessing import reduction
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import cloudpickle  # type: ignore[import-untyped]
import torch

from ..._core.limits import LIMITS
from ..._linux.clock import monotonic
from ...errors import TransportFailed
from . import module_state, user_code
from .classes.class_reduction import reduce_class
from .classes.enum_classes import reduce_member
from .classes.hash_code import has_hash_code
from .classes.instance_reduction import may_run_code, reduce_past_code
from .classes.keyed_tables import TABLES, KeyedTables, KeysMatter
from .dynamic_attributes import asks_code, reduce_quietly
from .kinds import bound_methods, generators, lost_state, named_objects
from .kinds.context_variables import reduce_variable
from .kinds.ctypes_types import reduce_made_type
from .kinds.float_identities import FloatIdentities
from .kinds.memory import Memory, OwnersMatter
from .library_sentinels import LibraryObjects, find
from .lru_caches import CachedFunction, reduce_cached
from .name_lookups import refuse_nameless_globals
from .reducers import check, ways
from .refusal_paths import culprit
from .shared_payload import Carrier, CostsTooMuch
from .single_dispatch import is_single_dispatch, reduce_dispatch, reduce_extended
from .unsendable import Unsendable
from .user_code import UserCode

T = TypeVar("T")
Keyed = frozenset[type] | None  # the classes of keys that are found by code; None: none are known

# torch's own way with these moves the caller's memory; multiprocessing's with partial functions
# forgets their attributes.
_OF_TORCH = (torch.Tensor, torch.UntypedStorage, torch.storage.TypedStorage)
_NOT_THEIR_WAY = (*_OF_TORCH, functools.partial)


class ObjectPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(
        self,
        file: Any,
        *,
        imports: bool = False,
        copies: bool = False,
        beside: Callable[[pickle.PickleBuffer], bool] | None = None,
        known: Sequence[Any] = (),
    ) -> None:
        """`imports`: the other process imports the program's modules, and runs its script."""
        self._imports, self._copies = imports, copies
        self.memory = Memory(copies=copies, known=known)
        self._makes: dict[type, bool] = {}  # whether its objects make themselves anew
        self.each_opens = False  # there is one that does, perhaps with a connection of its own
        multi = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        theirs = {kind: way for kind, way in multi.items() if not issubclass(kind, _NOT_THEIR_WAY)}
        self.dispatch_table = ChainMap(
            ways(self.memory), theirs, cloudpickle.Pickler.dispatch_table
        )
        super().__init__(file, protocol=5, buffer_callback=beside)  # it looks for the table
        self._floats = FloatIdentities()
        self._code = UserCode(self.globals_ref)
        self._tables: KeyedTables | None = None
        self._libraries = LibraryObjects()
        self._own_ways: dict[type, Callable[[Any], Any] | None] = {}
        self.dispatch_table.update(bound_methods.ways(self._arrives) | generators.ways())
        if not imports:
            self.dispatch_table[ModuleType] = self._code.reduce_module
            self.dispatch_table[ContextVar] = self._reduce_variable

    def go_by_names(self) -> None:
        """Have the other process import the program's modules, and run its script, from now on."""
        self._imports = True
        del self.dispatch_table[ModuleType], self.dispatch_table[ContextVar]
        self._own_ways.clear()
        if self._tables is not None:
            self._tables.by_name = True

    def reducer_override(self, obj: Any) -> Any:
        check(obj, self.memory)
        kind = type(obj)
        if issubclass(kind, type | FunctionType | CachedFunction):
            return self._reduce_named(obj)
        if issubclass(kind, ModuleType) and kind is not ModuleType and not self._imports:
            return self._code.reduce_module(obj)
        if issubclass(type(kind), enum.EnumMeta) and self._code.takes(kind):
            return reduce_member(obj)
        self._note_maker(kind)
        if kind not in self.dispatch_table:
            if (place := self._libraries.sentinel(obj)) is not None:
                return find, place
            if kind not in self._own_ways:
                self._own_ways[kind] = self._own_way(kind)
            if (way := self._own_ways[kind]) is not None:
                return way(obj)
        return NotImplemented

    def _own_way(self, kind: type) -> Callable[[Any], Any] | None:
        """Return how objects of a class are sent; None if pickle does well."""
        if asks_code(kind):
            return reduce_quietly
        past_code = reduce_past_code if self._is_own(kind) and may_run_code(kind) else None
        if issubclass(kind, BaseException) and not self._copies:
            return functools.partial(lost_state.reduce_exception, past_code=past_code)
        if lost_state.loses_attributes(kind, self._code.takes):
            return functools.partial(lost_state.reduce_with_attributes, is_own=self._code.takes)
        return self._reduce_globally if named_objects.asks_class(kind) else past_code

    def _is_own(self, kind: type) -> bool:
        return not self._imports and self._code.takes(kind)

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is float:
            return self._floats.of(obj) if obj - obj != 0.0 else None
        if kind is bytearray:
            self.memory.buffer(obj)
        return None

    def _reduce_globally(self, obj: Any) -> Any:
        """Send an object by code of its class, which may give the name under which it is found."""
        reduced = obj.__reduce_ex__(5)
        if type(reduced) is not str or self._imports:
            return reduced
        module = named_objects.module_with(obj, reduced)
        if module is None or not user_code.is_own(module):
            return reduced
        if "." in reduced or not named_objects.is_the_global(obj, module, reduced):
            raise Unsendable(f"found by the name {reduced}, and something else is there")
        self._code.sent.append((self._code.around(module), reduced, obj))
        return named_objects.reduce_content(obj)

    def _reduce_named(self, obj: Any) -> Any:
        """Send a class or a function: itself, if it is the program's own."""
        if isinstance(obj, type) and (made := reduce_made_type(obj)) is not NotImplemented:
            return made
        own = not self._imports and self._code.takes(obj)
        if not own and named_objects.is_found(obj, self._imports):
            if is_single_dispatch(obj) and not self._imports:
                return reduce_extended(obj, self._code.takes)
            return NotImplemented
        self._code.note(obj)
        if type(obj) is CachedFunction:
            reduced, keys = reduce_cached(obj, with_results=not self._copies)
            self._see_cache(obj, keys)
            return reduced
        if is_single_dispatch(obj):
            return reduce_dispatch(obj)
        if isinstance(obj, FunctionType):
            refuse_nameless_globals(obj)
            self._code.seed(obj)
            return self._dynamic_function_reduce(obj)
        if not own:
            return super().reducer_override(obj)
        self._code.note_annotations(obj)
        return self._reduce_class(obj)

    def _see_cache(self, function: Any, keys: list[Any]) -> None:
        if self._tables is not None:
            self._tables.see_cache(function, keys)

    def _reduce_class(self, kind: type) -> Any:
        if self._tables is None and has_hash_code(kind):
            raise KeysMatter(frozenset())
        return reduce_class(kind, self._code.takes, self._tables)

    def finish(self) -> list[tuple[Any, int]]:
        """Return the tables to be checked where they arrive. Raises KeysMatter or OwnersMatter."""
        if self.memory.late:
            raise OwnersMatter(self.memory.late)
        if self._tables is None:
            return []
        self._tables.finish()
        return self._tables.met()

    def _arrives(self, function: Any) -> bool:
        """Whether a function arrives as itself."""
        if not self._imports and self._code.takes(function):
            return True
        return hasattr(function, "__qualname__") and named_objects.is_found(function, self._imports)

    def _reduce_variable(self, variable: ContextVar[Any]) -> Any:
        return reduce_variable(variable, self._libraries.place(variable))

    def _note_maker(self, kind: type) -> None:
        if kind not in self._makes:
            self._makes[kind] = named_objects.makes_itself_anew(kind)
            self.each_opens = self.each_opens or self._makes[kind]

    def dump_code(self) -> None:
        """Send what was noted of the program's code, until there is no more: what is sent may
        import other things while it runs. If it looks for things by name, those of the script go
        along, and all of the modules in which it looks. What of them cannot be sent is left out,
        if nothing shows that it is needed. Raises TransportFailed if something does."""
        more: list[Any] = self._of_script() if self._code.looks_for_names else []
        done, give_up = 0, monotonic() + LIMITS.sending.imports_s
        while True:  # bounded: nothing is noted twice
            if not self._imports:
                more += self._taken(give_up)
            batch = [*self._code.sent[done:], *more]
            done, more = len(self._code.sent), []
            try:
                self.dump(batch)
            except CostsTooMuch:
                raise
            except Exception as error:
                raise _refusal_in(batch, error) from error
            if not batch:
                return

    def _of_script(self) -> list[Any]:
        """Return what code may look for in the script by a name."""
        around = module_state.around_script()
        named = self._code.named_in_script()
        more = [each for each in module_state.plain_of_script() if each[1] not in named]
        more += [(around, name, value) for name, value in named.items()]
        give_up = monotonic() + LIMITS.sending.script_s
        sent = {id(thing) for _, _, thing in (*self._code.sent, *more)}
        for name, thing in list(vars(sys.modules["__main__"]).items()):
            if id(thing) in sent or monotonic() >= give_up:
                continue
            if isinstance(thing, type | FunctionType):
                if thing.__module__ == "__main__" and refusal(thing) is None:
                    self._code.note(thing)
            elif self._code.takes(type(thing)) and refusal(thing, give_up) is None:
                more.append((around, name, thing))
        return more

    def _taken(self, give_up: float) -> list[Any]:
        """Return what functions import while they run, and all of modules in which they look."""
        more: list[Any] = []
        for module, must in self._code.take_whole():
            if must or refusal(module, give_up) is None:
                more.append(((), "", module))
        for name, attribute, value in self._code.take_imported():
            if refusal(value, give_up) is None:
                more.append((self._code.around(name), attribute, value))
        return more


def make_pickler(file: Any, keyed: Keyed, **options: Any) -> ObjectPickler:
    return ObjectPickler(file, **options) if keyed is None else _Watching(file, keyed, **options)


_COMMON = frozenset({str, int, bytes, bool, type(None), tuple, list})  # nothing to be seen of these


class _Watching(ObjectPickler):
    """Looks at each thing that it pickles, which takes time: is it a table with keys of code?"""

    def __init__(self, file: Any, keyed: frozenset[type], **options: Any) -> None:
        super().__init__(file, **options)
        self._tables = KeyedTables(keyed, self._code.takes, _walk)

    def persistent_id(self, thing: Any) -> Any:
        kind = type(thing)
        if kind in _COMMON:
            return None
        if issubclass(kind, TABLES):
            self._tables.see(thing)  # type: ignore[union-attr]
        return super().persistent_id(thing)


class _Walking(ObjectPickler):
    """Pickles things to nowhere, and shows each to somebody."""

    def __init__(self, see: Callable[[Any], None], is_leaf: Callable[[Any], bool]) -> None:
        self._see, self._is_leaf = see, is_leaf
        super().__init__(Nowhere(None), beside=lambda buffer: False)

    def persistent_id(self, thing: Any) -> None:
        self._see(thing)

    def reducer_override(self, obj: Any) -> Any:
        if issubclass(type(obj), type | FunctionType) and self._is_leaf(obj):
            return str, ()
        return super().reducer_override(obj)

    def _see_cache(self, function: Any, keys: list[Any]) -> None:
        self._see(dict.fromkeys(keys))

    def _reduce_class(self, kind: type) -> Any:
        return reduce_class(kind, self._code.takes, None)


def _walk(thing: Any, see: Callable[[Any], None], is_leaf: Callable[[Any], bool]) -> None:
    _Walking(see, is_leaf).dump(thing)


class Nowhere:
    def __init__(self, give_up: float | None) -> None:
        self._give_up = give_up

    def write(self, data: Any) -> int:
        if self._give_up is not None and monotonic() > self._give_up:
            raise CostsTooMuch("it takes too long to try")
        return len(data)


class _Tracing(ObjectPickler):
    """Keeps the functions and modules that were to be sent."""

    def __init__(self, file: Any, **others: Any) -> None:
        self.code: list[FunctionType | ModuleType] = []
        super().__init__(file, **others)

    def reducer_override(self, obj: Any) -> Any:
        if issubclass(type(obj), FunctionType | ModuleType):
            self.code.append(obj)
        return super().reducer_override(obj)

    def _reduce_class(self, kind: type) -> Any:
        return reduce_class(kind, self._code.takes, None)


def code_sent_with(thing: Any, give_up: float) -> list[FunctionType | ModuleType]:
    """Return the functions and modules that would be sent with a thing, up to what fails."""
    pickler = _Tracing(Nowhere(give_up), beside=lambda buffer: False)
    with contextlib.suppress(Exception):
        pickler.dump(thing)
    return pickler.code


def in_passes(
    dump: Callable[[Keyed, Sequence[Any]], T],
    carrier: Carrier | None = None,
    keyed: Keyed = None,
) -> T:
    """Call what pickles a thing until it knows the classes of all keys (`keyed_tables`), and the
    owners of memory that others look at (`kinds/memory.py`)."""
    owners: Sequence[Any] = ()
    for _ in range(LIMITS.sending.passes):
        try:
            return dump(keyed, owners)
        except KeysMatter as known:
            keyed = known.classes
        except OwnersMatter as known:
            owners = known.owners
        if carrier is not None:
            carrier.clear()
    raise Unsendable("tables keyed by objects of classes that are others each time")


def _refusal_in(batch: list[Any], error: Exception) -> TransportFailed:
    """Say what of the program's modules could not be sent."""
    for around, name, thing in batch:
        module = around[-1].name if around else thing.name
        for each, value in {name: thing}.items() if around else thing.content.items():
            if (why := refusal(value)) is not None:
                path = f"{module}.{each}".rstrip(".")
                path, part, why = culprit(refusal, code_sent_with, value, path, why)
                return TransportFailed.cannot_send(path, type(part).__name__, why)
    return TransportFailed.cannot_send("code", "module", str(error))


def refusal(thing: Any, give_up: float | None = None) -> str | None:
    """Return why something cannot be sent, or not until then; None if it can."""

    def dump(keyed: Keyed, owners: Sequence[Any]) -> None:
        pickler = make_pickler(Nowhere(give_up), keyed, beside=lambda buffer: False, known=owners)
        pickler.dump(thing)
        pickler.finish()

    try:
        in_passes(dump)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
