"""What forked workers inherit and cannot share: said before they start.

A connection is a conversation; two processes that speak in it at once get each other's answers.
(Files that are open for reading are no trouble: each worker gets a position of its own.)
"""

from __future__ import annotations

import socket
from typing import Any

from .._remarks import remark
from .._worker.insides import things_in

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


def warn_of_connections(dataset: Any) -> None:
    """Warn of sockets and database handles in a dataset that workers are about to inherit."""
    for path, thing in things_in((dataset,)):
        what = _connection(thing)
        path = "dataset" + path[len(type(dataset).__name__) :]
        if what is None or (path, what) in _told:
            continue
        _told.add((path, what))
        remark(
            f"antifreeze: {path} is {what}, opened before the workers: all inherit it, and what"
            " one of them reads another one asked for. Have each worker open its own:"
            f" {path} = antifreeze.per_worker(open_it), and {path}() where it is used. If no worker"
            " uses it, silence this with"
            " warnings.filterwarnings('ignore', 'antifreeze: dataset')."
        )


def _connection(thing: Any) -> str | None:
    kind = type(thing)
    for each in kind.__mro__:
        library = each.__module__.partition(".")[0].lstrip("_")
        if library in _LIBRARIES and each.__name__ in _HANDLES:
            return f"{_LIBRARIES[library]} ({each.__module__}.{each.__name__})"
    if issubclass(kind, socket.socket) and socket.socket.fileno(thing) >= 0:
        return "an open socket"
    return None
