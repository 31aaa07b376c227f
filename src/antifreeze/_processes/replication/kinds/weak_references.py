"""Weak references: what only they lead to is not sent, so they cannot be sent either."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..unsendable import Unsendable

PROXIES = frozenset({weakref.ProxyType, weakref.CallableProxyType})


def ways() -> dict[type, Callable[[Any], Any]]:
    """Return how weak containers are sent: empty, or not at all."""
    kinds = (weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
    return dict.fromkeys(kinds, _container)


def _container(container: Any) -> Any:
    if len(container):
        raise Unsendable(
            f"a {type(container).__name__} with things in it, which would arrive without them"
        )
    return type(container), ()
