"""Which file a sample is read from, where that can be known without running the user's code.

1. From an error: path-like local variables of the user's own frames in its traceback.
2. From the dataset: its entry in a list of paths, if the code of `__getitem__` shows that it looks
   there by the index it is given (`self.paths[index]`, `self.samples[index]`).

Nothing of the user's is called: no property, no `__getattr__`, no `__getitem__`, no `__len__`. Only
exact lists, tuples, strings, `pathlib` paths and numpy's arrays of strings are looked into.
"""

from __future__ import annotations

import bisect
import contextlib
import dis
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

import numpy
import torch
from torch.utils.data import ConcatDataset, Subset

from .._core.limits import LIMITS
from .._reporting.redaction import disclosed
from .._transport.traceback_frames import is_library, is_ours

NAMED = 3  # files of one sample: an image and its mask, say
DEEPEST_CALLS = 3  # methods that hand the index on
LOCALS = 64  # variables of one frame that are looked at
FIRST = 4  # items of an entry: `(path, target)`


def file_of(error: BaseException | None, dataset: Any, index: Any) -> str:
    """Return the file, or the few files, that a sample is read from; empty if that is not known.
    Never raises."""
    with contextlib.suppress(Exception):
        found = [] if error is None else _in_traceback(error.__traceback__)
        return ", ".join((found or _in_dataset(dataset, index))[:NAMED])
    return ""


def file_in_dataset(dataset: Any, index: Any) -> str:
    """Return the file of a sample as the dataset lists it; empty if that is not known. Never
    raises."""
    return file_of(None, dataset, index)


# ---- the traceback -------------------------------------------------------------------------------


def _in_traceback(trace: TracebackType | None) -> list[str]:
    """Return the paths of the outermost frame that has some: it is `__getitem__`, or nearest to it.
    Of several, the one that was handed on to the innermost frames."""
    found: list[list[str]] = []
    for frame, _ in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        if not is_ours(file) and not is_library(file) and (paths := _in_frame(frame)):
            found.append(paths)
    if not found:
        return []
    outermost, *inner = found
    if len(outermost) > 1:
        for deeper in reversed(inner):
            if handed_on := [path for path in outermost if path in deeper]:
                return handed_on
    return outermost


def _in_frame(frame: FrameType) -> list[str]:
    values = list(frame.f_locals.values())[:LOCALS]
    return list(dict.fromkeys(path for value in values if (path := disclosed(value))))


# ---- the dataset ---------------------------------------------------------------------------------


def _in_dataset(dataset: Any, index: Any, depth: int = DEEPEST_CALLS) -> list[str]:
    place = _plain_index(index)
    for _ in range(LIMITS.searches.wrapped_datasets):
        if place is None:
            return []
        inner = _unwrapped(dataset, place)
        if inner is None:
            break
        dataset, place = inner
    code = _method(type(dataset), "__getitem__")
    if code is None or place is None:
        return []
    attributes = _attributes(dataset)
    found: dict[str, None] = {}  # each once
    for name in dict.fromkeys(_indexed_by(code, type(dataset), 1, DEEPEST_CALLS)):
        inner = attributes.get(name)
        if path := _path_in(_entry(inner, place)):
            found[path] = None
        elif depth and inner is not None:  # a dataset around another
            found.update(dict.fromkeys(_in_dataset(inner, place, depth - 1)))
    return list(found)


def _plain_index(index: Any) -> int | None:
    if type(index) is int:
        return index
    if issubclass(type(index), numpy.integer) and type(index).__module__ == "numpy":
        return int(index)
    if type(index) is torch.Tensor and index.ndim == 0 and not index.is_floating_point():
        return int(index)
    return None


def _unwrapped(dataset: Any, place: int) -> tuple[Any, int | None] | None:
    """Return the dataset inside torch's own `Subset` or `ConcatDataset`, and the index there; None
    if it is neither."""
    kind: Any = type(dataset)
    attributes = _attributes(dataset)
    if issubclass(kind, Subset) and kind.__getitem__ is Subset.__getitem__:
        return attributes["dataset"], _plain_index(_entry(attributes["indices"], place))
    if issubclass(kind, ConcatDataset) and kind.__getitem__ is ConcatDataset.__getitem__:
        ends, parts = attributes["cumulative_sizes"], attributes["datasets"]
        if type(ends) is not list or type(parts) is not list:
            return dataset, None
        place += ends[-1] if place < 0 else 0
        which = bisect.bisect_right(ends, place)
        return parts[which], place - (ends[which - 1] if which else 0)
    return None


def _attributes(thing: Any) -> dict[str, Any]:
    found = object.__getattribute__(thing, "__dict__")
    return found if type(found) is dict else {}


def _entry(values: Any, place: int) -> Any:
    """Return an item of a plain list, by its place; None if there is none."""
    if type(values) is numpy.ndarray and values.ndim == 1 and values.dtype.kind in "Uiu":
        return values[place].item() if -len(values) <= place < len(values) else None
    if type(values) is torch.Tensor and values.ndim == 1 and not values.is_floating_point():
        return int(values[place]) if -len(values) <= place < len(values) else None
    if type(values) in (list, tuple, range) and -len(values) <= place < len(values):
        return values[place]
    return None


def _path_in(entry: Any) -> str:
    """Return the path that an entry is, or begins with, as in `(path, target)`."""
    if type(entry) in (tuple, list):
        return next(filter(None, map(disclosed, entry[:FIRST])), "")
    return disclosed(entry)


# ---- the code ------------------------------------------------------------------------------------


def _method(kind: Any, name: str) -> CodeType | None:
    for each in kind.__mro__:
        if name in vars(each):
            method = vars(each)[name]
            return method.__code__ if type(method) is FunctionType else None
    return None


def _indexed_by(code: CodeType, kind: Any, argument: int, depth: int) -> Iterator[str]:
    """Yield the attributes of `self` that a method looks into by one of its arguments, as it was
    given; also in methods of its own to which it hands that argument on."""
    if not depth or code.co_argcount <= argument:
        return
    own, index = code.co_varnames[0], code.co_varnames[argument]
    steps = list(_steps(code))
    if ("store", index) in steps or ("store", own) in steps:
        return  # it may be another by the time it is used
    for at, step in enumerate(steps[:-3]):
        if step != ("local", own) or steps[at + 1][0] != "attribute":
            continue
        name = steps[at + 1][1]
        if steps[at + 2 : at + 4] == [("local", index), ("item", "")]:
            yield name
        elif steps[at + 2] == ("local", index) and (inner := _method(kind, name)) is not None:
            yield from _indexed_by(inner, kind, 1, depth - 1)


def _steps(code: CodeType) -> Iterator[tuple[str, str]]:
    """Yield what the code of a function does, as far as it is of interest, in any Python's words:
    ("local", name), ("attribute", name), ("item", ""), ("store", name), ("other", "")."""
    for instruction in dis.get_instructions(code):
        name, value = instruction.opname, instruction.argval
        if name in _NOTHING:
            continue
        if name.startswith(("STORE_FAST", "DELETE_FAST")):
            names = value if type(value) is tuple else (value,)
            last_is_loaded = "LOAD_FAST" in name
            for place, each in enumerate(names):
                yield "local" if last_is_loaded and place else "store", each
        elif name.startswith("LOAD_FAST"):
            for each in value if type(value) is tuple else (value,):
                yield "local", each
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            yield "attribute", value
        elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and instruction.argrepr == "[]"):
            yield "item", ""
        else:
            yield "other", ""


_NOTHING = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PRECALL", "PUSH_NULL"})
