"""Calls that seed a random generator, and the seed that they pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...source.definitions import Function
from ...source.view import View

# Seeds of the generators that everyone in the process draws from.
GLOBAL_SEEDS = frozenset(
    {
        "random.seed",
        "numpy.random.seed",
        "torch.manual_seed",
        "torch.random.manual_seed",
        "lightning.pytorch.seed_everything",
        "lightning.fabric.seed_everything",
        "transformers.set_seed",
        "accelerate.utils.set_seed",
    }
)
# Generators that are made from a seed.
SEEDED_GENERATORS = frozenset(
    {"numpy.random.default_rng", "numpy.random.RandomState", "random.Random"}
)


@dataclass(frozen=True, slots=True, eq=False)
class SeedingCall:
    """One call that seeds, as a function makes it."""

    call: ast.Call  # in the function that was asked about
    what: str  # numpy.random.seed
    seed: ast.expr
    function: Function  # whose variables the seed is made of


def seeding_calls(
    function: Function, view: View, names: frozenset[str] = GLOBAL_SEEDS
) -> Iterator[SeedingCall]:
    """Yield the calls of a function that seed a generator, itself or through one function more."""
    for call in function.calls():
        name = view.resolve(call.func)
        if name in names:
            if (seed := _seed(call)) is not None:
                yield SeedingCall(call, name, seed, function)
        elif isinstance(call.func, ast.Name):
            yield from _through(call, function, view, names)


def _seed(call: ast.Call) -> ast.expr | None:
    """Return the seed that is passed; None if there is none, and the system's is taken."""
    given = [*call.args[:1], *(each.value for each in call.keywords if each.arg in ("seed", "a"))]
    if not given or isinstance(given[0], ast.Starred):
        return None
    is_none = isinstance(given[0], ast.Constant) and given[0].value is None
    return None if is_none else given[0]


def _through(
    call: ast.Call, function: Function, view: View, names: frozenset[str]
) -> Iterator[SeedingCall]:
    called = view.function_of(call.func)
    if called is None or isinstance(called.node, ast.Lambda) or called.owner is not None:
        return
    given = view.arguments(call, called.node)
    defaults = _defaults(called)
    for inner in called.calls():
        name = view.resolve(inner.func)
        seed = _seed(inner) if name in names else None
        if name is None or seed is None:
            continue
        parts = view.dependencies(seed, called)
        if not parts.complete or parts.calls - {"int"} or len(parts.parameters) > 1:
            continue
        if not parts.parameters:
            yield SeedingCall(call, name, seed, called)
            continue
        parameter = parts.parameters.pop()
        passed = given[parameter].node
        if passed is not None:
            yield SeedingCall(call, name, passed, function)
        elif given[parameter].absent and parameter in defaults:
            yield SeedingCall(call, name, defaults[parameter], called)


def _defaults(function: Function) -> dict[str, ast.expr]:
    names = function.module.scopes.of_node[function.node].names
    bound = ((name, binding) for name in function.parameters for binding in names.get(name, []))
    return {
        name: binding.value
        for name, binding in bound
        if isinstance(binding.node, ast.arg) and binding.value is not None
    }
