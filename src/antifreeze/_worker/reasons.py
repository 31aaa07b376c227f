"""What else is known about an error of the user's code in a worker: notes that explain it."""

from __future__ import annotations

import errno
import sys

from .files import Held

# What reading and writing give where a conversation was (see `files.take_away`).
TAKEN = frozenset({errno.EBADF, errno.EPIPE, errno.ENOTCONN})
CHAIN = 8  # errors, each the cause of the one before, that are looked at


def _of_taken(held: Held) -> str:
    names = ", ".join(dict.fromkeys(name for _, name in held.taken))
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


def _errnos(error: BaseException | None) -> set[int | None]:
    """Give the numbers of an error and of those that led to it: libraries wrap them."""
    found: set[int | None] = set()
    for _ in range(CHAIN):
        if error is None:
            break
        if isinstance(error, OSError):
            found.add(error.errno)
        error = error.__cause__ or error.__context__
    return found


def reasons(error: BaseException, held: Held, clean_since: str) -> list[str]:
    """Say what is known about an error: descriptors that cannot be used here, debuggers."""
    numbers = _errnos(error)
    found = []
    if held.taken and numbers & TAKEN:
        found.append(_of_taken(held))
    if clean_since and errno.EBADF in numbers:
        found.append(_of_numbers(clean_since))
    return [*found, *_of_debuggers(error)]
