"""Every rule: its page's examples are what it says, and all that belongs to it is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from antifreeze.doctor.check.check_result import Result
from antifreeze.doctor.check.checker import check_text
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.rules import Rule, all_rules, find_rule, rule_pages
from antifreeze.doctor.rules.rule import GROUPS

ROOT = Path(__file__).parents[2]
RULES = ROOT / "src" / "antifreeze" / "doctor" / "rules"
PROGRAMS = Path(__file__).parent / "programs"
MARK = re.compile(r"#\s*finds:\s*([\w, ]+)")


def named(rule: Rule) -> str:
    return f"{rule.code}-{rule.name}"


def looked_at(text: str, rule: Rule) -> Result:
    """Check a text with the rules that are on by default, and this one."""
    return check_text(text.strip() + "\n", Settings(extend_select=(rule.code,)))


EXAMPLES = [
    pytest.param(rule, text, id=f"{named(rule)}-{place}")
    for rule in all_rules()
    for place, text in enumerate((rule.page.bad, *rule.page.also_bad))
]
GOOD = [
    pytest.param(rule, text, id=f"{named(rule)}-{place}")
    for rule in all_rules()
    for place, text in enumerate((rule.page.good, *rule.page.also_good))
]


@pytest.mark.parametrize(("rule", "text"), EXAMPLES)
def test_a_bad_example_is_found_by_its_rule_and_by_no_other(rule: Rule, text: str) -> None:
    result = looked_at(text, rule)
    assert {each.code for each in result.found} == {rule.code}, result.found
    assert not result.failures


@pytest.mark.parametrize(("rule", "text"), GOOD)
def test_a_good_example_has_nothing_that_any_rule_finds(rule: Rule, text: str) -> None:
    result = looked_at(text, rule)
    assert not result.found
    assert not result.failures
    ast.parse(text)


@pytest.mark.parametrize("path", sorted(PROGRAMS.rglob("*.py")), ids=lambda path: path.stem)
def test_a_program_has_what_its_comments_say_and_nothing_else(path: Path) -> None:
    """`# finds: AF201` at the end of a line; what has no such comment must not be found."""
    text = path.read_text()
    expected = {
        (number, code.strip())
        for number, line in enumerate(text.split("\n"), start=1)
        if (match := MARK.search(line)) is not None
        for code in match[1].split(",")
    }
    opinions = tuple(code for _, code in expected if code.startswith("AF9"))
    result = check_text(text, Settings(extend_select=opinions), path=path.name)
    assert {(each.span.line, each.code) for each in result.found} == expected
    assert not result.failures


@pytest.mark.parametrize("rule", all_rules(), ids=named)
def test_a_rule_has_all_that_belongs_to_it(rule: Rule) -> None:
    assert re.fullmatch(r"AF\d{3}", rule.code) and rule.code[2] in GROUPS
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.name)
    file = RULES / f"{rule.code.lower()}_{rule.name.replace('-', '_')}.py"
    assert file.exists(), f"the rule's file is {file.name}"
    assert rule.opinion == rule.code.startswith("AF9")
    for text in (rule.title, rule.page.what, rule.page.why, rule.page.instead):
        assert text.strip()
    assert not rule.title.endswith(".")
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"{rule.code} {rule.name}" in changes, "a rule has its entry in CHANGELOG.md"
    assert rule_pages.file_name(rule) in rule_pages.pages()


def test_codes_and_names_are_each_used_once() -> None:
    codes = [rule.code for rule in all_rules()]
    names = [rule.name for rule in all_rules()]
    assert len(set(codes)) == len(codes) and len(set(names)) == len(names)
    assert len(list(RULES.glob("af*.py"))) == len(codes)


def test_a_rule_is_found_by_code_and_by_name() -> None:
    for rule in all_rules():
        assert find_rule(rule.code.lower()) is rule
        assert find_rule(rule.name) is rule
    assert find_rule("AF000") is None
