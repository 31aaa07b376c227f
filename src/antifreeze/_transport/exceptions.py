"""Exceptions across a process boundary: their own type, attributes and words, whatever they are.

Tried in this order, and checked in the worker, where a failure can still be handled:

1. the exception itself, pickled: type, arguments, attributes;
2. its class and whatever of its state can be pickled, rebuilt without calling the constructor;
3. the nearest class above it that can be found by name (a class defined inside a function has no
   name to be found by), with the same text.
"""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

from .._core.frozen_values import frozen
from .._reporting.formatting import said
from .traceback_frames import formatted


@frozen
class PackedException:
    """An exception on its way: how to rebuild it, and what to say about it."""

    pickled: bytes  # of the exception, or of `Remains`
    name: str  # of its class, as the worker knew it
    words: str  # what it said there, without what is added below
    text: str  # the worker's traceback, formatted
    where: str  # "in DataLoader worker process 0"
    notes: tuple[str, ...]  # samples, worker


@frozen
class Remains:
    """What is left of an exception that cannot be pickled or built again."""

    kind: type[BaseException]
    args: tuple[Any, ...] | None  # None: its own could not be kept
    state: dict[str, Any]


def pack_exception(error: BaseException, where: str, notes: tuple[str, ...]) -> PackedException:
    """Prepare an exception for its journey. Never raises."""
    name = type(error).__name__
    try:
        text = formatted(error)
    except BaseException as trouble:
        text = f"{name}: {said(error)} (its traceback cannot be formatted: {said(trouble)})"
    try:
        pickled = _pickle(error)
    except BaseException:
        pickled = pickle.dumps(Remains(RuntimeError, None, {}), protocol=5)
    return PackedException(pickled, name, said(error), text, where, notes)


def add_note(error: BaseException, note: str) -> None:
    """Add a note, if the exception takes notes."""
    with contextlib.suppress(Exception):
        error.add_note(note)


def rebuild_exception(packed: PackedException) -> BaseException:
    """Build the exception again, in the main process, with torch's phrase and our notes."""
    phrase = f"Caught {packed.name} {packed.where}."
    message = f"{phrase}\nOriginal {packed.text}"
    error = _load(packed.pickled, message)
    if _is_one_string(error):
        error.args = (message,)  # what torch's users read and match in logs and tests
    else:
        add_note(error, message.rstrip())
    for note in packed.notes:
        add_note(error, note)
    return error


def _load(pickled: bytes, message: str) -> BaseException:
    try:
        loaded = pickle.loads(pickled)
    except Exception:  # its module behaves differently here, or is missing
        return RuntimeError(message)
    if isinstance(loaded, Remains):
        return _revive(loaded, message)
    return loaded if isinstance(loaded, BaseException) else RuntimeError(message)


def _is_one_string(error: BaseException) -> bool:
    """Say whether the message of an exception is its one argument and nothing more."""
    return (
        type(error).__str__ in (BaseException.__str__, Exception.__str__)
        and len(error.args) == 1
        and isinstance(error.args[0], str)
    )


def _pickle(error: BaseException) -> bytes:
    try:
        data = pickle.dumps(error, protocol=5)
        again = pickle.loads(data)
        same = type(again) is type(error) and said(again) == said(error)
        if same and not _slots(error):  # an exception's own pickling forgets its slots
            return data
    except Exception:
        pass
    state = {}
    for name, value in {**getattr(error, "__dict__", {}), **_slots(error)}.items():
        if name != "__notes__" and _survives(value):
            state[name] = value
    args = error.args if _survives(error.args) else None
    for kind in type(error).__mro__:
        if kind in (Exception, BaseException):
            break
        remains = Remains(kind, args, state)
        if _survives(remains) and _can_be_revived(remains):
            return pickle.dumps(remains, protocol=5)
    return pickle.dumps(Remains(RuntimeError, None, state), protocol=5)


def _slots(error: BaseException) -> dict[str, Any]:
    names: list[str] = []
    for kind in type(error).__mro__:
        slots = vars(kind).get("__slots__", ())
        names.extend([slots] if isinstance(slots, str) else slots)
    return {name: getattr(error, name) for name in names if hasattr(error, name)}


def _survives(value: Any) -> bool:
    try:
        pickle.loads(pickle.dumps(value, protocol=5))
    except Exception:
        return False
    return True


def _can_be_revived(remains: Remains) -> bool:
    try:
        _revive(remains, "")
    except Exception:
        return False
    return True


def _revive(remains: Remains, message: str) -> BaseException:
    error = remains.kind.__new__(remains.kind)
    error.args = (message,) if remains.args is None else remains.args
    for name, value in remains.state.items():
        if hasattr(type(error), name):
            setattr(error, name, value)  # a slot
        else:
            error.__dict__[name] = value
    return error
