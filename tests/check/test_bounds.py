"""However a file is written, to look at it ends, and soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from antifreeze.doctor.check.checker import check_text
from antifreeze.doctor.check.file_check import Source, first_pass
from antifreeze.doctor.source.file_summary import Summary
from antifreeze.doctor.source.step_budget import Budget

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


LEVELS = tuple(zip("abcde", "bcdef", strict=True))
LOADS = "from torch.utils.data import DataLoader, Dataset\nimport torch\n"
SAMPLES = """
class D(Dataset):
    def __init__(self):
        self.f = a
    def __len__(self):
        return 5
    def __getitem__(self, i):
        return {{"x": self.f[i]}}
loader = DataLoader(D(), num_workers={})
for x in loader:
    pass
"""
TANGLES = {
    "calls of itself": (
        "def build(n):\n"
        + "".join(f"    build({k})\n" for k in range(40))
        + "    for x in DataLoader([1], num_workers=2):\n        pass\nbuild(1)\n"
    ),
    "lists of lists": "".join(f"{x} = [{', '.join([y] * 20)}]\n" for x, y in LEVELS)
    + "f = 1\n"
    + SAMPLES.format(2),
    "this or that": "".join(f"{x} = {' or '.join([y] * 25)}\n" for x, y in LEVELS)
    + "f = 3\n"
    + SAMPLES.format("a"),
    "options of options": "".join(f"{x} = {{{', '.join([f'**{y}'] * 20)}}}\n" for x, y in LEVELS)
    + "f = dict(num_workers=2)\nDataLoader([1], **a)\n",
    "options of themselves": "a = {**b}\nb = {**a}\nDataLoader([1], **a)\n",
}


@pytest.mark.parametrize("name", TANGLES)
def test_what_leads_to_the_same_in_many_ways_is_followed_once(name: str) -> None:
    before = time.monotonic()
    result = check_text(LOADS + TANGLES[name])
    assert time.monotonic() - before < SOON_S
    assert not result.failures


def test_a_file_with_too_much_to_ask_is_named_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Budget.__init__, "__defaults__", (20,))
    (said,) = map(str, check_text(LOADS + TANGLES["lists of lists"]).failures)
    assert "example.py" in said and "20 steps" in said


CHAINS = {
    "numbers": " + ".join(["1"] * 1500),
    "names": " + ".join(["i"] * 1500),
    "quotients": " / ".join(["i"] * 1500),
    "words": " + ".join(["'a'"] * 1500),
    "alternatives": " or ".join(["i"] * 1500),
    "comparisons": " < ".join(["i"] * 1500),
}


@pytest.mark.parametrize("name", CHAINS)
def test_an_expression_of_a_thousand_terms_is_no_failure(name: str) -> None:
    chain = CHAINS[name]
    result = check_text(
        f"""
from torch.utils.data import DataLoader, Dataset
import torch
i = 1
class D(Dataset):
    def __init__(self, i):
        self.f = {chain}
        self.g = open({chain})
    def __len__(self):
        return {chain}
    def __getitem__(self, i):
        while True:
            try:
                torch.manual_seed({chain})
                return {chain}
            except Exception:
                return {chain}
def init(worker):
    torch.manual_seed({chain})
loader = DataLoader(D({chain}), batch_size={chain}, num_workers={chain}, worker_init_fn=init)
for i in loader:
    loss = {chain}
"""
    )
    assert not result.failures


def test_the_scope_of_a_name_far_inside_is_found() -> None:
    """They are kept on the way: those of a decorator are not those of its function."""
    chain = " + ".join(["x"] * 200)
    result = check_text(
        f"from torch.utils.data import Dataset\n"
        f"class D(Dataset):\n    y = 1\n    @f({chain})\n    def __getitem__(self, x):\n"
        f"        return {chain} + {chain.replace('x', 'y')}\nf = print\n"
    )
    assert {(each.code, each.span.line) for each in result.found} == {("AF705", 4), ("AF705", 6)}
