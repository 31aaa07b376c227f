"""What else is known about an error of the user's code in a worker: notes that explain it."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator

from .._core.limits import LIMITS
from .accelerator_errors import is_beside_context, says_fork
from .private_file_offsets import Held
from .private_lmdb_environments import is_reopened

# What reading and writing give where a conversation was (see `files.take_away`).
TAKEN = frozenset({errno.EBADF})
_LMDB_ERRORS = frozenset({"ReadersFullError", "BadRslotError"})


def needs_no_fork(error: BaseException) -> bool:
    """Whether an error, or one that led to it, is that of an accelerator which this process cannot
    use, since it was forked from one that has a context."""
    return any(says_fork(_words(each)) for each in _chain(error)) and is_beside_context()


def needed_no_fork(formatted: str) -> bool:
    """The same of an error of which only the traceback is left: its errors, and not their code."""
    lines = formatted.splitlines()
    raised = "\n".join(line for line in lines if not line.startswith((" ", "Traceback")))
    return says_fork(raised) and is_beside_context()


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _of_forks(error: BaseException, clean_since: str) -> tuple[str, ...]:
    if clean_since or not needs_no_fork(error):
        return ()
    return (
        "antifreeze: this worker was forked from a process that has used the accelerator, so it"
        " cannot use it itself. Load on the CPU and move the batch in the training loop; or start"
        ' workers in a clean process, multiprocessing_context="spawn", for which all of the dataset'
        " must be picklable",
    )


def _names(held: Held) -> str:
    return ", ".join(dict.fromkeys(name for _, name in held.taken))


def _of_taken(held: Held) -> str:
    names = _names(held)
    return (
        f"antifreeze: {names}: opened before the workers, who would have got each other's answers,"
        " and so taken from them. Have each worker open its own: antifreeze.per_worker(open_it); or"
        " have them take turns, by a multiprocessing.Lock in the dataset"
    )


def _of_debuggers(error: BaseException) -> tuple[str, ...]:
    """Say why a debugger has left at once, if that is what happened."""
    bdb = sys.modules.get("bdb")
    if bdb is None or not isinstance(error, bdb.BdbQuit):
        return ()
    return (
        "antifreeze: a debugger (breakpoint(), pdb.set_trace()) was started in a worker, which has"
        " no terminal to read from, and left. With num_workers=0 the same code runs in the main"
        " process, where a debugger works",
    )


def _of_numbers(clean_since: str) -> str:
    return (
        "antifreeze: the number of a descriptor that the main process has opened means nothing in"
        f" this worker: it comes from a clean process, since {clean_since}. If the dataset has"
        " one, have each worker open its own: antifreeze.per_worker(open_it); or"
        ' multiprocessing_context="fork", where workers inherit it'
    )


def _of_lmdb(error: BaseException) -> tuple[str, ...]:
    """Explain the errors of an LMDB environment that was opened before the fork."""
    if not any(
        (type(each).__name__ in _LMDB_ERRORS and type(each).__module__ in ("lmdb", "builtins"))
        or (type(each).__module__ == "lmdb" and "already open in this process" in str(each))
        for each in _chain(error)
    ):
        return ()
    if is_reopened():
        return (
            "antifreeze: this worker reads by an LMDB environment of its own, in the place of one"
            " that was opened before the fork. If it is that one whose table of readers is full,"
            " open it with a larger max_readers: each transaction that is open, in any process,"
            " takes one. One that it has from a global variable, or from a function, is still the"
            " main process's: have each worker open its own, antifreeze.per_worker(open_it)",
        )
    return (
        "antifreeze: an LMDB environment that locks cannot be used on both sides of a fork: what a"
        " forked worker reads takes a slot of its table of readers in the name of the main process,"
        " and keeps it until that ends. Open it with lock=False, if nobody writes meanwhile; or"
        " have each worker open its own, antifreeze.per_worker(open_it), and close it in the main"
        " process before the workers start",
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that led to it: libraries wrap them."""
    for _ in range(LIMITS.searches.error_chain):
        if error is None:
            break
        yield error
        error = error.__cause__ or error.__context__


def _errnos(error: BaseException) -> set[int | None]:
    return {each.errno for each in _chain(error) if isinstance(each, OSError)}


def _is_of_taken(error: BaseException, held: Held) -> bool:
    """Whether this is what a call gives where a conversation was."""
    ssl = sys.modules.get("ssl") if held.encrypted else None
    if ssl is not None and isinstance(error, ssl.SSLError):
        return error.errno in (ssl.SSL_ERROR_SSL, ssl.SSL_ERROR_SYSCALL, ssl.SSL_ERROR_EOF)
    return isinstance(error, OSError) and error.errno in TAKEN


def name_taken(error: BaseException, held: Held) -> None:
    """Put into the text of an error that a conversation was taken from this worker: not everybody
    shows notes."""
    if not held.taken:
        return
    why = (
        f"antifreeze: {_names(held)} was opened before the workers, and is taken from them; have"
        " each open its own by antifreeze.per_worker"
    )
    for each in _chain(error):
        if not _is_of_taken(each, held):
            continue
        place = min(1, len(each.args) - 1)
        if place < 0 or not isinstance(each.args[place], str) or why in each.args[place]:
            continue
        text = f"{each.args[place]} ({why})"
        each.args = (*each.args[:place], text, *each.args[place + 1 :])
        if place == 1 and isinstance(each, OSError):
            each.strerror = text


def reasons(error: BaseException, held: Held, clean_since: str) -> list[str]:
    """Say what is known about an error: descriptors that cannot be used here, debuggers."""
    numbers = _errnos(error)
    found = []
    if held.taken and any(_is_of_taken(each, held) for each in _chain(error)):
        found.append(_of_taken(held))
    elif clean_since and errno.EBADF in numbers:
        found.append(_of_numbers(clean_since))
    return [*found, *_of_forks(error, clean_since), *_of_lmdb(error), *_of_debuggers(error)]
