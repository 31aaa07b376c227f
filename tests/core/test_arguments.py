"""Options as people write them."""

from __future__ import annotations

import pytest

from antifreeze._engine.arguments import read_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2e9),
        ("500 MB", 5e8),
        ("1.5GiB", 1.5 * 2**30),
        ("64kb", 64e3),
        ("1TiB", 2**40),
        ("2e9", 2e9),
        ("2000000000", 2e9),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, size: float) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "GB", "2G", "2 parsecs", "2GBs"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_size(text)
