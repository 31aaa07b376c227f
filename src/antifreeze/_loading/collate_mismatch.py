"""Which sample of a batch is unlike the others: asked when they could not be collated."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .._core.limits import LIMITS
from .._reporting.formatting import shown
from .._torch_internals import default_collate_fn_map
from .subset_indices import behind

NAMED = 3  # odd samples in one sentence


def odd_samples(samples: Any, indices: Any, dataset: Any = None, *, default: bool = True) -> str:
    """Say which samples differ from the others, and in what, or what in them cannot be collated;
    nothing if that cannot be told. `default`: torch's own collate it was, to which all samples must
    be alike; others take samples that are not, so of those only a few can be odd. Never raises."""
    with contextlib.suppress(Exception):  # samples are objects of the user's own making
        if len(samples) == len(indices) > 0:
            names = [_name(place, index, dataset) for place, index in enumerate(indices)]
            return _Comparing(default).compare(list(samples), names, "")
    return ""


def _name(place: int, index: Any, dataset: Any) -> str:
    if index is None:
        return f"sample {place} of the batch"
    return f"sample {shown(index)}{behind(dataset, index)}"


class _Comparing:
    def __init__(self, default: bool) -> None:
        self._left = LIMITS.searches.collate_parts
        self._default = default

    def compare(self, parts: list[Any], names: list[str], path: str, depth: int = 0) -> str:
        self._left -= len(parts)
        kinds = [_describe(part) for part in parts]
        said = self._differ(parts, kinds, names, path)
        if said or depth > LIMITS.searches.collate_depth or self._left < 0 or len(set(kinds)) > 1:
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

    def _differ(self, parts: list[Any], kinds: list[str], names: list[str], path: str) -> str:
        if self._default:
            return _untaken(parts, kinds, names, path) or _differ(kinds, names, path)
        odd = len(kinds) - Counter(kinds).most_common(1)[0][1]
        return (
            _differ(kinds, names, path)
            if _are_few(odd, len(kinds))
            else _empty(parts, kinds, names, path)
        )


def _are_few(odd: int, of: int) -> bool:
    return odd <= 1 or (odd <= NAMED and 4 * odd <= of)


def _empty(parts: list[Any], kinds: list[str], names: list[str], path: str) -> str:
    """Name the samples that have nothing where the others have more or less."""
    empty = [place for place, part in enumerate(parts) if _is_empty(part)]
    if not empty or not _are_few(len(empty), len(parts)):
        return ""
    told = ", ".join(f"{names[place]} {kinds[place]}" for place in empty)
    return f"{told}{_at(path)}, the others are not empty"


def _is_empty(part: Any) -> bool:
    shape = getattr(part, "shape", None)
    if isinstance(shape, Sequence):
        return 0 in shape
    return part is None or (isinstance(part, Mapping | list | tuple) and len(part) == 0)


def _untaken(parts: list[Any], kinds: list[str], names: list[str], path: str) -> str:
    """Say what all samples have and torch's default collate does not take, whatever it is."""
    if (not path and parts[0] is None) or any(map(_is_taken, parts)):
        return ""
    all_do = " (the others, too)" if len(parts) > 1 else ""
    return f"{names[0]} {kinds[0]}{_at(path)}, which the default collate does not take{all_do}"


def _is_taken(part: Any) -> bool:
    if type(part).__module__ == "numpy" and getattr(part, "ndim", None):
        return str(part.dtype.kind) not in "OSU"
    return isinstance(part, (*default_collate_fn_map, Mapping, Sequence))


def _at(path: str) -> str:
    return f" at {path}" if path else ""


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
    if isinstance(part, int | float):
        return "is a number"
    kind = type(part)
    return f"is a {'' if kind.__module__ == 'builtins' else kind.__module__ + '.'}{kind.__name__}"


def _differ(kinds: list[str], names: list[str], path: str) -> str:
    counts = Counter(kinds)
    if len(counts) == 1:
        return "all samples are None" if kinds[0] == "is None" and not path else ""
    usual, often = counts.most_common(1)[0]
    odd = [(name, kind) for name, kind in zip(names, kinds, strict=True) if kind != usual]
    others = "the others" if often > 1 else names[kinds.index(usual)]
    told = ", ".join(f"{name} {kind}" for name, kind in odd[:NAMED])
    more = f" (and {len(odd) - NAMED} more)" if len(odd) > NAMED else ""
    plural = usual if others != "the others" else _of_many(usual)
    return f"{told}{more}{_at(path)}, {others} {plural}"


def _of_many(kind: str) -> str:
    verb, _, rest = kind.partition(" ")
    return f"{'have' if verb == 'has' else 'are'} {rest}"
