"""The scopes of one module: which name is bound where, and the parent of every node.

One walk, without recursion: expressions of a thousand terms exist.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

FAR_NODES = 40  # nodes between one and its scope: a sum of as many terms
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_NEW_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OPENERS = frozenset((*_NEW_SCOPE, *_COMPREHENSION))
_TYPE_ALIAS = getattr(ast, "TypeAlias", ast.ClassDef)  # of Python 3.12
_TYPED = frozenset((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, _TYPE_ALIAS))
_TYPE_PARAMETERS = ("TypeVar", "ParamSpec", "TypeVarTuple")  # by name: 3.11 has none of them
_STATEMENTS = (ast.stmt, ast.ExceptHandler)
# The most frequent nodes, none of which binds a name.
_BIND_NOTHING: frozenset[type[ast.AST]] = frozenset(
    {ast.Module, ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.Expr, ast.arguments, ast.arg}
    | {ast.keyword, ast.BinOp, ast.Compare, ast.Subscript, ast.Tuple, ast.List, ast.Return, ast.If}
    | {ast.UnaryOp, ast.BoolOp, ast.Slice, ast.Dict, ast.Lambda, ast.JoinedStr, ast.IfExp}
    | {ast.FormattedValue, ast.Starred, ast.Raise, ast.Assert, ast.Pass, ast.alias, ast.Try}
)
BUILTINS = frozenset(dir(builtins)) | {
    "__file__",
    "__doc__",
    "__spec__",
    "__loader__",
    "__package__",
    "__path__",
    "__builtins__",
    "__annotations__",
    "__class__",
    "__debug__",
    "get_ipython",
    "display",
    "reveal_type",
    "WindowsError",
}


class Kind(Enum):
    """How a name came to its value."""

    IMPORT = "import"
    ASSIGNED = "assigned"  # `name = value`: the value is known
    WITH = "with"  # `with value as name`
    DEF = "def"
    CLASS = "class"
    PARAMETER = "parameter"
    OTHER = "other"  # loops, unpacking, augmented assignments, exceptions: the value is not known


Package = Callable[[int], str]  # what `.` (1), `..` (2) and so on stand for


@dataclass(frozen=True, slots=True)
class Binding:
    """One place where a name gets a value."""

    kind: Kind
    node: ast.AST
    value: ast.expr | None = None  # of ASSIGNED and WITH; the default of a PARAMETER
    qualified: str = ""  # of IMPORT


@dataclass(slots=True)
class Scope:
    """The names of a module, class, function, lambda or comprehension; or type parameters."""

    node: ast.AST  # of type parameters: the first
    parent: Scope | None
    names: dict[str, list[Binding]] = field(default_factory=dict)
    of_module: set[str] = field(default_factory=set)  # `global` names
    of_outer: set[str] = field(default_factory=set)  # `nonlocal` names
    stars: list[str] = field(default_factory=list)  # modules of `from x import *`

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def has_types(self) -> bool:
        return type(self.node).__name__ in _TYPE_PARAMETERS

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))

    @property
    def top(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def bind(self, name: str, binding: Binding) -> None:
        scope = self
        while isinstance(scope.node, _COMPREHENSION) and isinstance(binding.node, ast.NamedExpr):
            assert scope.parent is not None
            scope = scope.parent
        if name in scope.of_module:
            scope = scope.top
        elif name in scope.of_outer:
            scope = scope._outer_with(name)
        scope.names.setdefault(name, []).append(binding)

    def _outer_with(self, name: str) -> Scope:
        """Return the scope that `nonlocal name` means: the nearest function around that has it; if
        none has it yet, the nearest, which binds it further down."""
        functions: list[Scope] = []
        scope = self.parent
        while scope is not None:
            if scope.is_function:
                functions.append(scope)
            scope = scope.parent
        having = [each for each in functions if name in each.names]
        return (having or functions or [self])[0]


@dataclass(slots=True)
class Scopes:
    """All scopes of a module."""

    top: Scope
    parents: dict[ast.AST, ast.AST]
    of_node: dict[ast.AST, Scope]  # the scope that a node opens
    nodes: list[ast.AST]  # all of them, in the order of the text
    types_of: dict[ast.AST, Scope] = field(default_factory=dict)  # of `class D[T]`, `def f[T]()`
    _far: dict[ast.AST, Scope] = field(default_factory=dict)  # the scopes of nodes far inside

    def around(self, node: ast.AST) -> Scope:
        """Return the scope in which a node is evaluated."""
        inner, here = node, self.parents.get(node)
        outside: ast.AST | None = None
        straight = True  # on the way up nothing was passed that is evaluated elsewhere
        found, steps = self.top, 0
        while here is not None:
            if inner is not outside and inner in self._far:
                found = self._far[inner]
                break
            scope = self.of_node.get(here)
            if scope is not None and inner is not outside and _inside(inner, here):
                found = scope
                break
            if here in self.types_of and _sees_types(inner, here):
                found = self.types_of[here]
                break
            outside = _first_source(inner, here, self.parents.get(here))
            straight = straight and outside is None
            inner, here = here, self.parents.get(here)
            steps += 1
        if steps > FAR_NODES and straight:
            self._keep(node, inner, found)
        return found

    def _keep(self, node: ast.AST, last: ast.AST, scope: Scope) -> None:
        """Keep the scope of a node, and of all on the way to it: who asks of one asks of them."""
        while node is not last:
            self._far[node] = scope
            node = self.parents[node]

    def lookup(self, name: str, node: ast.AST) -> tuple[Scope, list[Binding]] | None:
        """Return the scope and the bindings that a name used at a node refers to."""
        first = self.around(node)
        scope: Scope | None = first
        # Annotations under type parameters see the names of the class that they are in.
        around = first.parent if self.types_of and first.has_types else None
        while scope is not None:
            if name in scope.of_module:
                scope = scope.top
            seen = not scope.is_class or scope is first or scope is around
            if name in scope.names and seen:
                return scope, scope.names[name]
            scope = scope.parent
        return None

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the parents of a node, the nearest first."""
        here = self.parents.get(node)
        while here is not None:
            yield here
            here = self.parents.get(here)

    def all_stars(self) -> list[str]:
        return [
            star
            for scope in {id(s): s for s in self.of_node.values()}.values()
            for star in scope.stars
        ]


def _first_source(inner: ast.AST, clause: ast.AST, whole: ast.AST | None) -> ast.AST | None:
    """Return the clause of a comprehension if a node is what it goes over first, which is evaluated
    in the scope around: in a class, with the names of the class."""
    if not isinstance(clause, ast.comprehension) or clause.iter is not inner:
        return None
    first = isinstance(whole, _COMPREHENSION) and whole.generators[0] is clause
    return clause if first else None


def _inside(inner: ast.AST, opener: ast.AST) -> bool:
    """Whether a child is evaluated in the scope its parent opens. Decorators, defaults, bases
    and annotations are not."""
    match opener:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return not (
                inner in opener.decorator_list
                or inner is opener.returns
                or isinstance(inner, ast.arguments)
                or inner in _type_parameters(opener)
            )
        case ast.ClassDef():
            return (
                inner not in opener.decorator_list
                and inner not in opener.bases
                and not isinstance(inner, ast.keyword)
                and inner not in _type_parameters(opener)
            )
        case ast.Lambda():
            return inner is opener.body
        case _:
            return True


def _type_parameters(node: ast.AST) -> list[ast.AST]:
    """Return the T of `class D[T]`, `def f[T]()`, `type X[T] = ...`: of Python 3.12 and newer."""
    return getattr(node, "type_params", None) or []


def _sees_types(inner: ast.AST, opener: ast.AST) -> bool:
    """Whether a child of what has type parameters may name them: decorators may not."""
    return inner not in getattr(opener, "decorator_list", ())


def read_scopes(tree: ast.Module, package: Package, *, shallow: bool = False) -> Scopes:
    """Walk a module once. `package`: what so many dots of its imports stand for. `shallow`: only
    statements, and not into functions; enough to say what the module offers."""
    top = Scope(tree, None)
    scopes = Scopes(top, {}, {tree: top}, [])
    parents, nodes = scopes.parents, scopes.nodes
    stack: list[tuple[ast.AST, Scope]] = [(tree, top)]
    while stack:
        node, scope = stack.pop()
        nodes.append(node)
        kind = type(node)
        if kind not in _BIND_NOTHING:
            _bind(node, scope, package)
        inner = scope
        typed = _type_parameters(node) if kind in _TYPED else None
        outer = scope
        if typed:
            outer = scopes.types_of[node] = inner = Scope(typed[0], scope)
        if kind in _OPENERS:
            inner = Scope(node, outer)
            scopes.of_node[node] = inner
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                _bind_parameters(node.args, inner)
                if shallow:
                    continue
        for child in reversed(_children(node, shallow=shallow)):
            parents[child] = node
            if inner is not scope and not (kind in _OPENERS and _inside(child, node)):
                stack.append((child, outer if _sees_types(child, node) else scope))
            else:
                stack.append((child, inner))
    return scopes


def _children(node: ast.AST, *, shallow: bool) -> list[ast.AST]:
    """Return the children of a node. Those of `ctx` and `op` are shared by all: left out."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if type(value) is list:
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and name != "ctx" and name != "op":
            found.append(value)
    return [each for each in found if isinstance(each, _STATEMENTS)] if shallow else found


def _bind_parameters(arguments: ast.arguments, scope: Scope) -> None:
    plain = [*arguments.posonlyargs, *arguments.args]
    first = len(plain) - len(arguments.defaults)
    for place, each in enumerate(plain):
        default = arguments.defaults[place - first] if place >= first else None
        scope.bind(each.arg, Binding(Kind.PARAMETER, each, default))
    for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        scope.bind(each.arg, Binding(Kind.PARAMETER, each, value))
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            scope.bind(rest.arg, Binding(Kind.PARAMETER, rest))


def _bind(node: ast.AST, scope: Scope, package: Package) -> None:
    match node:
        case ast.Import():
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                whole = alias.name if alias.asname else name
                scope.bind(name, Binding(Kind.IMPORT, node, qualified=whole))
        case ast.ImportFrom():
            _bind_from(node, scope, package)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            scope.bind(node.name, Binding(Kind.DEF, node))
        case ast.ClassDef():
            scope.bind(node.name, Binding(Kind.CLASS, node))
        case ast.Assign():
            for target in node.targets:
                _bind_target(target, node.value, node, scope)
        case ast.AnnAssign():
            if isinstance(node.target, ast.Name):
                kind = Kind.ASSIGNED if node.value is not None else Kind.OTHER
                scope.bind(node.target.id, Binding(kind, node, node.value))
        case ast.NamedExpr():
            scope.bind(node.target.id, Binding(Kind.ASSIGNED, node, node.value))
        case ast.AugAssign() | ast.For() | ast.AsyncFor() | ast.comprehension():
            _bind_target(node.target, None, node, scope)
        case ast.withitem(optional_vars=ast.expr() as target):
            if isinstance(target, ast.Name):
                scope.bind(target.id, Binding(Kind.WITH, node, node.context_expr))
            else:
                _bind_target(target, None, node, scope)
        case ast.Global():
            scope.of_module.update(node.names)
        case ast.Nonlocal():
            scope.of_outer.update(node.names)
        case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
            scope.bind(name, Binding(Kind.OTHER, node))
        case ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
            scope.bind(name, Binding(Kind.OTHER, node))
        case ast.Delete():
            for target in node.targets:
                _bind_target(target, None, node, scope)
        case _:
            _bind_newer(node, scope)


def _bind_newer(node: ast.AST, scope: Scope) -> None:
    """Bind what older Pythons have no node for: `def f[T]()` and `type X = ...`."""
    name = getattr(node, "name", None)
    if type(node).__name__ == "TypeAlias" and isinstance(name, ast.Name):
        scope.bind(name.id, Binding(Kind.OTHER, node))
    elif type(node).__name__ in _TYPE_PARAMETERS and name is not None:
        scope.bind(str(name), Binding(Kind.OTHER, node))


def _bind_from(node: ast.ImportFrom, scope: Scope, package: Package) -> None:
    base = node.module or ""
    if node.level:
        base = ".".join([package(node.level), *([base] if base else [])])
    for alias in node.names:
        if alias.name == "*":
            scope.stars.append(base)
        else:
            whole = f"{base}.{alias.name}" if base else alias.name
            scope.bind(alias.asname or alias.name, Binding(Kind.IMPORT, node, qualified=whole))


def _bind_target(target: ast.expr, value: ast.expr | None, node: ast.AST, scope: Scope) -> None:
    match target:
        case ast.Name():
            kind = Kind.ASSIGNED if value is not None else Kind.OTHER
            scope.bind(target.id, Binding(kind, node, value))
        case ast.Tuple() | ast.List():
            same = (
                isinstance(value, (ast.Tuple, ast.List))
                and len(value.elts) == len(target.elts)
                and not any(isinstance(each, ast.Starred) for each in (*value.elts, *target.elts))
            )
            for place, each in enumerate(target.elts):
                paired = (
                    value.elts[place] if same and isinstance(value, (ast.Tuple, ast.List)) else None
                )
                _bind_target(each, paired, node, scope)
        case ast.Starred():
            _bind_target(target.value, None, node, scope)
        case _:
            pass
