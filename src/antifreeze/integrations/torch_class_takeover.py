"""torch's loader class, which stays what it is, and makes loaders of ours.

1. `torch.utils.data.DataLoader(...)` gives an `antifreeze.DataLoader`, which is one of torch's. No
   name is replaced: it does not matter who holds the class by which name, and since when; every
   `isinstance` stays true.
2. A subclass that somebody derived from torch's class derives from ours: before or after, it is the
   same class, with our class between it and torch's. But not one that brings workers of its own
   (`_get_iterator`, or torchdata's StatefulDataLoader), and not one that has a use of its own for
   a name that our class needs (`names_taken`): such loaders are left alone.
3. Where torch's own workers start nevertheless, that is said, once for a class.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from torch.utils.data import dataloader as torch_engine

from .._linux.platform_support import switched_off
from .._reporting.log import logger
from .._torch_internals import MultiProcessingIterator
from ..loader import DataLoader
from .attribute_clashes import names_taken

_TORCHS: Any = torch_engine.DataLoader
_APART = ("torchdata",)  # libraries whose loaders keep a state of their own in their workers


@functools.cache
def take_over() -> None:
    """Have torch's class make loaders of ours. Once is enough."""
    _TORCHS.__new__ = staticmethod(_make)
    _TORCHS.__init_subclass__ = classmethod(_derive)
    for known in _TORCHS.__subclasses__():
        _put_between(known)
    if MultiProcessingIterator is None:
        return  # a torch of another build: it cannot be said where its workers start
    behind = MultiProcessingIterator.__init__

    @functools.wraps(behind)
    def begin(self: Any, loader: Any) -> None:
        _say_that_torch_loads(loader)
        behind(self, loader)

    MultiProcessingIterator.__init__ = begin


def _make(cls: type, *arguments: Any, **named: Any) -> Any:
    """Stand for `__new__`. What is unpickled or copied comes without arguments, and as it was."""
    if cls is _TORCHS and (arguments or named):
        cls = DataLoader  # whose `__init__` is the one that is called
    behind = super(_TORCHS, cls).__new__
    if behind is object.__new__:
        return behind(cls)
    return behind(cls, *arguments, **named)  # of another base


def _derive(cls: type, /, **named: Any) -> None:
    """Stand for `__init_subclass__`."""
    super(_TORCHS, cls).__init_subclass__(**named)
    _put_between(cls)


def _put_between(cls: type) -> None:
    if cls is DataLoader or _is_apart(cls):
        return
    if issubclass(cls, DataLoader):
        _say_that_names_clash(cls)
    elif _TORCHS in cls.__bases__ and not _names_of_family(cls):  # else said when it loads
        _move(cls)


def _move(cls: type) -> None:
    try:
        cls.__bases__ = tuple(DataLoader if base is _TORCHS else base for base in cls.__bases__)
    except TypeError:  # bases in an order that ours does not go with
        logger.debug("antifreeze: %s stays as it is", cls, exc_info=True)
    else:
        _moved.add(cls)


_moved: weakref.WeakSet[type] = weakref.WeakSet()


def _names_of_family(cls: type) -> set[str]:
    """Give the names that a class and all that derive from it take: they move together."""
    return set(names_taken(cls)).union(*map(_names_of_family, cls.__subclasses__()))


def _is_apart(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in _APART or any(
        "_get_iterator" in vars(base) for base in cls.__mro__ if not issubclass(DataLoader, base)
    )


def _say_that_names_clash(cls: type) -> None:
    """Say it of a class whose base has been moved: it is too late to leave it alone."""
    if not switched_off() and not _moved.isdisjoint(cls.__mro__) and (names := names_taken(cls)):
        logger.warning(
            "antifreeze: %s.%s uses %s for something of its own, which antifreeze's loader, from"
            " which it derives since install(), needs itself: it may fail. Other names, or the"
            " class defined before install(), would help.",
            cls.__module__,
            cls.__qualname__,
            ", ".join(names),
        )


@functools.cache
def _told() -> set[type]:
    return set()


def _say_that_torch_loads(loader: Any) -> None:
    kind = type(loader)
    if switched_off() or kind in _told():
        return
    _told().add(kind)
    why = "it brings an engine of its own"
    if kind is _TORCHS and _TORCHS.__new__ is not _make:
        why = "another has replaced DataLoader.__new__, or it was made before antifreeze.install()"
    elif kind is _TORCHS:
        why = "it was made before antifreeze.install()"
    elif not isinstance(loader, _TORCHS):  # as fastai's
        why = "its library's loader is a class of its own, and starts torch's workers itself"
    elif isinstance(loader, DataLoader) and kind._get_iterator is DataLoader._get_iterator:
        return  # this platform or torch lacks something, which is said already
    elif not _is_apart(kind) and (names := _names_that_keep(kind)):
        taken = ", ".join(names)
        why = f"it, or a relative, uses {taken}, which antifreeze needs, for something of its own"
    logger.warning(
        "antifreeze: a %s.%s runs on torch's workers, not on antifreeze's: %s. What antifreeze"
        " promises does not hold for it. (This is said once for each such class.)",
        kind.__module__,
        kind.__qualname__,
        why,
    )


def _names_that_keep(kind: type) -> list[str]:
    """Give the names for which a class was not moved: those of its family."""
    roots = [base for base in kind.__mro__ if _TORCHS in base.__bases__ and base is not DataLoader]
    return sorted(set[str]().union(*map(_names_of_family, roots)))
