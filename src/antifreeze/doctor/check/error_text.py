"""Errors as text for a result, also those whose own text fails."""

from __future__ import annotations


def describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error_message(error)}".removesuffix(": ")


def error_message(error: Exception) -> str:
    """Return what an error says of itself; '' if that fails, as with one of libcst's whose text
    has a whole tree in it."""
    try:
        return str(error)
    except Exception:
        return ""
