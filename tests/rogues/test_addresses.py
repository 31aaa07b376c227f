"""Numbers that are addresses in the program are not carried to a process where they are none."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType
from typing import Any

import pytest

from antifreeze._backends import modules

TEXT = ctypes.create_string_buffer(100)


@pytest.mark.parametrize("place", ["alone", "in a dict", "in a list of tuples"])
def test_an_address_is_not_carried_and_another_number_is(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = ctypes.addressof(TEXT)
    held: dict[str, Any] = {
        "alone": address,
        "in a dict": {"function": address},
        "in a list of tuples": [("function", address)],
    }
    library = ModuleType("library_of_this_test")
    library.__file__ = ctypes.__file__  # as one that is installed
    vars(library).update(kept=held[place], mask=2**64 - 1, count=2**33, name="words")
    monkeypatch.setitem(sys.modules, library.__name__, library)
    assert modules.collect({})[library.__name__] == {
        "mask": 2**64 - 1,
        "count": 2**33,
        "name": "words",
    }
