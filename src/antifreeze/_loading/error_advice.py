"""What to try after an error of the user's code: one line, or nothing where no line is right."""

from __future__ import annotations

import errno
from enum import Enum

from .._core.limits import LIMITS
from .job import Job

# Mistakes in code, whatever the sample is.
_CODE = (ImportError, NameError, NotImplementedError, RecursionError, SyntaxError)
# Mistakes in code, or samples that are not what the code expects: the latter if others were loaded.
_EITHER = (AssertionError, AttributeError, LookupError, TypeError, ZeroDivisionError)
# Want of something that no other sample can do without: it is not this one's fault.
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EBADF})
_NETWORK = frozenset(
    {
        *(errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH),
        *(errno.ENETUNREACH, errno.EPIPE, errno.ETIMEDOUT),
    }
)
_NETWORK_NAMES = ("ConnectionError", "ConnectTimeout", "EndpointConnectionError", "ReadTimeout")
_SERVERS = ("redis", "pymongo", "psycopg2", "psycopg")  # whose clients have names of their own


class Phase(Enum):
    """What was being done when it was raised."""

    SAMPLE = "loading a sample"
    COLLATE = "collating"
    STREAM = "taking a sample of an iterator"
    GENERATOR = "taking a sample of a generator"
    OTHER = "something else"


def next_step(error: BaseException, job: Job, phase: Phase, *, proven: bool, none: bool) -> str:
    """Return what to try, in one line. `proven`: the same code has loaded other samples. `none`: it
    was torch's collate, and a sample is None."""
    if not isinstance(error, Exception) or job.policy.action != "raise":
        return ""
    if phase is Phase.COLLATE:
        return _SKIP_NONE if none and job.auto_collation else ""
    if phase is Phase.OTHER:
        return ""
    if _is(error, MemoryError):
        return _memory(job)
    if _errnos(error) & _SHORT or "CUDA" in _words(error):
        return ""
    if isinstance(error, _CODE) or (isinstance(error, _EITHER) and not proven):
        return _DEBUG if job.num_workers else ""
    if phase is Phase.GENERATOR:
        return _INSIDE
    if phase is Phase.STREAM:
        return _STREAM
    if not job.auto_collation:
        return _SCAN
    return _RETRY if _is_network(error) and not job.policy.retries else _CONTINUE


_CONTINUE = (
    'to continue without such samples: on_error="skip" or "replace"; to list them all:'
    " `antifreeze scan`"
)
_RETRY = "to try such samples again: on_error=antifreeze.policies.raising(retries=3)"
_SCAN = "to list all samples that fail: `antifreeze scan`"
_STREAM = 'to continue without such samples: on_error="skip"'
_INSIDE = "to continue without it, catch it inside the generator: one that has raised is at its end"
_DEBUG = "to debug it: num_workers=0 runs the same code in the main process"
_SKIP_NONE = 'to continue without samples that are None: on_error="skip" or "replace"'


def _memory(job: Job) -> str:
    if not job.num_workers:
        return "to use less memory: a smaller batch_size"
    fewer = "fewer workers, " if job.num_workers > 1 else ""
    return f"to use less memory: {fewer}a smaller batch_size or prefetch_factor"


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    inner: BaseException | None = error
    while inner is not None and len(found) < LIMITS.searches.error_chain:
        found.append(inner)
        inner = inner.__cause__ or inner.__context__
    return found


def _is(error: BaseException, kind: type[BaseException]) -> bool:
    return any(isinstance(each, kind) for each in _chain(error))


def _errnos(error: BaseException) -> set[int | None]:
    return {each.errno for each in _chain(error) if isinstance(each, OSError)}


def _is_network(error: BaseException) -> bool:
    if _errnos(error) & _NETWORK:
        return True
    return any(
        isinstance(each, ConnectionError | TimeoutError)
        or type(each).__name__ in _NETWORK_NAMES
        or type(each).__module__.partition(".")[0] in _SERVERS
        for each in _chain(error)
    )


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def is_next_step(note: str) -> bool:
    """Whether a note on an error is what `next_step` returned for it."""
    return note.startswith("antifreeze: to ")
