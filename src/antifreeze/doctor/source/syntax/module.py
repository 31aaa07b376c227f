"""One parsed file: its tree, its scopes, and what a name or an expression stands for in it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

from .. import library_names
from ..import_to_file import relative_to
from .line_splitting import split_lines
from .reaching_definitions import attribute_can_reach, can_reach
from .safe_compile import compile_quietly
from .scopes import BUILTINS, Binding, FunctionNode, Kind, Scope, Scopes, read_scopes

MOST_NAME_STEPS = 12  # steps from a name to its value; chains longer than that are loops
MOST_VALUES = 500  # nodes looked at for what one name may stand for


_ASSIGNMENTS = frozenset(
    (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)
)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Node = TypeVar("Node", bound=ast.AST)
Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class AttributeAssignment:
    """One place where an attribute of `self` (or of the class) is given a value."""

    name: str
    node: ast.stmt  # the assignment
    value: ast.expr | None  # None: unpacked, a loop's variable, `+=`
    method: FunctionNode | None  # None: in the body of the class


@dataclass(slots=True, eq=False)
class Module:
    """A file that was parsed. It knows itself alone; `Project` knows the others."""

    path: Path
    name: str  # dotted, as others import it
    tree: ast.Module
    scopes: Scopes
    lines: tuple[str, ...]
    is_notebook: bool = False
    is_whole: bool = True  # False: parts could not be read, or run other files; names may be there
    _by_type: dict[type[ast.AST], list[ast.AST]] = field(default_factory=dict)
    _bodies: dict[ast.AST, tuple[ast.AST, ...]] = field(default_factory=dict)
    _assignments_of: dict[ast.ClassDef, dict[str, list[AttributeAssignment]]] | None = None
    _attributes_set: frozenset[str] | None = None
    _defined: dict[str, list[Definition]] | None = None
    _has_stars: bool | None = None

    def __repr__(self) -> str:
        return f"Module({self.name}, {len(self.lines)} lines)"

    # ---- nodes -----------------------------------------------------------------------------------

    def nodes(self, kind: type[Node]) -> list[Node]:
        """Return all nodes of a type, in the order of the text."""
        if not self._by_type:
            for node in self.scopes.nodes:
                self._by_type.setdefault(type(node), []).append(node)
        return self._by_type.get(kind, [])  # type: ignore[return-value]

    def body_of(self, node: FunctionNode | ast.Lambda) -> tuple[ast.AST, ...]:
        """Return the nodes of a function's body, but not those of functions and classes defined in
        it. Every rule asks: they are found once."""
        if node not in self._bodies:
            body: list[ast.AST] = [*node.body] if isinstance(node.body, list) else [node.body]
            queue, found = body[::-1], list[ast.AST]()
            while queue:
                here = queue.pop()
                found.append(here)
                if not isinstance(here, _DEFINITIONS):
                    queue += reversed(list(ast.iter_child_nodes(here)))
            self._bodies[node] = tuple(found)
        return self._bodies[node]

    @property
    def attributes_set(self) -> frozenset[str]:
        """Return the names of all attributes that are assigned to, of whatever object."""
        if self._attributes_set is None:
            targets = (target for node in self.nodes(ast.Assign) for target in node.targets)
            self._attributes_set = frozenset(
                each.attr for each in targets if isinstance(each, ast.Attribute)
            )
        return self._attributes_set

    def defined(self, name: str) -> list[Definition]:
        """Return the classes and functions of a name among the statements of the file."""
        if self._defined is None:
            self._defined = {}
            for each in self.tree.body:
                if isinstance(each, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                    self._defined.setdefault(each.name, []).append(each)
        return self._defined.get(name, [])

    def holds(self, node: ast.AST) -> bool:
        return node in self.scopes.parents or node is self.tree

    def adopt(self, made: Node, near: ast.AST) -> Node:
        """Adopt a node that is not in the text, but made of parts that are, as a sibling of one
        that is."""
        self.scopes.parents[made] = self.scopes.parents[near]
        return made

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        return self.scopes.ancestors(node)

    def function_around(self, node: ast.AST) -> FunctionNode | None:
        """Return the function whose body a node is in, lambdas aside; or None."""
        inner = node
        for each in self.scopes.ancestors(node):
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and inner in each.body:
                return each
            inner = each
        return None

    def loop_around(self, node: ast.AST) -> ast.For | ast.While | ast.AsyncFor | None:
        """Return the nearest loop statement whose body a node is in, within the same function."""
        inner = node
        for each in self.ancestors(node):
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                return None
            if isinstance(each, (ast.For, ast.While, ast.AsyncFor)) and inner in each.body:
                return each
            inner = each
        return None

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        for each in self.scopes.ancestors(node):
            if isinstance(each, ast.ClassDef):
                return each
        return None

    def class_of_self(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class whose `self` a name is, if it is one."""
        if not isinstance(node, ast.Name):
            return None
        found = self.scopes.lookup(node.id, node)
        if found is None or found[1][0].kind is not Kind.PARAMETER or len(found[1]) != 1:
            return None
        function = found[0].node
        owner = self.scopes.parents.get(function)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        first = [*function.args.posonlyargs, *function.args.args][:1]
        is_self = bool(first) and first[0].arg == node.id and isinstance(owner, ast.ClassDef)
        static = any(
            isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list
        )
        return owner if is_self and not static and isinstance(owner, ast.ClassDef) else None

    # ---- attributes of self ----------------------------------------------------------------------

    def assignments(self, owner: ast.ClassDef) -> dict[str, list[AttributeAssignment]]:
        """Return every assignment to an attribute of `self` in a class, by the attribute's name."""
        if self._assignments_of is None:
            self._assignments_of = {}
            for where, each in self._all_assignments():
                self._assignments_of.setdefault(where, {}).setdefault(each.name, []).append(each)
        return self._assignments_of.get(owner, {})

    def _all_assignments(self) -> Iterator[tuple[ast.ClassDef, AttributeAssignment]]:
        for owner in self.nodes(ast.ClassDef):
            for statement in owner.body:
                for target, value in _targets(statement):
                    if isinstance(target, ast.Name):
                        yield owner, AttributeAssignment(target.id, statement, value, None)
        for node in self.scopes.nodes:
            if type(node) not in _ASSIGNMENTS or not isinstance(node, ast.stmt):
                continue
            for target, value in _targets(node):
                if not isinstance(target, ast.Attribute):
                    continue
                found = self.class_of_self(target.value)
                if found is not None and isinstance(target.value, ast.Name):
                    bound = self.scopes.lookup(target.value.id, target.value)
                    method = bound[0].node if bound is not None else None
                    assert isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
                    yield found, AttributeAssignment(target.attr, node, value, method)

    # ---- names -----------------------------------------------------------------------------------

    def reaching(self, node: ast.Name) -> list[Binding]:
        """Return the places where the name used here may have got its value: not those after which
        it is bound anew."""
        every = self.bindings(node)
        if len(every) < 2:
            return every
        return [each for each in every if can_reach(each, node, every, self)]

    def bindings(self, node: ast.Name) -> list[Binding]:
        """Return all places where the name used here gets its value; none if it is not bound
        here."""
        found = self.scopes.lookup(node.id, node)
        return found[1] if found is not None else []

    def qualified(self, node: ast.ClassDef | FunctionNode) -> str:
        """Return the dotted name of a class or function of this file."""
        parts = [node.name]
        for each in self.scopes.ancestors(node):
            if isinstance(each, ast.ClassDef):
                parts.append(each.name)
            elif isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
                parts += ["<locals>", each.name]
        return ".".join([self.name, *reversed(parts)])

    def resolve(self, node: ast.AST, depth: int = 0) -> str | None:
        """Return the qualified name that an expression stands for: `numpy.random.default_rng`."""
        if depth > MOST_NAME_STEPS:
            return None
        match node:
            case ast.Name():
                return self._resolve_name(node, depth)
            case ast.Attribute():
                owner = self.class_of_self(node.value)
                if owner is not None:
                    return self._resolve_attribute(owner, node.attr, depth)
                base = self.resolve(node.value, depth + 1)
                return (
                    library_names.canonical_spelling(f"{base}.{node.attr}")
                    if base is not None
                    else None
                )
            case ast.Subscript():  # Dataset[int]
                return (
                    self.resolve(node.value, depth + 1) if depth or _is_base(self, node) else None
                )
            case _:
                return None

    def _resolve_name(self, node: ast.Name, depth: int) -> str | None:
        found = self.scopes.lookup(node.id, node)
        if found is None:
            for star in self.scopes.top.stars:
                if node.id in library_names.STAR_EXPORTS.get(star, ()):
                    return library_names.canonical_spelling(f"{star}.{node.id}")
            if self.scopes.top.stars and node.id not in BUILTINS:
                return f"{self.scopes.top.stars[-1]}.{node.id}"
            return node.id if node.id in BUILTINS else None
        for binding in found[1]:
            if binding.kind is Kind.IMPORT:
                return library_names.canonical_spelling(binding.qualified)
        for binding in found[1]:
            match binding.node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() as definition:
                    return self.qualified(definition)
                case _:
                    pass
        if len(found[1]) == 1 and found[1][0].kind is Kind.ASSIGNED:
            value = found[1][0].value
            if isinstance(value, (ast.Name, ast.Attribute)):
                return self.resolve(value, depth + 1)
        return None

    def _resolve_attribute(self, owner: ast.ClassDef, name: str, depth: int) -> str | None:
        for statement in owner.body:
            if isinstance(statement, _DEFINITIONS) and statement.name == name:
                return self.qualified(statement)
        given = self.assignments(owner).get(name, [])
        if len(given) == 1 and isinstance(given[0].value, (ast.Name, ast.Attribute)):
            return self.resolve(given[0].value, depth + 1)
        return None

    # ---- values ----------------------------------------------------------------------------------

    def values(self, node: ast.expr) -> tuple[ast.expr, ...]:
        """Return the expressions that a name may stand for here; none if one of them is not known.

        Follows variables, attributes of `self`, `a if c else b` and `a or b`. What is none of these
        stands for itself.
        """
        found: dict[ast.expr, None] = {}
        return tuple(found) if self._gather(node, found, {}, 0) else ()

    def _gather(
        self, node: ast.expr, found: dict[ast.expr, None], seen: dict[ast.expr, bool], depth: int
    ) -> bool:
        """Add what a node stands for, each once, and return whether all of it is known. `seen`: the
        nodes that were asked about; what leads to itself is not known."""
        if node in seen:
            return seen[node]
        if depth > MOST_NAME_STEPS or len(seen) > MOST_VALUES:
            return False
        candidates = self._candidates(node)
        seen[node] = False
        if candidates is None:
            found[node] = None
        elif not candidates or not all(
            each is not None and self._gather(each, found, seen, depth + 1) for each in candidates
        ):
            return False
        seen[node] = True
        return True

    def _candidates(self, node: ast.expr) -> Sequence[ast.expr | None] | None:
        """Return what may be the value of a node, one step on; None if it stands for itself."""
        match node:
            case ast.Name():
                return [e.value if _has_value(e) else None for e in self.reaching(node)]
            case ast.Attribute() if (owner := self.class_of_self(node.value)) is not None:
                every = self.assignments(owner).get(node.attr, [])
                if len(every) > 1:
                    every = [each for each in every if attribute_can_reach(each, node, self)]
                return [each.value for each in every]
            case ast.IfExp():
                return [node.body, node.orelse]
            case ast.BoolOp():
                return node.values
            case ast.NamedExpr():
                return [node.value]
            case _:
                return None

    def undefined(self, root: ast.AST) -> Iterator[ast.Name]:
        """Yield the names under a node that nothing binds: to use one is a NameError."""
        if self._has_stars is None:
            self._has_stars = bool(self.scopes.all_stars())
        if self._has_stars:
            return
        for node in ast.walk(root):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Load)
                and node.id not in BUILTINS
                and node.id not in ("__qualname__", "__module__")
                and self.scopes.lookup(node.id, node) is None
            ):
                yield node


def _has_value(binding: Binding) -> bool:
    return binding.kind in (Kind.ASSIGNED, Kind.WITH)


def _is_base(module: Module, node: ast.AST) -> bool:
    parent = module.scopes.parents.get(node)
    return isinstance(parent, ast.ClassDef) and node in parent.bases


def _targets(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield what a statement assigns to, each with its value if it has one of its own."""
    match node:
        case ast.Assign():
            for target in node.targets:
                yield from _parts(target, node.value)
        case ast.AnnAssign():
            if node.value is not None:
                yield node.target, node.value
        case ast.AugAssign() | ast.For() | ast.AsyncFor():
            yield from _parts(node.target, None)
        case ast.With() | ast.AsyncWith():
            for item in node.items:
                if item.optional_vars is not None:
                    yield from _parts(item.optional_vars, item.context_expr)
        case _:
            pass


def _parts(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Unpack a target: `a, (b, *c) = value`."""
    if isinstance(target, ast.Starred):
        yield from _parts(target.value, None)
    elif not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
    else:
        paired: list[ast.expr | None] = [None] * len(target.elts)
        starred = any(isinstance(each, ast.Starred) for each in target.elts)
        listed = isinstance(value, (ast.Tuple, ast.List)) and not starred
        if listed and len(value.elts) == len(paired):  # type: ignore[union-attr]
            paired = list(value.elts)  # type: ignore[union-attr]
        for each, its in zip(target.elts, paired, strict=True):
            yield from _parts(each, its)


def parse_module(
    path: Path,
    name: str,
    text: str,
    *,
    is_package: bool = False,
    is_notebook: bool = False,
    is_whole: bool = True,
    shallow: bool = False,
) -> Module:
    """Parse a file's text. Raise SyntaxError, or ValueError for null bytes."""
    flags = ast.PyCF_ONLY_AST | (ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if is_notebook else 0)
    tree: ast.Module = compile_quietly(text, flags, path.name)
    package = functools.partial(relative_to, name, path, is_package)
    scopes = read_scopes(tree, package, shallow=shallow)
    return Module(path, name, tree, scopes, split_lines(text), is_notebook, is_whole)


__all__ = ["MOST_NAME_STEPS", "AttributeAssignment", "Module", "Scope", "parse_module"]
