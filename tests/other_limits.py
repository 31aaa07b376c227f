"""Other bounds than the default ones, for the loaders of a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from antifreeze._core.limits import LIMITS, Limits


def other_limits(**groups: Mapping[str, Any]) -> Limits:
    """Return the default limits with other values, by group and name."""
    changed: dict[str, Any] = {
        name: replace(getattr(LIMITS, name), **values) for name, values in groups.items()
    }
    return replace(LIMITS, **changed)
