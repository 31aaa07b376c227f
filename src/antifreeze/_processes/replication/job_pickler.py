"""A job on its way to a process that inherits nothing: faithful, or not at all.

1. Libraries are found there by name. The program's own code is not: it is sent itself
   (`user_code`), by cloudpickle, as are lambdas, local classes and cells of a notebook.
2. Large buffers travel beside the stream (`shared_payload`).
3. What multiprocessing sends in its own way (locks, queues, values, shared memory) it sends so.
4. `reducers` know how the rest goes; what would arrive as something else is refused, with the
   path to it. So is what costs more than it may.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import context
from typing import Any, TypeVar

from ..._core.limits import UNBOUNDED, Bounds
from ..._linux.clock import thread_time
from ..._loading.job import Job
from ...errors import TransportFailed
from ..starting import imported_anew
from . import user_code
from .kinds.float_identities import Unpickler
from .object_pickler import Keyed, ObjectPickler, code_sent_with, in_passes, make_pickler, refusal
from .refusal_paths import THREADED, culprit
from .shared_payload import Carrier, CostsTooMuch, Payload, Stream
from .unsendable import Unsendable

T = TypeVar("T")
DEEPEST = 3_000  # calls, one in the other, to pickle things in things


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
            ObjectPickler(buffer, imports=True).dump(self._job)
        except Exception as error:
            raise _refusal_of(self._job, error) from error
        return _loads, (buffer.getvalue(),)


def _loads(pickled: bytes) -> Any:
    return Unpickler(io.BytesIO(pickled)).load()


# ---- to the clean process -------------------------------------------------------------------


def pack_terms(terms: Any) -> Payload:
    """Pickle what a zygote is told besides a job."""
    began, carrier = thread_time(), Carrier()

    def dump(keyed: Keyed, owners: Sequence[Any]) -> Stream:
        stream = Stream(UNBOUNDED)
        with _carrying(carrier):
            pickler = make_pickler(stream, keyed, beside=stream.put_beside, known=owners)
            pickler.dump(terms)
            pickler.finish()
        return stream

    stream = in_passes(dump, carrier)
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
    except TransportFailed as error:
        if bounds is not UNBOUNDED:
            raise  # there is another way, and it is more faithful
        for imports in (False, True):  # what torch's loader would do with it
            with contextlib.suppress(TransportFailed):
                payload = _pack(circumstances, job, bounds, imports=imports, copies=True)
                if imports:
                    imported_anew.log(str(error).splitlines()[0])
                return payload
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
) -> tuple[Stream, bool]:
    """Pickle a job; return also whether each life is to open it."""

    def dump(keyed: Keyed, owners: Sequence[Any]) -> tuple[Stream, bool]:
        stream = Stream(bounds)
        with _carrying(carrier):
            pickler = make_pickler(
                stream, keyed, copies=copies, beside=stream.put_beside, known=owners
            )
            _dump(pickler, circumstances, job, imports=imports)
        return stream, pickler.each_opens

    # Found by name, classes are whole; but a table may be in one of its own keys there, too.
    return in_passes(dump, carrier, frozenset() if imports else None)


def _dump(pickler: ObjectPickler, circumstances: Any, job: Job, *, imports: bool) -> None:
    """Pickle where a job comes from, the job, the program's code, and what is to be checked."""
    if imports:  # modules are what they are when they are imported
        circumstances = circumstances.before_imports()
    try:
        pickler.dump(circumstances)
    except CostsTooMuch:
        raise
    except Exception as error:
        path, part, why = culprit(refusal, code_sent_with, circumstances, "", str(error))
        what = f"a {type(part).__name__} ({path.removeprefix('.')})"
        raise Unsendable(f"of what the program has set, {what} cannot be sent: {why}") from error
    if imports:
        pickler.go_by_names()
    try:
        pickler.dump(_Led(user_code.Script(), job) if imports else job)
    except CostsTooMuch:
        raise
    except Exception as error:
        raise _refusal_of(job, error) from error
    pickler.dump_code()
    pickler.dump(pickler.finish())


class _Led:
    """Stands for a thing, and for one before it that is unpickled first."""

    def __init__(self, leader: Any, thing: Any) -> None:
        self._both = leader, thing

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _second, self._both


def _second(leader: Any, thing: Any) -> Any:
    return thing


# ---- what cannot be sent ------------------------------------------------------------------------


def _refusal_of(job: Job, error: Exception) -> TransportFailed:
    """Say what in a job could not be sent."""
    for name in ("dataset", "collate_fn", "init_fn"):
        thing = getattr(job, name)
        if (why := refusal(thing)) is not None:
            path, part, why = culprit(refusal, code_sent_with, thing, name, why)
            kind, threaded = type(part), issubclass(type(part), THREADED)
            return TransportFailed.cannot_send(path, kind.__name__, why, threaded)
    return TransportFailed.cannot_send("dataset", type(job.dataset).__name__, str(error))
