"""Estimate how many Python objects a value is, such as the lines of a file or a parsed JSON."""

from __future__ import annotations

import ast

from ...findings import Confidence
from ...source.step_budget import cached_walk
from ...source.view import View
from ..rule import LIKELY, POSSIBLE

LARGE_OBJECT_COUNT = 1_000_000  # objects: some 100 MB, which each worker takes a copy of
# Functions that give many Python objects, of a size that is not known.
_BULK = frozenset(
    {"json.load", "json.loads", "orjson.loads", "ujson.load", "yaml.safe_load", "yaml.load"}
)
_BULK_METHODS = frozenset({"readlines", "splitlines", "to_dict", "to_pylist", "tolist"})
_ROWS = frozenset({"csv.reader", "csv.DictReader", "jsonlines.open", "open"})
_ROW_METHODS = frozenset({"iterrows", "itertuples"})
_LISTINGS = frozenset(
    {"pickle.load", "joblib.load", "os.listdir", "os.walk", "os.scandir", "glob.glob", "glob.iglob"}
)
_LISTING_METHODS = frozenset({"rglob", "glob", "iterdir"})
_AROUND = frozenset({"sorted", "list", "tuple", "set", "dict", "enumerate", "tqdm.tqdm", "zip"})
ObjectCount = tuple[str, Confidence]  # what makes it many, and how sure that is


@cached_walk
def object_count(value: ast.expr, view: View, depth: int = 0) -> ObjectCount | None:
    """Return what makes a value many Python objects, and how sure that is."""
    if depth > 6:
        return None
    match value:
        case ast.Subscript(slice=ast.Constant(value=str())):  # json.load(f)["images"]
            return object_count(value.value, view, depth + 1)
        case ast.ListComp() | ast.DictComp() | ast.SetComp() | ast.GeneratorExp():
            return object_count_of_rows(value.generators[0].iter, view, depth + 1)
        case ast.Call(func=ast.Attribute(attr="get" | "values" | "items" | "keys", value=inner)):
            return _amount_of_name(inner, view, depth)
        case ast.Call():
            return _called(value, view, depth)
        case ast.Name() | ast.Attribute():
            return _amount_of_name(value, view, depth)
        case _:
            return None


def _amount_of_name(node: ast.expr, view: View, depth: int) -> ObjectCount | None:
    origins = view.origins(node)
    return object_count(origins[0], view, depth + 1) if len(origins) == 1 else None


def _called(call: ast.Call, view: View, depth: int) -> ObjectCount | None:
    name = view.resolve(call.func)
    if name in _BULK:
        return f"{name}", LIKELY
    if name in _LISTINGS:
        return f"{name}", POSSIBLE
    if name in _AROUND and call.args:
        return object_count_of_rows(call.args[0], view, depth + 1)
    if name is None and isinstance(call.func, ast.Attribute):
        method = call.func.attr
        if method in _BULK_METHODS:
            return f".{method}()", POSSIBLE if method == "tolist" else LIKELY
        if method == "split" and any(_is_line_end(each) for each in call.args):
            return "a file's lines", LIKELY
        if method in _LISTING_METHODS:
            return f".{method}()", POSSIBLE
    return None


def _is_line_end(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "\n"


def object_count_of_rows(iterable: ast.expr, view: View, depth: int = 0) -> ObjectCount | None:
    """Return the same of a loop: what it goes over."""
    origins = view.origins(iterable)
    value = origins[0] if len(origins) == 1 else iterable
    if isinstance(value, ast.Call):
        name = view.resolve(value.func)
        if name == "range" and value.args:
            number = view.constant(value.args[1 if len(value.args) > 1 else 0])
            if isinstance(number, int) and number >= LARGE_OBJECT_COUNT:
                return f"{number:,} of them", LIKELY
            return None
        if name in _ROWS:
            return "a file's lines", LIKELY
        if isinstance(value.func, ast.Attribute) and value.func.attr in _ROW_METHODS:
            return f".{value.func.attr}()", LIKELY
    return object_count(value, view, depth + 1)
