"""However a file is written, to look at it ends, and soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from antifreeze.doctor.check.looking import Source, first_pass
from antifreeze.doctor.source.summary import Summary

SOON_S = 10.0  # a shared machine at its worst; each takes less than a second or two by itself


def summary_of(text: str) -> Summary:
    return first_pass(Source(Path("program.py"), text), "program", is_package=False)[1]


@pytest.mark.parametrize(
    "text",
    [
        "T = {" + ", ".join(f"K.a{i}: {i}" for i in range(60_000)) + "}",
        "T = f(" + ", ".join(f"K.a{i}, K.b" for i in range(60_000)) + ")",
        "DATA = [" + ", ".join(["0.5"] * 200_000) + "]",
        "x = 1" + "\n" * 500_000,
        "x = 1\n" + " \n" * 500_000,
        "x = '" + "for while " * 100_000 + "'",
        "x = '" + "collate_fn " * 90_000 + "'",
        "x = '" + "a" * 500_000 + "." + " " * 500_000 + "'",
    ],
    ids=["keys", "attributes", "numbers", "ends", "blanks", "loops", "collates", "spaces"],
)
def test_a_megabyte_in_one_line_is_summarised_at_once(text: str) -> None:
    before = time.monotonic()
    summary_of(text)
    assert time.monotonic() - before < SOON_S


def test_what_is_set_from_outside_is_seen_in_the_text() -> None:
    found = summary_of(
        "x.a = 1\nx.b: int = 2\nx.c, y.d = 3, 4\nx.e += 1\nx.f //= 2\nx.g == 3\n"
        "self.h = 1\n{x.i: 1, x.j: 2}\nx.k, y == 2\nz[x.l].m = 1\nif x:\n    x.n  = 5\n"
    )
    assert found.stores == {"a", "b", "c", "d", "e", "f", "m", "n"}


def test_a_loop_over_epochs_is_one_of_a_line() -> None:
    assert summary_of("if x:\n    for epoch in range(3): pass\n").has_epochs
    assert summary_of("\n\n  \nwhile Epochs: pass\n".lstrip()).has_epochs
    assert not summary_of("for i in x: pass\nepoch = 1\n").has_epochs
