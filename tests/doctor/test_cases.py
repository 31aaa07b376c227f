"""Recorded cases: the same answer, on any machine, without a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from antifreeze.doctor.attach.causes import all_causes
from antifreeze.doctor.attach.diagnose import diagnose
from antifreeze.doctor.attach.facts import Case

from .patient_programs import answer_to, named, patients, said_of_what_is_well, text_of
from .test_edited_cases import EDITED

CASES = Path(__file__).parent / "cases"
EXPECTED = {each.name: {*each.expects} for each in patients()}
SAID = {each.name: {*each.says} for each in patients()}


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_a_recorded_case_gets_the_same_answer(path: Path) -> None:
    case = Case.from_json(path.read_text())
    answer = answer_to(case)
    assert named(answer) == EXPECTED[path.stem], text_of(answer)
    assert said_of_what_is_well(answer) == SAID[path.stem], text_of(answer)


def test_each_patient_has_been_recorded() -> None:
    assert {path.stem for path in CASES.glob("*.json")} == {*EXPECTED}


def test_each_cause_has_a_patient_and_each_patient_a_cause() -> None:
    causes = {each.name for each in all_causes()}
    expected = {*EDITED}.union(*EXPECTED.values(), *SAID.values())
    assert expected == causes


@pytest.mark.parametrize("name", EDITED)
def test_an_edited_case_is_told_what_it_was_made_to_have(name: str) -> None:
    answer = diagnose(EDITED[name]())[0]
    assert named(answer) == {name}, text_of(answer)


def test_a_case_is_the_same_after_writing_and_reading() -> None:
    for path in CASES.glob("*.json"):
        case = Case.from_json(path.read_text())
        assert Case.from_json(case.to_json()) == case


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is not JSON"),
        ("[" * 100_000, "too deep"),
        ("[]", "no looks"),
        ('{"version": 99, "looks": []}', "its form is 99"),
        ('{"version": 1, "asked": 1, "looks": []}', "no looks"),
        ('{"version": 1, "asked": 1, "looks": [3]}', "damaged"),
        ('{"version": 1, "looks": [{"at": 1.0, "processes": []}]}', "damaged"),
    ],
)
def test_a_file_that_is_no_case_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Case.from_json(text)
