"""The rules of `antifreeze check`: one file each, with its page beside it."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from .rule import Rule

__all__ = ["Rule", "all_rules", "find_rule"]


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Return all rules, by code."""
    names = (each.name for each in pkgutil.iter_modules(__path__) if each.name.startswith("af"))
    found: list[Rule] = [importlib.import_module(f"{__name__}.{name}").RULE for name in names]
    return tuple(sorted(found, key=lambda each: each.code))


def find_rule(word: str) -> Rule | None:
    """Return the rule of a code or a name, in any case."""
    return _by_word().get(word.strip().lower())


@functools.cache
def _by_word() -> dict[str, Rule]:
    rules = all_rules()
    return {each.code.lower(): each for each in rules} | {each.name: each for each in rules}
