"""Cases that no patient can show on any machine: recorded ones, with some of the facts changed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from antifreeze.doctor.attach.diagnose import diagnose
from antifreeze.doctor.attach.facts import Case, Group, Machine, Process
from antifreeze.doctor.findings import Confidence

from .ward import named, told

CASES = Path(__file__).parent / "cases"
GB = 1_000_000_000


def recorded(name: str) -> Case:
    return Case.from_json((CASES / f"{name}.json").read_text())


def edited(
    case: Case,
    machine: Callable[[Machine, int], Machine] = lambda machine, _: machine,
    process: Callable[[Process, int], Process] = lambda process, _: process,
) -> Case:
    """Change the facts of a case; the second argument is the number of the look."""
    looks = tuple(
        replace(
            look,
            machine=machine(look.machine, number),
            processes=tuple(process(each, number) for each in look.processes),
        )
        for number, look in enumerate(case.looks)
    )
    return replace(case, looks=looks)


def test_a_machine_that_swaps_is_told_so() -> None:
    def swaps(machine: Machine, look: int) -> Machine:
        pages = 1_000_000 + 9000 * look
        return replace(
            machine, swap=8 * GB, swap_free=GB, swapped_in=pages, swapped_out=pages, memory_free=0
        )

    def waits(process: Process, look: int) -> Process:
        memory = replace(process.memory, swapped=300_000_000)
        return replace(process, memory=memory, major_faults=900 + 400 * look)

    case = edited(recorded("well_and_busy"), swaps, waits)
    answer = diagnose(case)[0]
    assert named(answer) == {"swap-thrash"}, told(answer)


def test_a_machine_that_has_swapped_once_is_left_in_peace() -> None:
    def has_swapped(machine: Machine, look: int) -> Machine:
        return replace(machine, swap=8 * GB, swap_free=GB, swapped_in=5_000_000)

    answer = diagnose(edited(recorded("well_and_busy"), has_swapped))[0]
    assert not named(answer), told(answer)


def at_its_limit(machine: Machine, look: int) -> Machine:
    group = Group(memory_limit=8 * GB, memory_used=8 * GB - 1000, reclaims=50 + 700 * look)
    return replace(machine, group=group)


def test_a_container_at_its_limit_that_fetches_its_pages_again_is_told_so() -> None:
    def faults(process: Process, look: int) -> Process:
        return replace(process, major_faults=300 * look)

    answer = diagnose(edited(recorded("well_and_busy"), at_its_limit, faults))[0]
    assert named(answer) == {"container-memory-limit"}, told(answer)


def test_a_container_that_is_full_of_cached_files_is_left_in_peace() -> None:
    answer = diagnose(edited(recorded("well_and_busy"), at_its_limit))[0]
    assert not named(answer), told(answer)


def test_a_quota_that_is_seldom_met_is_left_in_peace() -> None:
    def quota(machine: Machine, look: int) -> Machine:
        return replace(machine, group=Group(quota_cores=2.0, throttled=100 + 2 * look))

    answer = diagnose(edited(recorded("well_and_busy"), quota))[0]
    assert not named(answer), told(answer)


@pytest.mark.parametrize("name", ["loop_busy", "loop_between_epochs"])
def test_a_loop_that_is_at_work_itself_hears_that_the_loader_is_fine(name: str) -> None:
    answer = diagnose(recorded(name))[0]
    assert not answer.stuck
    assert [each.rule for each in answer.findings] == ["loop-busy"], told(answer)
    assert "the loader is fine" in answer.sentence


def without_stacks(process: Process, look: int) -> Process:
    threads = tuple(replace(each, frames=()) for each in process.threads)
    return replace(process, threads=threads, blind="py-spy is not installed")


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_without_stacks_nothing_wrong_is_said(path: Path) -> None:
    case = recorded(path.stem)
    before = named(diagnose(case)[0])
    answer = diagnose(edited(case, process=without_stacks))[0]
    sure = {each.rule for each in answer.findings if each.confidence is Confidence.CERTAIN}
    assert sure <= before, told(answer)
    bold = {each.rule for each in answer.findings if each.confidence is not Confidence.POSSIBLE}
    assert bold <= before, told(answer)


@pytest.mark.parametrize(
    "name", ["network_read", "pipe_without_writer", "disk_wait", "shared_memory_full"]
)
def test_what_the_kernel_shows_is_named_without_stacks(name: str) -> None:
    case = recorded(name)
    answer = diagnose(edited(case, process=without_stacks))[0]
    assert named(answer) == named(diagnose(case)[0]), told(answer)


def ignoring_ctrl_c(process: Process, look: int) -> Process:
    return replace(process, ignores_signals=1 << (signal.SIGINT - 1))


def test_who_ignores_ctrl_c_is_not_told_to_use_it() -> None:
    case = recorded("sampler_without_end")
    [usual] = diagnose(edited(case, process=lambda process, _: replace(process, ignores_signals=0)))
    [other] = diagnose(edited(case, process=ignoring_ctrl_c))
    assert any("kill -INT" in line for line in usual.findings[0].get_out)
    assert not any("kill -INT" in line for line in other.findings[0].get_out)
    assert any(line.startswith(f"kill {other.pid} ") for line in other.findings[0].get_out)
