"""What forked workers inherit and cannot share: said before they start.

A connection is a conversation; two processes that speak in it at once get each other's answers.
(Files that are open for reading are no trouble: each worker gets a position of its own.)
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import itertools
import os
import re
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import SemLock
from typing import Any

from torch.utils.data import Dataset

from ..._core.frozen_values import frozen
from ..._loading.dataset_walk import has_own, things_in
from ..._loading.job import Job
from ..._reporting.user_warnings import remark
from ..._worker.private_file_offsets import NOTHING, Held
from ..._worker.private_lmdb_environments import to_reopen

# Libraries whose open handles must not cross a fork.
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
_told: set[tuple[str, str]] = set()  # who holds it, and its kind: once is enough
_STEP = re.compile(r"""\.[^.\[]+|\[(?:'[^']*'|"[^"]*"|[^\]]*)\]""")  # of a path


@frozen
class _Found:
    """Something in a dataset that workers cannot share."""

    what: str  # in words
    key: object  # two handles of one file, or of one socket, are one thing
    then: str = "all inherit it, and two that use it at once can get each other's data"
    verb: str = "open"  # what each worker can do for itself


def warn_of_connections(dataset: Any, held: Held = NOTHING, *, sent: bool = False) -> None:
    """Warn of sockets and database handles in a dataset that workers are about to inherit, or to be
    sent; once for each attribute of it that holds some. Not of those that each worker is going to
    open anew."""
    seen: set[object] = set()
    taken = bool(held.taken)
    reopened = {id(each.inherited) for each in held.environments}
    datasets: set[str] = set()
    choosy: tuple[str, ...] = ("dataset",) if sent and _chooses(type(dataset)) else ()
    for path, thing in _things(dataset, datasets):
        if path.startswith(choosy):
            continue
        if sent and _chooses(type(thing)):
            choosy = (*choosy, f"{path}.", f"{path}[")
        found = None if id(thing) in reopened else _found(thing, taken=taken)
        if found is None or found.key in seen or (sent and isinstance(thing, threading.Thread)):
            continue
        holder = _holder(path, datasets)
        if holder not in seen and (holder, found.what) not in _told:
            _told.add((holder, found.what))
            remark(_words(holder, path, found))
        seen.update((found.key, holder))


def _chooses(kind: Any) -> bool:
    """Say whether a class decides what of its objects is sent: handles are what one leaves out."""
    return has_own(kind, "__getstate__", "__reduce__", "__reduce_ex__")


def _words(name: str, path: str, found: _Found) -> str:
    subject = f"{name} is {found.what}"
    if path != name:
        subject = f"{name} holds {found.what} ({path})"
    return (
        f"antifreeze: {subject}, {found.verb}ed before the workers: {found.then}. Have each worker"
        f" {found.verb} its own: {name} = antifreeze.per_worker({found.verb}_it), and {name}()"
        " where it is used. If no worker uses it, silence this with"
        " warnings.filterwarnings('ignore', 'antifreeze: dataset')."
    )


def held_by(job: Job) -> Held:
    """Say what workers that are about to be forked must do with what their dataset holds.

    Conversations are taken from several workers, unless there is a lock in the dataset by which
    they may take turns.
    """
    files: list[int] = []
    taken: dict[int, str] = {}
    encrypted: set[int] = set()
    ssl = sys.modules.get("ssl")
    locked = job.num_workers < 2
    datasets: set[str] = set()
    for path, thing in _things(job.dataset, datasets):
        locked = locked or isinstance(thing, SemLock)
        if type(thing) in (io.BufferedRandom, io.TextIOWrapper, io.FileIO):
            with contextlib.suppress(OSError, ValueError):  # closed
                number = thing.fileno()
                writable = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
                if writable and os.fstat(number).st_size:  # an empty one is to be written to
                    files.append(number)
        if (conversation := _conversation(thing)) is not None:
            taken.setdefault(conversation, _holder(path, datasets))
            if ssl is not None and issubclass(type(thing), ssl.SSLSocket):
                encrypted.add(conversation)
    environments = to_reopen(job.dataset)
    if locked:
        return Held(tuple(files), environments=environments)
    return Held(tuple(files), tuple(taken.items()), frozenset(encrypted), environments)


def _things(dataset: Any, datasets: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield what is in a dataset, with its path; put the paths of datasets inside it in the set."""
    for path, thing in things_in((dataset,)):
        path = "dataset" + path[len(type(dataset).__name__) :]
        if issubclass(type(thing), Dataset):
            datasets.add(path)
        yield path, thing


def _holder(path: str, datasets: set[str]) -> str:
    """Give the attribute that leads there: of the dataset, or of one inside it. Those are the
    user's own; whoever holds a client cannot give each worker one of its sockets."""
    ends = [step.end() for step in _STEP.finditer(path)]
    for end, following in reversed(list(itertools.pairwise(ends))):
        if path[:end] in datasets:
            return path[:following]
    return path[: ends[0]] if ends else path


def _conversation(thing: Any) -> int | None:
    """Give the descriptor of a connected socket, or of a pipe to another process."""
    kind = type(thing)
    try:
        if issubclass(kind, Connection):  # where nothing is read, nobody reads another's
            return Connection.fileno(thing) if thing.readable else None
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


def _found(thing: Any, *, taken: bool) -> _Found | None:
    kind, number = type(thing), _conversation(thing)
    if (handle := _handle(thing)) is not None:
        return handle
    if issubclass(kind, threading.Thread):
        then = "it does not run in them, and what waits for it there can wait for ever"
        return _Found("a thread", id(thing), then, "start") if thing.is_alive() else None
    if issubclass(kind, socket.socket):
        what = "an open socket" if socket.socket.fileno(thing) >= 0 else None
    else:
        what = "a pipe to another process" if number is not None else None
    if what is None:
        return None
    if not taken or number is None:
        # Those of multiprocessing are used with its locks, or by one worker.
        key = id(thing) if number is None else ("descriptor", number)
        return None if issubclass(kind, Connection) else _Found(what, key)
    then = (
        "all would share it, so a worker that uses it gets an error (unless a multiprocessing.Lock"
        " in the dataset shows that they take turns)"
    )
    return _Found(what, ("descriptor", number), then)


def _handle(thing: Any) -> _Found | None:
    """Say whether this is a handle of a library."""
    for each in type(thing).__mro__:
        name = each.__name__
        if name not in _HANDLES:
            continue
        library = each.__module__.partition(".")[0].lstrip("_")
        if library not in _LIBRARIES:  # a compiled class may call itself one of the builtins
            library = next((it for it in _LIBRARIES if _class_in(it, name) is each), "")
            if not library:
                continue
        key: object = id(thing)
        with contextlib.suppress(Exception):
            if library == "h5py":
                key = None
                key = each.file.__get__(thing).filename  # type: ignore[attr-defined]
            elif name == "Cursor":
                key = id(thing.connection)
        return None if key is None else _Found(f"{_LIBRARIES[library]} ({library}.{name})", key)
    return None


def _class_in(library: str, name: str) -> Any:
    module = sys.modules.get(library)
    return None if module is None else vars(module).get(name)
