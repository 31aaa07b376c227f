"""What can be said of locks where less is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from antifreeze.doctor.attach.diagnose import diagnose
from antifreeze.doctor.attach.facts import Case, Thread
from antifreeze.doctor.findings import Confidence

from .patient_programs import named, text_of

CASES = Path(__file__).parent / "cases"


def _recorded(name: str, change: Callable[[Thread], Thread]) -> Case:
    case = Case.from_json((CASES / f"{name}.json").read_text())
    looks = tuple(
        replace(
            look,
            processes=tuple(
                replace(each, threads=tuple(map(change, each.threads))) for each in look.processes
            ),
        )
        for look in case.looks
    )
    return replace(case, looks=looks)


def _without_stacks(thread: Thread) -> Thread:
    return replace(thread, frames=(), holds_gil=False)


def _without_c_code(thread: Thread) -> Thread:
    return replace(thread, frames=tuple(each for each in thread.frames if not each.native))


def _without_anything(thread: Thread) -> Thread:
    return Thread(thread.tid, thread.name, thread.state)


@pytest.mark.parametrize(
    "name", ["lock_held_at_fork_mutex", "openmp_after_fork", "lock_of_the_dead", "file_lock"]
)
def test_without_stacks_the_kernel_alone_tells(name: str) -> None:
    whole = diagnose(Case.from_json((CASES / f"{name}.json").read_text()))[0]
    answer = diagnose(_recorded(name, _without_stacks))[0]
    assert named(answer) == named(whole), text_of(answer)


def test_a_mutex_names_its_owner_even_without_stacks() -> None:
    answer = diagnose(_recorded("lock_held_at_fork_mutex", _without_stacks))[0]
    assert answer.findings[0].confidence is Confidence.CERTAIN, text_of(answer)
    assert "owner is thread" in " ".join(answer.findings[0].evidence)


def test_a_lock_whose_code_was_not_seen_is_no_more_than_possible() -> None:
    answer = diagnose(_recorded("lock_held_at_fork", _without_c_code))[0]
    assert [each.confidence for each in answer.findings] == [Confidence.POSSIBLE], text_of(answer)


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.json")))
@pytest.mark.parametrize("change", [_without_stacks, _without_c_code, _without_anything])
def test_who_sees_less_claims_no_more(name: str, change: Callable[[Thread], Thread]) -> None:
    whole = diagnose(Case.from_json((CASES / f"{name}.json").read_text()))[0]
    sure = {each.rule for each in whole.findings}
    for answer in diagnose(_recorded(name, change)):
        certain = {e.rule for e in answer.findings if e.confidence is Confidence.CERTAIN}
        assert certain <= sure, text_of(answer)
