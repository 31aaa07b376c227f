"""What forked workers inherit and cannot share: said before they start.

A connection is a conversation; two processes that speak in it at once get each other's answers.
(Files that are open for reading are no trouble: each worker gets a position of its own.)
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import socket
import stat
import threading
from collections.abc import Iterator
from multiprocessing.synchronize import SemLock
from typing import Any

from .._remarks import remark
from .._worker.files import Held
from .._worker.insides import things_in
from .._worker.spec import Job

# Libraries whose open handles must not cross a fork, by the first part of the module's name.
_LIBRARIES = {
    "h5py": "an HDF5 file",
    "lmdb": "an LMDB environment",
    "MySQLdb": "a database connection",
    "mysql": "a database connection",
    "netCDF4": "a NetCDF file",
    "oracledb": "a database connection",
    "psycopg": "a database connection",
    "psycopg2": "a database connection",
    "pymongo": "a database client",
    "pymysql": "a database connection",
    "redis": "a database client",
    "sqlite3": "a database connection",
    "tables": "an HDF5 file",
}
_HANDLES = frozenset(
    {"Connection", "Cursor", "Dataset", "Environment", "File", "Group", "MongoClient", "Redis"}
    | {"Transaction"}
)
_told: set[tuple[str, str]] = set()  # path and kind: once is enough


def warn_of_connections(dataset: Any, *, taken: bool = False) -> None:
    """Warn of sockets and database handles in a dataset that workers are about to inherit."""
    seen: set[int] = set()
    for path, thing in _things(dataset):
        what, number = _connection(thing), _conversation(thing)
        if what is None or (path, what) in _told or number in seen:
            continue
        if number is not None:
            seen.add(number)
        _told.add((path, what))
        then = "all inherit it, and what one of them reads another one asked for"
        if taken and number is not None:
            then = "all would share it, so a worker that uses it gets an error"
        remark(
            f"antifreeze: {path} is {what}, opened before the workers: {then}. Have each worker"
            f" open its own: {path} = antifreeze.per_worker(open_it), and {path}() where it is"
            " used. If no worker uses it, silence this with"
            " warnings.filterwarnings('ignore', 'antifreeze: dataset')."
        )


def held_by(job: Job) -> Held:
    """Say what workers that are about to be forked must do with what their dataset holds.

    Conversations are taken from several workers, unless there is a lock in the dataset by which
    they may take turns.
    """
    files: list[int] = []
    taken: dict[int, str] = {}
    locked = job.num_workers < 2
    for path, thing in _things(job.dataset):
        locked = locked or isinstance(thing, SemLock)
        if type(thing) in (io.BufferedRandom, io.TextIOWrapper, io.FileIO):
            with contextlib.suppress(OSError, ValueError):  # closed
                number = thing.fileno()
                writable = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
                if writable and os.fstat(number).st_size:  # an empty one is to be written to
                    files.append(number)
        if (conversation := _conversation(thing)) is not None:
            taken.setdefault(conversation, path)  # the outermost object's path
    return Held(tuple(files), () if locked else tuple(taken.items()))


def _things(dataset: Any) -> Iterator[tuple[str, Any]]:
    for path, thing in things_in((dataset,)):
        yield "dataset" + path[len(type(dataset).__name__) :], thing


def _conversation(thing: Any) -> int | None:
    """Give the descriptor of a connected socket, or of a pipe to another process."""
    kind = type(thing)
    try:
        if issubclass(kind, socket.socket):
            socket.socket.getpeername(thing)
            number = socket.socket.fileno(thing)
            return number if socket.socket.type.__get__(thing) == socket.SOCK_STREAM else None
        if kind in (io.BufferedReader, io.BufferedWriter, io.FileIO, io.TextIOWrapper):
            number = thing.fileno()
            return number if number > 2 and stat.S_ISFIFO(os.fstat(number).st_mode) else None
    except (OSError, ValueError):  # closed, or not connected
        pass
    return None


def _connection(thing: Any) -> str | None:
    kind = type(thing)
    for each in kind.__mro__:
        library = each.__module__.partition(".")[0].lstrip("_")
        if library in _LIBRARIES and each.__name__ in _HANDLES:
            return f"{_LIBRARIES[library]} ({each.__module__}.{each.__name__})"
    if issubclass(kind, socket.socket) and socket.socket.fileno(thing) >= 0:
        return "an open socket"
    if issubclass(kind, threading.Thread) and thing.is_alive():
        return "a thread, which does not run in workers,"
    return "a pipe to another process" if _conversation(thing) is not None else None
