"""Files, databases and sockets: the calls that open them, and the values that hold one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...source.definitions import Class, Function
from ...source.step_budget import cached_walk
from ...source.syntax.node_text import text_of
from ...source.view import View

_ONE_PLACE = "one position in the file for all workers"
_ONE_IN_ARCHIVE = "one position in the archive for all workers"
_ONE_IN_VIDEO = "one position in the video, and one decoder, for all workers"
_HDF5 = "HDF5's state is copied into each worker, its descriptor is shared"
_ANSWERS = "workers read each other's answers"

# Who makes a handle, and what goes wrong when forked workers share it.
HANDLES = {
    **dict.fromkeys(
        ("open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open", "os.fdopen"),
        _ONE_PLACE,
    ),
    **dict.fromkeys(
        ("gzip.GzipFile", "tifffile.TiffFile", "openslide.OpenSlide", "openslide.open_slide"),
        _ONE_PLACE,
    ),
    **dict.fromkeys(("rasterio.open", "pysam.FastaFile", "pysam.AlignmentFile"), _ONE_PLACE),
    **dict.fromkeys(
        ("zipfile.ZipFile", "tarfile.open", "tarfile.TarFile", "rarfile.RarFile"), _ONE_IN_ARCHIVE
    ),
    **dict.fromkeys(("zarr.ZipStore", "zarr.storage.ZipStore", "numpy.load"), _ONE_IN_ARCHIVE),
    **dict.fromkeys(("cv2.VideoCapture", "av.open", "decord.VideoReader"), _ONE_IN_VIDEO),
    **dict.fromkeys(("h5py.File", "tables.open_file", "netCDF4.Dataset"), _HDF5),
    **dict.fromkeys(
        ("lmdb.open", "lmdb.Environment"), "LMDB forbids using an environment after a fork"
    ),
    "sqlite3.connect": "SQLite forbids using a connection after a fork",
    "duckdb.connect": "DuckDB forbids using a connection after a fork",
    **dict.fromkeys(("socket.socket", "socket.create_connection"), _ANSWERS),
    **dict.fromkeys(
        ("psycopg2.connect", "psycopg.connect", "pymysql.connect", "MySQLdb.connect"), _ANSWERS
    ),
    **dict.fromkeys(("mysql.connector.connect", "sqlalchemy.create_engine"), _ANSWERS),
    **dict.fromkeys(
        ("redis.Redis", "redis.StrictRedis", "redis.from_url", "redis.Redis.from_url"), _ANSWERS
    ),
    "pymongo.MongoClient": "its threads and locks do not survive a fork",
    **dict.fromkeys(
        ("boto3.client", "boto3.resource"),
        "its connections must not be shared by processes, as boto3's documentation says",
    ),
}
# Tried with pickle, or known to leave their connections behind: these can be sent to a worker.
MAY_BE_SENT = frozenset(
    {"redis.Redis", "redis.StrictRedis", "redis.from_url", "redis.Redis.from_url"}
    | {"pymongo.MongoClient", "zarr.ZipStore", "zarr.storage.ZipStore", "openslide.OpenSlide"}
)
# Parts of a handle that are handles, too: `file["x"]`, `connection.cursor()`, `client.db`. By
# maker, the attributes that are; None: all but _VALUES.
_WITH_PARTS: dict[str, frozenset[str] | None] = {
    "h5py.File": frozenset({"file", "parent"}),
    "netCDF4.Dataset": frozenset({"variables", "groups", "parent"}),
    "tables.open_file": None,
    "pymongo.MongoClient": None,
}
_VALUES = frozenset(
    {"attrs", "shape", "dtype", "size", "ndim", "nrows", "name", "title", "filename"}
)
_ARCHIVE_NAME = re.compile(r"(^|_)npz(_?(file|path|name|fn|fname))?$", re.IGNORECASE)
_GIVE_HANDLES = frozenset({"cursor", "makefile", "open", "Bucket", "Table", "connect", "begin"})
_DEEPEST = 5
# Decorators of functions that still return what they returned.
_PLAIN = frozenset(
    {"staticmethod", "classmethod", "lru_cache", "functools.lru_cache", "cache", "functools.cache"}
)

OpenedHandle = tuple[str, ast.Call]


def opened_handle(node: ast.expr, view: View, depth: int = 0) -> OpenedHandle | None:
    """Return who opened the handle that an expression is, holds or is a part of, and the call."""
    if depth > _DEEPEST or (isinstance(node, ast.Name) and view.is_closed_after(node)):
        return None
    for value in view.origins(node):
        found = _opened(value, view, depth + 1)
        if found is not None and not _closed_by_then(found[1], node, view):
            return found
    return None


def _closed_by_then(call: ast.Call, node: ast.expr, view: View) -> bool:
    """Whether what a call opens is closed when the function ends that has it: by `with`, or by
    `file.close()`. What is opened elsewhere and passed may be open for as long as it is used."""
    function = view.function_around(call)
    if function is None:
        return False
    home = view.module_of(call)
    parents = home.scopes.parents
    if function is not view.function_around(node) and not isinstance(
        parents.get(function), ast.ClassDef
    ):
        return False
    if isinstance(parents.get(call), ast.withitem):
        return True
    name = view.variable_of(call)
    return bool(name) and any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr == "close"
        and text_of(each.func.value) == name
        and not any(isinstance(e, ast.ExceptHandler) for e in home.ancestors(each))
        for each in home.body_of(function)
    )


@cached_walk
def _opened(value: ast.expr, view: View, depth: int) -> OpenedHandle | None:
    parts: list[ast.expr] = []
    match value:
        case ast.Call():
            return _by_call(value, view, depth)
        case ast.ListComp(elt=part) | ast.DictComp(value=part):
            parts = [part]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            parts = elements
        case ast.Dict(values=elements):
            parts = elements
        case ast.Subscript(value=whole, slice=key) if _is_key(key, whole, view):
            found = opened_handle(whole, view, depth)
            return found if found is not None and found[0] in _WITH_PARTS else None
        case ast.Attribute(value=whole, attr=name) if name not in _VALUES:
            found = opened_handle(whole, view, depth)
            parts_of = _WITH_PARTS.get(found[0], frozenset()) if found is not None else frozenset()
            return found if parts_of is None or name in parts_of else None
        case _:
            pass
    return next((found for each in parts if (found := opened_handle(each, view, depth))), None)


def _by_call(call: ast.Call, view: View, depth: int) -> OpenedHandle | None:
    name = view.resolve(call.func)
    if name == "numpy.load":
        return (name, call) if _is_npz(call, view) else None
    if name in HANDLES:
        return name, call
    function = view.function_of(call.func) if _is_name(call.func) else None
    if function is not None:
        return _by_function(function, view, depth)
    if isinstance(call.func, ast.Attribute) and call.func.attr in _GIVE_HANDLES:
        if call.func.attr == "open" and view.type_of(call.func.value) == "pathlib.Path":
            return "open", call
        return opened_handle(call.func.value, view, depth)
    owner = view.class_of(call.func) if _is_name(call.func) else None
    if owner is not None and depth <= 2:
        return next((found for _, found in handles_kept_by(owner, view, depth)), None)
    return None


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))


def _by_function(function: Function, view: View, depth: int) -> OpenedHandle | None:
    """Return the handle that a function of the project returns, if it returns nothing else."""
    node = function.node
    if isinstance(node, ast.AsyncFunctionDef) or function.is_generator:
        return None
    if not isinstance(node, ast.Lambda) and not _PLAIN.issuperset(
        text_of(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list
    ):
        return None  # something else by now
    found = None
    for value in function.returns:
        if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            found = opened_handle(value, view, depth)
            if found is None:
                return None
    return found


def _is_key(key: ast.expr, whole: ast.expr, view: View) -> bool:
    """Whether a subscript names a part, `file["x"]`; and does not read it, `file["x"][:]`,
    `file["x"][mask]`."""
    match key:
        case ast.Constant(value=str()) | ast.JoinedStr():
            return True
        case ast.Name() | ast.Attribute():
            return not any(isinstance(each, ast.Subscript) for each in view.origins(whole))
        case _:
            return False


def _is_npz(call: ast.Call, view: View) -> bool:
    """Whether numpy.load opens an archive, whose arrays it reads when they are asked for."""
    if not call.args or any(each.arg == "mmap_mode" for each in call.keywords):
        return False
    return _ends_in_npz(call.args[0], view)


def _ends_in_npz(path: ast.expr, view: View, depth: int = 0) -> bool:
    """Whether a path has the ending of an archive, as far as its end is seen."""
    match path:
        case ast.Constant(value=str() as text):
            return text.endswith(".npz")
        case ast.JoinedStr(values=[*_, last]) | ast.BinOp(right=last):
            return _ends_in_npz(last, view, depth + 1)
        case ast.FormattedValue(value=inside):
            return _ends_in_npz(inside, view, depth + 1)
        case ast.Call(args=[*_, last]):  # os.path.join(...), Path(...), path.with_suffix(...)
            return _ends_in_npz(last, view, depth + 1)
        case ast.Name() | ast.Attribute() if depth <= _DEEPEST:
            seen = [each for each in view.origins(path) if each is not path]
            if any(_ends_in_npz(each, view, depth + 1) for each in seen):
                return True
            return not seen and _ARCHIVE_NAME.search(text_of(path)) is not None
        case _:
            return False


def handles_kept_by(owner: Class, view: View, depth: int = 0) -> Iterator[tuple[str, OpenedHandle]]:
    """Yield the attributes in which a plain class keeps a handle that it opens when it is made."""
    prepared = {each.node for each in owner.reached("__init__")}
    for attribute, places in owner.attributes.items():
        if any(each.method is None or each.method not in prepared for each in places):
            continue  # opened anew somewhere, or closed
        for place in places:
            found = opened_handle(place.value, view, depth + 1) if place.value is not None else None
            if found is not None:
                yield attribute, found
                break
