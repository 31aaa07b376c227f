"""Diffs of long files say what those of short ones say: how the new text is made of the old one."""

from __future__ import annotations

import random
import re
import time

import pytest

from antifreeze.doctor.check.output import unified_diff
from antifreeze.doctor.check.output.unified_diff import as_diff

SOON_S = 10.0  # it takes less than a second


def apply(before: str, diff: str) -> str:
    """Apply a unified diff, as `patch` does."""
    old = before.split("\n")
    made: list[str] = []
    place = 0
    for line in diff.split("\n")[2:-1]:
        head = re.fullmatch(r"@@ -(\d+)(,\d+)? \+\d+(,\d+)? @@", line)
        if head is not None:
            start = int(head[1]) - (head[2] != ",0")
            assert start >= place
            made += old[place:start]
            place = start
        elif line.startswith("+"):
            made.append(line[1:])
        else:
            assert old[place] == line[1:], f"line {place} is not {line!r}"
            made += [old[place]] if line.startswith(" ") else []
            place += 1
    return "\n".join([*made, *old[place:]])


def texts(luck: random.Random) -> tuple[str, str]:
    old = [
        luck.choice("abcd") if luck.random() < 0.5 else f"u{n}" for n in range(luck.randint(1, 40))
    ]
    new = list(old)
    for _ in range(luck.randint(1, 6)):
        place = luck.randint(0, len(new))
        new[place : place + luck.randint(0, 3)] = [f"n{luck.randint(0, 9)}"] * luck.randint(0, 2)
    return "".join(f"{each}\n" for each in old), "".join(f"{each}\n" for each in new)


@pytest.mark.parametrize("long", [True, False], ids=["long", "short"])
def test_a_diff_applied_to_the_old_text_gives_the_new_one(
    long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unified_diff, "MOST_DIFFLIB_LINES", -1 if long else 1_000)
    for seed in range(300):
        before, after = texts(random.Random(seed))
        diff = as_diff("a", before, after)
        assert (apply(before, diff) if diff else before) == after, f"seed {seed}\n{diff}"


@pytest.mark.parametrize("step", [1, 2, 7])
def test_a_diff_of_very_many_changes_is_made_at_once(step: int) -> None:
    old = [f"line {n}\n" for n in range(20_000)]
    new = [f"new {n}\n" if n % step == 0 else each for n, each in enumerate(old)]
    before = time.monotonic()
    diff = as_diff("a", "".join(old), "".join(new))
    assert time.monotonic() - before < SOON_S
    assert diff.count("\n-") == diff.count("\n+") - 1 == sum(n % step == 0 for n in range(20_000))
