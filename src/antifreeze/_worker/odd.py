"""Which sample of a batch is unlike the others: asked when they could not be collated."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .._transport.words import shown

NAMED = 3  # odd samples in one sentence
DEEPEST = 20  # containers in containers
MOST = 100_000  # parts looked at, of all samples together


def odd_samples(samples: Any, indices: Any) -> str:
    """Say which samples differ from the others, and in what; nothing if they do not, or if that
    cannot be told. Never raises."""
    with contextlib.suppress(Exception):  # samples are objects of the user's own making
        if len(samples) == len(indices) > 0:
            names = [_name(place, index) for place, index in enumerate(indices)]
            return _Comparing().compare(list(samples), names, "")
    return ""


def _name(place: int, index: Any) -> str:
    return f"sample {place} of the batch" if index is None else f"sample {shown(index)}"


class _Comparing:
    def __init__(self) -> None:
        self._left = MOST

    def compare(self, parts: list[Any], names: list[str], path: str, depth: int = 0) -> str:
        self._left -= len(parts)
        said = _differ([_describe(part) for part in parts], names, path)
        if said or depth > DEEPEST or self._left < 0:
            return said
        first = parts[0]
        keys: Any = ()
        if isinstance(first, Mapping):
            keys = first
        elif isinstance(first, list | tuple):
            keys = range(len(first))
        for key in keys:
            inner = [part[key] for part in parts]
            if said := self.compare(inner, names, f"{path}[{key!r}]", depth + 1):
                return said
            if self._left < 0:
                break
        return ""


def _describe(part: Any) -> str:
    """Say in words what must be the same of all samples."""
    if part is None:
        return "is None"
    shape = getattr(part, "shape", None)
    if isinstance(shape, Sequence):
        return f"has shape {list(shape)}"
    if isinstance(part, Mapping):
        return f"has the keys {', '.join(sorted(map(repr, part)))}"
    if isinstance(part, list | tuple):
        return f"has {len(part)} items"
    return "is a number" if isinstance(part, int | float) else f"is a {type(part).__name__}"


def _differ(kinds: list[str], names: list[str], path: str) -> str:
    counts = Counter(kinds)
    if len(counts) == 1:
        return "all samples are None" if kinds[0] == "is None" and not path else ""
    usual, often = counts.most_common(1)[0]
    odd = [(name, kind) for name, kind in zip(names, kinds, strict=True) if kind != usual]
    others = "the others" if often > 1 else names[kinds.index(usual)]
    told = ", ".join(f"{name} {kind}" for name, kind in odd[:NAMED])
    more = f" (and {len(odd) - NAMED} more)" if len(odd) > NAMED else ""
    where = f" at {path}" if path else ""
    plural = usual if others != "the others" else _of_many(usual)
    return f"{told}{more}{where}, {others} {plural}"


def _of_many(kind: str) -> str:
    verb, _, rest = kind.partition(" ")
    return f"{'have' if verb == 'has' else 'are'} {rest}"
