"""The same file, read as a whole for each sample."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Function
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.sample_invariants import sample_functions
from .rule import LIKELY, SLOW, Hit, Rule

# Functions that read a whole file, with the name of the argument that says which.
READERS = {
    "pandas.read_csv": "filepath_or_buffer",
    "pandas.read_table": "filepath_or_buffer",
    "pandas.read_parquet": "path",
    "pandas.read_json": "path_or_buf",
    "pandas.read_excel": "io",
    "pandas.read_pickle": "filepath_or_buffer",
    "pandas.read_feather": "path",
    "pandas.read_hdf": "path_or_buf",
    "polars.read_csv": "source",
    "polars.read_parquet": "source",
    "numpy.load": "file",
    "numpy.loadtxt": "fname",
    "numpy.genfromtxt": "fname",
    "scipy.io.loadmat": "file_name",
    "torch.load": "f",
    "json.load": "fp",
    "pickle.load": "file",
    "joblib.load": "filename",
    "yaml.safe_load": "stream",
    "pyarrow.parquet.read_table": "source",
}
_OPENERS = frozenset({"open", "gzip.open", "bz2.open", "io.open"})
# Arguments with which less than the whole file is read, or nothing is copied.
_IN_PART = frozenset({"mmap_mode", "mmap", "skiprows", "nrows", "chunksize", "filters", "usecols"})


def find(view: View) -> Iterator[Hit]:
    for samples, function in sample_functions(view):
        for node, file, what in _reads(function, view):
            path = _opened(file, view)
            if samples.is_same_for_all(path, function) and not samples.runs_once(node, function):
                yield Hit(
                    node,
                    f"{what} in `{function.name}` reads the whole of `{text_of(path)}`"
                    " again for every sample",
                )


def _reads(function: Function, view: View) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """Yield what reads a whole file: the node, the file, and how it is called."""
    for node in function.nodes():
        if isinstance(node, ast.Call):
            name = view.resolve(node.func)
            if name not in READERS:
                continue
            given = view.call_arguments(node, (READERS[name],))
            if given[READERS[name]].node is None or any(e in given for e in _IN_PART):
                continue
            path = given[READERS[name]].node
            assert path is not None
            yield node, path, f"`{name}`"
        elif isinstance(node, ast.Subscript) and _is_everything(node.slice):
            match node.value:
                case ast.Subscript(value=ast.Name() as file, slice=ast.Constant()):
                    made = view.value(file)
                    if view.type_of(file) == "h5py.File" and isinstance(made, ast.Call):
                        yield from ((node, each, f"`{text_of(node)}`") for each in made.args[:1])
                case _:
                    pass


def _is_everything(node: ast.expr) -> bool:
    match node:
        case ast.Slice(lower=None, upper=None, step=None) | ast.Tuple(elts=[]):
            return True
        case ast.Constant(value=value):
            return value is ...
        case _:
            return False


def _opened(file: ast.expr, view: View) -> ast.expr:
    """Return the path of what is read, if it was opened here: `json.load(open(path))`."""
    made = view.value(file) if isinstance(file, ast.Name) else file
    if isinstance(made, ast.Call) and view.resolve(made.func) in _OPENERS and made.args:
        return made.args[0]
    return file


RULE = Rule(
    code="AF506",
    name="whole-file-for-every-sample",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
