"""Every failure that is known: our programs end in data or in words, or another test shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .catalogue import FAILURES
from .programs import SAID
from .programs_more import BY_NAME
from .watched import Ending, run

AT_ONCE = 3  # programs; each has processes of its own
TESTS = Path(__file__).parent.parent

IDS = {
    "A": (1, 2, 3, 5, 6, 7, 8),
    "B": (1, 2, 3, 4, 5, 6),
    "C": (1, 2, 3, 4, 5, 6, 7),
    "D": (1, 2, 3),
    "E": (1, 2, 3, 4, 5, 6, 7),
    "F": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15),
    "G": (1, 2, 3, 4, 5, 6, 7),
    "H": (1, 2, 3, 4, 6, 7, 9),
    "I": (1, 2, 3, 4, 6, 7),
}


@pytest.fixture(scope="module")
def endings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Ending]]:
    """Run all programs that are asked for, several at once, before the first is judged."""
    wanted = [
        BY_NAME[item.callspec.params["name"]]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_a_program_ends_as_it_should
    ]
    folder = tmp_path_factory.mktemp("programs")

    def ended(place: int) -> Ending:
        program = wanted[place]
        until = program.words if program.ends == SAID else ()
        return run(program.code, folder / str(place), until)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        ends = list(pool.map(ended, range(len(wanted))))
    yield {program.name: end for program, end in zip(wanted, ends, strict=True)}


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first of them runs all programs: a minute on two idle processors
@pytest.mark.parametrize("name", BY_NAME)
def test_a_program_ends_as_it_should(name: str, endings: dict[str, Ending]) -> None:
    objections = BY_NAME[name].objections(endings[name])
    assert not objections, f"{objections}\n{endings[name]}"


def test_every_known_failure_is_in_the_catalogue_and_nothing_else() -> None:
    assert list(FAILURES) == [f"{letter}{n}" for letter, ns in IDS.items() for n in ns]


def test_a_failure_is_shown_somewhere_or_has_its_reason() -> None:
    for number, failure in FAILURES.items():
        assert failure.programs or failure.tests or failure.cannot, number
    named = {name for failure in FAILURES.values() for name in failure.programs}
    assert named == set(BY_NAME)


def test_tests_that_are_named_are_there() -> None:
    nodes = {node for failure in FAILURES.values() for node in failure.tests}
    assert sorted(node for node in nodes if not _is_there(node)) == []


def _is_there(node: str) -> bool:
    file, _, name = node.partition("::")
    tree = ast.parse((TESTS / file).read_text())
    return name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
