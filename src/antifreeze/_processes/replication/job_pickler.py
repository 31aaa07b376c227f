"""A job on its way to a process that inherits nothing: faithful, or not at all.

1. Libraries are found there by name. The program's own code is not: it is sent itself (`own_code`),
   by cloudpickle, as are lambdas, local classes and cells of a notebook.
2. Large buffers travel beside the stream (`payload`).
3. What multiprocessing sends in its own way (locks, queues, values, shared memory) it sends so.
4. `faithful` knows how the rest goes; what would arrive as something else is refused, with the
   path to it. So is what costs more than it may.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import functools
import io
import pickle
import sys
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextvars import ContextVar
from multiprocessing import context, reduction
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch

from ..._core.limits import LIMITS, UNBOUNDED, Bounds
from ..._linux.clock import monotonic, thread_time
from ..._loading.job import Job
from ..._transport.packing import parts
from ...errors import TransportFailed
from . import module_state, user_code
from .context_variables import reduce_variable
from .ctypes_types import reduce_made_type
from .dynamic_attributes import asks_code, reduce_quietly
from .enum_classes import reduce_member
from .kinds import bound_methods, generators, lost_state, named_objects
from .kinds.float_identities import FloatIdentities, Unpickler
from .kinds.memory import Memory
from .library_sentinels import LibraryObjects, find
from .lru_caches import CachedFunction, reduce_cached
from .reducers import check, ways
from .shared_payload import Carrier, CostsTooMuch, Payload, Stream
from .single_dispatch import is_single_dispatch, reduce_dispatch, reduce_extended
from .unsendable import Unsendable
from .user_code import UserCode

DEEPEST = 3_000  # calls, one in the other, to pickle things in things


# They work by threads, which no worker gets: what of them cannot be sent is beside the point.
_THREADED = (asyncio.AbstractEventLoop, threading.Thread, Executor)


class SentJob:
    """Stands for a job; where it is unpickled, it is the job.

    Pickled by multiprocessing with the process that gets it: that is when locks and queues can be
    sent. Raises TransportFailed with the path to what cannot.
    """

    def __init__(self, job: Job) -> None:
        self._job = job

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        buffer = io.BytesIO()
        try:
            _Pickler(buffer, imports=True).dump(self._job)
        except Exception as error:
            raise _refusal_of(self._job, error) from error
        return _loads, (buffer.getvalue(),)


def _loads(pickled: bytes) -> Any:
    return Unpickler(io.BytesIO(pickled)).load()


# ---- to the clean process -------------------------------------------------------------------


def pack_terms(terms: Any) -> Payload:
    """Pickle what a zygote is told besides a job."""
    began = thread_time()
    stream, carrier = Stream(UNBOUNDED), Carrier()
    with _carrying(carrier):
        _Pickler(stream, beside=stream.put_beside).dump(terms)
    memory, size = stream.lay_out(each_opens=False)
    return Payload(memory, carrier.riders, size, thread_time() - began, each_opens=False)


def is_still(payload: Payload, circumstances: Any, job: Job, bounds: Bounds) -> bool:
    """Whether what was sent of a job would be sent again, to the byte. Raises what `pack` does."""
    carrier = Carrier()
    try:
        stream, _ = _pickled(circumstances, job, bounds, carrier)
        return payload.is_as(stream, carrier.riders)
    finally:
        carrier.clear()


def pack(circumstances: Any, job: Job, bounds: Bounds = UNBOUNDED) -> Payload:
    """Pickle a job, for a process that inherits nothing; and before it, where it comes from.

    Raises TransportFailed with the path to what cannot be sent of the job, Unsendable for the
    circumstances, CostsTooMuch, or MemoryShort.
    """
    try:
        return _pack(circumstances, job, bounds)
    except TransportFailed:
        if bounds is not UNBOUNDED:
            raise  # there is another way, and it is more faithful
        for imports in (False, True):  # what torch's loader would do with it
            with contextlib.suppress(TransportFailed):
                return _pack(circumstances, job, bounds, imports=imports, copies=True)
        raise


def _pack(
    circumstances: Any,
    job: Job,
    bounds: Bounds,
    *,
    imports: bool = False,
    copies: bool = False,
) -> Payload:
    began, carrier = thread_time(), Carrier()
    stream, opens = _pickled(circumstances, job, bounds, carrier, imports=imports, copies=copies)
    memory, size = stream.lay_out(each_opens=opens)
    seconds = thread_time() - began
    return Payload(memory, carrier.riders, size, seconds, opens, not (imports or copies))


@contextlib.contextmanager
def _carrying(carrier: Carrier) -> Iterator[None]:
    """Have multiprocessing give descriptors to a carrier, and bound the depth of pickling."""
    context.set_spawning_popen(carrier)  # type: ignore[arg-type]
    deep = sys.getrecursionlimit()
    with contextlib.suppress(RecursionError):  # we are deep already
        sys.setrecursionlimit(min(deep, DEEPEST))  # the C stack would end before it
    try:
        yield
    finally:
        sys.setrecursionlimit(deep)
        context.set_spawning_popen(None)


def _pickled(
    circumstances: Any,
    job: Job,
    bounds: Bounds,
    carrier: Carrier,
    *,
    imports: bool = False,
    copies: bool = False,
    known: Sequence[Any] = (),
) -> tuple[Stream, bool]:
    """Pickle a job; return also whether each life is to open it."""
    stream = Stream(bounds)
    with _carrying(carrier):
        pickler = _Pickler(stream, copies=copies, beside=stream.put_beside, known=known)
        if imports:  # modules are what they are when they are imported
            circumstances = dataclasses.replace(circumstances, program={})
        try:
            pickler.dump(circumstances)
        except CostsTooMuch:
            raise
        except Exception as error:
            path, part, why = _find(circumstances, "", str(error))
            raise Unsendable(
                f"of what the program has set, a {type(part).__name__} ({path[1:]}) cannot be sent:"
                f" {why}"
            ) from error
        if imports:
            pickler.go_by_names()
        try:
            pickler.dump(_Led(user_code.Script(), job) if imports else job)
        except CostsTooMuch:
            raise
        except Exception as error:
            raise _refusal_of(job, error) from error
        pickler.dump_code()
    if pickler.memory.late:
        carrier.clear()
        known = pickler.memory.late
        more = {"imports": imports, "copies": copies}
        return _pickled(circumstances, job, bounds, carrier, known=known, **more)
    return stream, pickler.each_opens


class _Led:
    """Stands for a thing, and for one before it that is unpickled first."""

    def __init__(self, leader: Any, thing: Any) -> None:
        self._both = leader, thing

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _second, self._both


def _second(leader: Any, thing: Any) -> Any:
    return thing


# ---- pickling -----------------------------------------------------------------------------------


# torch's own way with these moves the caller's memory; multiprocessing's with partial functions
# forgets their attributes.
_OF_TORCH = (torch.Tensor, torch.UntypedStorage, torch.storage.TypedStorage)
_NOT_THEIR_WAY = (*_OF_TORCH, functools.partial)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
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
        if issubclass(kind, BaseException) and not self._copies:
            return lost_state.reduce_exception
        if lost_state.loses_attributes(kind, self._code.takes):
            return lambda thing: lost_state.reduce_with_attributes(thing, self._code.takes)
        return self._reduce_globally if named_objects.asks_class(kind) else None

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
            return reduce_cached(obj, with_results=not self._copies)
        if is_single_dispatch(obj):
            return reduce_dispatch(obj)
        if isinstance(obj, FunctionType):
            self._code.seed(obj)
            return self._dynamic_function_reduce(obj)
        if not own:
            return super().reducer_override(obj)
        self._code.note_annotations(obj)
        return user_code.reduce_class(obj)

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
                if thing.__module__ == "__main__" and _refusal(thing) is None:
                    self._code.note(thing)
            elif self._code.takes(type(thing)) and _refusal(thing, give_up) is None:
                more.append((around, name, thing))
        return more

    def _taken(self, give_up: float) -> list[Any]:
        """Return what functions import while they run, and all of modules in which they look."""
        more: list[Any] = []
        for module, must in self._code.take_whole():
            if must or _refusal(module, give_up) is None:
                more.append(((), "", module))
        for name, attribute, value in self._code.take_imported():
            if _refusal(value, give_up) is None:
                more.append((self._code.around(name), attribute, value))
        return more


# ---- what cannot be sent ------------------------------------------------------------------------


def _refusal_of(job: Job, error: Exception) -> TransportFailed:
    """Say what in a job could not be sent."""
    for name in ("dataset", "collate_fn", "init_fn"):
        thing = getattr(job, name)
        if (why := _refusal(thing)) is not None:
            path, part, why = _find(thing, name, why)
            if part is thing:  # nothing that it holds: what its code uses
                path, part, why = _find_global(thing, name, why)
            kind, threaded = type(part), issubclass(type(part), _THREADED)
            return TransportFailed.cannot_send(path, kind.__name__, why, threaded)
    return TransportFailed.cannot_send("dataset", type(job.dataset).__name__, str(error))


def _refusal_in(batch: list[Any], error: Exception) -> TransportFailed:
    """Say what of the program's modules could not be sent."""
    for around, name, thing in batch:
        module = around[-1].name if around else thing.name
        for each, value in {name: thing}.items() if around else thing.content.items():
            if (why := _refusal(value)) is not None:
                path = f"{module}.{each}".rstrip(".")
                path, part, why = _find(value, path, why)
                return TransportFailed.cannot_send(path, type(part).__name__, why)
    return TransportFailed.cannot_send("code", "module", str(error))


def _refusal(thing: Any, give_up: float | None = None) -> str | None:
    """Return why something cannot be sent, or not until then; None if it can."""
    try:
        _Pickler(_Nowhere(give_up), beside=lambda buffer: False).dump(thing)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


class _Nowhere:
    def __init__(self, give_up: float | None) -> None:
        self._give_up = give_up

    def write(self, data: Any) -> int:
        if self._give_up is not None and monotonic() > self._give_up:
            raise CostsTooMuch("it takes too long to try")
        return len(data)


def _find(thing: Any, path: str, why: str) -> tuple[str, Any, str]:
    """Find the smallest part that cannot be sent by itself."""
    left, give_up = LIMITS.sending.tried_parts, monotonic() + LIMITS.sending.tried_s
    around = [thing]  # what it is in, which may be in it again
    while left > 0 and not issubclass(type(thing), _THREADED):
        for step, part in _parts_sent(thing):
            if any(part is each for each in around):
                continue
            left -= 1
            if left <= 0 or monotonic() > give_up:
                return path, thing, why
            if (refusal := _refusal(part)) is not None:
                path, thing, why = path + step, part, refusal
                around.append(part)
                break
        else:
            break
    return path, thing, why


def _find_global(thing: Any, path: str, why: str) -> tuple[str, Any, str]:
    """Find the global variable that the code of a thing uses and that cannot be sent."""
    kind: Any = type(thing)
    left: list[Any] = [thing if kind is FunctionType else kind]
    seen, give_up = {id(left[0])}, monotonic() + LIMITS.sending.tried_s
    while left and monotonic() < give_up:
        for function in _functions_of(left.pop(0)):
            for name, value in user_code.globals_of(function):
                if id(value) in seen or isinstance(value, ModuleType):
                    continue
                seen.add(id(value))
                if isinstance(value, type | FunctionType):
                    left.append(value)
                elif (refusal := _refusal(value, give_up)) is not None:
                    return _find(value, f"{function.__module__}.{name}", refusal)
    return path, thing, why


def _functions_of(thing: Any) -> Iterator[FunctionType]:
    """Yield the functions of the program's own that a class has, or a function itself."""
    things = [thing]
    if isinstance(thing, type):
        things = [value for each in thing.__mro__ for value in vars(each).values()]
    for each in things:
        function = getattr(each, "__func__", each)  # of a static method
        if type(function) is FunctionType and user_code.is_own(function.__module__ or ""):
            yield function


def _parts_sent(thing: Any) -> list[tuple[str, Any]]:
    """Give what of an object would be pickled, as far as it leaves that to us."""
    kind: Any = type(thing)
    if kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__:
        return parts(thing) if isinstance(thing, list | tuple | dict | set | frozenset) else []
    if kind.__getstate__ is not object.__getstate__ and not dataclasses.is_dataclass(kind):
        try:
            state = thing.__getstate__()
        except Exception:
            return []
        return [(f".{name}", part) for name, part in state.items()] if type(state) is dict else []
    return parts(thing)
