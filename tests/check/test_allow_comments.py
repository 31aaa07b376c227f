"""`# antifreeze: allow[...]`: where it counts, how it may be written, and when it is reported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from antifreeze.doctor.check.allow_comments import Allows, read_allows
from antifreeze.doctor.check.checker import check_text
from antifreeze.doctor.check.files.source_reader import Source
from antifreeze.doctor.check.finding_builder import build_finding
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.findings import Confidence
from antifreeze.doctor.rules import find_rule
from antifreeze.doctor.rules.rule import Hit

RULE = find_rule("AF601")
assert RULE is not None
BAD = RULE.page.bad.strip() + "\n"
LINE = next(n for n, line in enumerate(BAD.split("\n"), start=1) if "= DistributedSampler" in line)
DECORATED = """import torch  # so that no comment is for the whole file
{comment}
@register("data",
          "set")
@other
class Files(Dataset):
    {inside}

    @property
    def batches(self):
        pass
"""


def above(*comments: str, text: str = BAD, line: int = LINE) -> str:
    lines = text.split("\n")
    indent = lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]
    lines[line - 1 : line - 1] = [indent + each for each in comments]
    return "\n".join(lines)


def codes(text: str, settings: Settings | None = None) -> list[str]:
    return [each.code for each in check_text(text, settings).found]


@pytest.mark.parametrize(
    "word", ["Sampler-Without-Set-Epoch", "af601", "SAMPLER-WITHOUT-SET-EPOCH"]
)
def test_a_name_counts_in_any_case(word: str) -> None:
    strict = Settings(strict=True)
    assert not codes(above(f"# antifreeze: allow[{word}]"), strict)
    assert codes(BAD, Settings(select=(word,))) == ["AF601"]
    assert not codes(BAD, Settings(ignore=(word,)))


def test_a_reason_may_go_on_in_the_next_line() -> None:
    assert not codes(above("# antifreeze: allow[AF601] one epoch only,", "# see the paper"))
    assert codes(above("# antifreeze: allow[AF601] one epoch only", "")) == ["AF601"]


@pytest.mark.parametrize(
    "comment",
    [
        "# antifreeze: allow[AF501] allow[AF601]",
        "# antifreeze: allow[AF501]  # antifreeze: allow[AF601]",
        "# noqa  # antifreeze: allow[AF501], allow[AF601] both",
    ],
)
def test_there_may_be_two_in_one_comment(comment: str) -> None:
    assert not codes(above(comment))


@pytest.mark.parametrize(
    ("comment", "inside", "is_allowed"),
    [
        ("# antifreeze: allow[AF601]", "pass", True),
        ("# antifreeze: allow[AF601] because", "pass", True),
        ("x = 1  # antifreeze: allow[AF601]", "pass", False),
        ("x = 1", "pass  # antifreeze: allow[AF601]", False),
    ],
)
def test_one_above_a_decorator_counts_for_what_is_decorated(
    comment: str, inside: str, is_allowed: bool
) -> None:
    text = DECORATED.format(comment=comment, inside=inside)
    node = next(each for each in ast.parse(text).body if isinstance(each, ast.ClassDef))
    assert RULE is not None
    found = build_finding(RULE, Hit(node, "words"), Source(Path("a.py"), text))
    assert (Allows(read_allows(text)).silence([found]) == []) == is_allowed


def test_each_of_several_is_reported_at_its_own_place() -> None:
    text = above("# antifreeze: allow[AF501]", "# antifreeze: allow[nonesuch] allow[AF504]")
    found = check_text(text, Settings(strict=True)).found
    places = [(each.span.line, each.span.column) for each in found if each.code == "AF002"]
    last = text.split("\n")[LINE].index("allow[AF504]")
    assert places == [(LINE, 4), (LINE + 1, 4), (LINE + 1, last)]


def test_what_a_possible_finding_needs_is_not_without_effect() -> None:
    rule = find_rule("AF901")
    assert rule is not None
    text = "# antifreeze: allow[workers-not-chosen]\n" + rule.page.bad.strip() + "\n"
    for confidence in Confidence:
        given = Settings(extend_select=("AF901",), strict=True, confidence=confidence)
        assert not codes(text, given)
