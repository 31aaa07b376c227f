"""Tests that are run with many values of one kind: `make test` takes some, `make test-all` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some_of(values: Iterable[Any], usual: int) -> list[Any]:
    """Return values for `parametrize`, of which all but the first few are marked as thorough."""
    found = list(values)
    assert 0 < usual < len(found)
    more = (pytest.param(each, marks=pytest.mark.thorough) for each in found[usual:])
    return [*found[:usual], *more]
