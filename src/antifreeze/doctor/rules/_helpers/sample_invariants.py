"""What is the same for every sample, and what runs only once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.definitions import Dataset, DatasetKind, Function
from ...source.syntax.node_text import last_name, text_of
from ...source.syntax.scopes import Kind
from ...source.view import View

_PATHS = frozenset(
    {"os.path.join", "os.path.abspath", "os.path.expanduser", "os.fspath", "pathlib.Path", "str"}
    | {"os.path.realpath", "os.environ.get", "os.getenv", "list", "tuple", "dict", "int", "float"}
)
_PATH_METHODS = frozenset(
    {"joinpath", "format", "with_suffix", "with_name", "resolve", "expanduser", "as_posix"}
)
_ONCE = frozenset({"cache", "lru_cache", "cached_property", "per_worker"})


class SampleInvariants:
    """What loads the samples of one dataset, and what of it changes from one to the next."""

    def __init__(self, dataset: Dataset, view: View) -> None:
        self.dataset = dataset
        self.view = view
        self.functions = {each.node: each for each in dataset.loading}
        self._changing = {
            name
            for name, places in dataset.attributes.items()
            if any(place.method in self.functions for place in places)
        }

    def is_same_for_all(self, node: ast.AST, function: Function, depth: int = 0) -> bool:
        """Whether an expression is certainly the same for every sample."""

        def all_same(*nodes: ast.AST | None) -> bool:
            return all(
                each is None or self.is_same_for_all(each, function, depth + 1) for each in nodes
            )

        self.view.budget.spend()
        if depth > 12:
            return False
        match node:
            case ast.Constant():
                return True
            case ast.Name():
                return self._same_name(node, function, depth)
            case ast.Attribute():
                if self.view.module.class_of_self(node.value) is not None:
                    return node.attr not in self._changing
                return self.view.resolve(node) is not None or all_same(node.value)
            case ast.Subscript():
                return all_same(node.value, node.slice)
            case ast.Call():
                return self._path_call(node, function, depth) and all_same(
                    *node.args, *(each.value for each in node.keywords)
                )
            case ast.BinOp():
                return all_same(node.left, node.right)
            case ast.JoinedStr() | ast.BoolOp():
                return all_same(*node.values)
            case ast.FormattedValue() | ast.Starred():
                return all_same(node.value)
            case ast.UnaryOp():
                return all_same(node.operand)
            case ast.Tuple() | ast.List():
                return all_same(*node.elts)
            case ast.Dict():
                return all_same(*node.keys, *node.values)
            case _:
                return False

    def _same_name(self, node: ast.Name, function: Function, depth: int) -> bool:
        bindings = self.view.module.bindings(node)
        if not bindings:
            return self.view.resolve(node) is not None
        for each in bindings:
            if each.kind is Kind.IMPORT or isinstance(each.node, (ast.ClassDef, ast.FunctionDef)):
                continue
            if each.kind not in (Kind.ASSIGNED, Kind.WITH) or each.value is None:
                return False
            if not self.view.module.holds(each.value) or not self.is_same_for_all(
                each.value, function, depth + 1
            ):
                return False
        return True

    def _path_call(self, call: ast.Call, function: Function, depth: int) -> bool:
        if self.view.resolve(call.func) in _PATHS:
            return True
        match call.func:
            case ast.Attribute(attr=name, value=ast.expr() as owner) if name in _PATH_METHODS:
                return self.is_same_for_all(owner, function, depth + 1)
            case _:
                return False

    def runs_once(self, node: ast.AST, function: Function, depth: int = 0) -> bool:
        """Whether something is done the first time only: kept in `self`, under `if x is None`,
        in a cached function, or in one that is called so."""
        module = self.view.module
        if isinstance(function.node, ast.Lambda) or depth > 4 or not module.holds(node):
            return True
        if any(_ONCE & set(_words(each)) for each in function.node.decorator_list):
            return True
        for each in (node, *module.ancestors(node)):
            if each is function.node:
                break
            if isinstance(each, ast.If) and _asks_first(each.test):
                return True
            if isinstance(each, ast.ExceptHandler):
                return True
        if self._kept(node, function):
            return True
        calls = [
            (call, other)
            for other in self.functions.values()
            if other.node is not function.node
            for call in other.nodes()
            if isinstance(call, (ast.Call, ast.Attribute))
            and last_name(call.func if isinstance(call, ast.Call) else call) == function.name
        ]
        if function.name.startswith("__") or not calls:
            return False
        return all(self.runs_once(call, other, depth + 1) for call, other in calls)

    def _kept(self, node: ast.AST, function: Function) -> bool:
        """Whether the function stores something in `self`, an item or a global, and the value
        may be that: it is loaded lazily."""
        return any(
            isinstance(each, ast.Global)
            or (
                isinstance(each, (ast.Attribute, ast.Subscript))
                and isinstance(each.ctx, ast.Store)
                and "self" in text_of(each)
            )
            for each in function.nodes()
        )


def sample_functions(view: View) -> Iterator[tuple[SampleInvariants, Function]]:
    """Yield the functions of this file that load the samples of a map-style dataset."""
    for dataset in view.datasets:
        if dataset.kind is DatasetKind.MAP:
            samples = SampleInvariants(dataset, view)
            for function in dataset.loading:
                if view.module.holds(function.node):
                    yield samples, function


def _words(node: ast.AST) -> list[str]:
    return [
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in ast.walk(node)
        if isinstance(each, (ast.Attribute, ast.Name))
    ]


def _asks_first(test: ast.expr) -> bool:
    """Whether a condition asks if something is there already."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and any(
            isinstance(op, (ast.Is, ast.IsNot, ast.NotIn, ast.In)) for op in node.ops
        ):
            return True
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return True
        if isinstance(node, ast.Call) and "attr" in text_of(node.func):
            return True
    return False
