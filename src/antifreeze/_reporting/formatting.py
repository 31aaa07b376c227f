"""Words about things that may not want to be described."""

from __future__ import annotations

import reprlib
from typing import Any

from .redaction import redacted, redacts, without_credentials


class _Short(reprlib.Repr):
    """Short reprs. What is secret in a string goes before it is cut: half a URL is not known for
    one."""

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(without_credentials(x), level)


LONGEST_PATH = 120  # characters

_short = _Short()
_short.maxstring = _short.maxother = 80  # characters
_short.maxlist = _short.maxtuple = 16


def shown(thing: Any) -> str:
    """Return a short repr. Never raises."""
    try:
        return redacted(_short.repr(thing)) if redacts() else _short.repr(thing)
    except Exception:
        return f"<{type(thing).__name__} without a repr>"


def shortened(path: str) -> str:
    """Return a path of attributes and entries, without its middle if it is long."""
    if len(path) <= LONGEST_PATH:
        return path
    return f"{path[: LONGEST_PATH // 2]} ... {path[-LONGEST_PATH // 3 :]}"


def said(error: BaseException) -> str:
    """Give an exception's message. Never raises."""
    try:
        return str(error)
    except Exception:
        return f"<{type(error).__name__} without a message>"
