"""Cases that no patient can show on any machine: recorded ones, with some of the facts changed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from antifreeze.doctor.attach.analyse.process_roles import Role, role_of
from antifreeze.doctor.attach.diagnose import diagnose
from antifreeze.doctor.attach.facts import Case, Group, Machine, Process, Thread
from antifreeze.doctor.findings import Confidence

from .patient_programs import named, text_of

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


def on_a_machine_that_swaps() -> Case:
    def swaps(machine: Machine, look: int) -> Machine:
        pages = 1_000_000 + 9000 * look
        return replace(
            machine, swap=8 * GB, swap_free=GB, swapped_in=pages, swapped_out=pages, memory_free=0
        )

    def waits(process: Process, look: int) -> Process:
        memory = replace(process.memory, swapped=300_000_000)
        return replace(process, memory=memory, major_faults=900 + 400 * look)

    return edited(recorded("well_and_busy"), swaps, waits)


def test_a_machine_that_has_swapped_once_has_no_cause_named() -> None:
    def has_swapped(machine: Machine, look: int) -> Machine:
        return replace(machine, swap=8 * GB, swap_free=GB, swapped_in=5_000_000)

    answer = diagnose(edited(recorded("well_and_busy"), has_swapped))[0]
    assert not named(answer), text_of(answer)


def at_its_limit(machine: Machine, look: int) -> Machine:
    group = Group(memory_limit=8 * GB, memory_used=8 * GB - 1000, reclaims=50 + 700 * look)
    return replace(machine, group=group)


def in_a_container_at_its_limit_that_fetches_its_pages_again() -> Case:
    def faults(process: Process, look: int) -> Process:
        return replace(process, major_faults=300 * look)

    return edited(recorded("well_and_busy"), at_its_limit, faults)


# What no program can be made to have at will, by the cause that is to be named (test_cases.py).
EDITED = {
    "container-memory-limit": in_a_container_at_its_limit_that_fetches_its_pages_again,
    "swap-thrash": on_a_machine_that_swaps,
}


def test_a_container_that_is_full_of_cached_files_has_no_cause_named() -> None:
    answer = diagnose(edited(recorded("well_and_busy"), at_its_limit))[0]
    assert not named(answer), text_of(answer)


def test_a_quota_that_is_seldom_met_has_no_cause_named() -> None:
    def quota(machine: Machine, look: int) -> Machine:
        return replace(machine, group=Group(quota_cores=2.0, throttled=100 + 2 * look))

    answer = diagnose(edited(recorded("well_and_busy"), quota))[0]
    assert not named(answer), text_of(answer)


@pytest.mark.parametrize("name", ["loop_busy", "loop_between_epochs"])
def test_a_loop_that_is_at_work_itself_hears_that_the_loader_is_fine(name: str) -> None:
    answer = diagnose(recorded(name))[0]
    assert not answer.stuck
    assert [each.rule for each in answer.findings] == ["loop-busy"], text_of(answer)
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
    assert sure <= before, text_of(answer)
    bold = {each.rule for each in answer.findings if each.confidence is not Confidence.POSSIBLE}
    assert bold <= before, text_of(answer)


@pytest.mark.parametrize(
    "name", ["network_read", "pipe_without_writer", "disk_wait", "shared_memory_full"]
)
def test_what_the_kernel_shows_is_named_without_stacks(name: str) -> None:
    case = recorded(name)
    answer = diagnose(edited(case, process=without_stacks))[0]
    assert named(answer) == named(diagnose(case)[0]), text_of(answer)


def ignoring_ctrl_c(process: Process, look: int) -> Process:
    return replace(process, ignores_signals=1 << (signal.SIGINT - 1))


def test_who_ignores_ctrl_c_is_not_told_to_use_it() -> None:
    case = recorded("sampler_without_end")
    [usual] = diagnose(edited(case, process=lambda process, _: replace(process, ignores_signals=0)))
    [other] = diagnose(edited(case, process=ignoring_ctrl_c))
    assert any("kill -INT" in line for line in usual.findings[0].get_out)
    assert not any("kill -INT" in line for line in other.findings[0].get_out)
    assert any(line.startswith(f"kill {other.pid} ") for line in other.findings[0].get_out)


def asleep_for(seconds: float) -> Callable[[Process, int], Process]:
    """Let all threads have slept for so long when the first look was taken."""

    def slept(process: Process, look: int) -> Process:
        threads = (replace(each, asleep_s=seconds) for each in process.threads)
        return process if look else replace(process, threads=tuple(threads))

    return slept


def test_who_has_just_run_may_only_be_slow() -> None:
    [known] = diagnose(edited(recorded("network_read"), process=asleep_for(-1.0)))
    [fresh] = diagnose(edited(recorded("network_read"), process=asleep_for(5.0)))
    assert known.findings[0].confidence is Confidence.LIKELY
    assert named(fresh) == named(known) == {"network-read"}
    assert fresh.findings[0].confidence is Confidence.POSSIBLE
    assert any("it may only be slow" in line for line in fresh.findings[0].evidence)


def test_who_has_not_run_for_long_is_stuck_and_told_for_how_long() -> None:
    [answer] = diagnose(edited(recorded("network_read"), process=asleep_for(41 * 60.0)))
    first = answer.findings[0]
    assert first.confidence is Confidence.LIKELY
    assert any("has not run for 41 min" in line and "stuck" in line for line in first.evidence)
    assert not any("look again" in line for line in first.evidence)
    assert any("not run for 41 min" in line for line in answer.facts)


@pytest.mark.parametrize("name", ["child_program", "lock_of_the_dead", "event_that_nobody_sets"])
def test_what_cannot_end_by_itself_is_as_sure_when_it_is_fresh(name: str) -> None:
    [known] = diagnose(recorded(name))
    [fresh] = diagnose(edited(recorded(name), process=asleep_for(3.0)))
    assert fresh.findings[0].confidence is known.findings[0].confidence, text_of(fresh)


def test_a_program_that_has_done_nothing_for_long_is_more_than_possibly_the_cause() -> None:
    case = recorded("child_program_asleep")
    for seconds, sure in ((5.0, Confidence.POSSIBLE), (1200.0, Confidence.LIKELY)):
        [answer] = diagnose(edited(case, process=asleep_for(seconds)))
        assert named(answer) == {"child-program"}, text_of(answer)
        assert answer.findings[0].confidence is sure, text_of(answer)


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_how_long_somebody_sleeps_never_changes_what_is_named(path: Path) -> None:
    case = recorded(path.stem)
    for seconds in (-1.0, 4.0, 4000.0):
        answers = diagnose(edited(case, process=asleep_for(seconds)))
        assert [named(each) for each in answers] == [named(each) for each in diagnose(case)]


def test_workers_that_take_turns_are_told_so_and_not_that_more_of_them_would_help() -> None:
    for name in ("well_and_taking_turns", "well_and_taking_turns_at_a_file"):
        [answer] = diagnose(recorded(name))
        assert [each.rule for each in answer.findings] == ["lock-in-turns"], text_of(answer)
        assert not answer.stuck


def test_a_lock_that_nobody_gives_back_is_not_taken_in_turns() -> None:
    for name in ("lock_of_the_dead", "file_lock"):
        [answer] = diagnose(recorded(name))
        assert "lock-in-turns" not in {each.rule for each in answer.findings}, text_of(answer)


def test_who_should_read_a_pipe_and_is_stopped_is_told_to_go_on() -> None:
    case = recorded("output_nobody_reads")
    last = case.looks[-1]
    readers = tuple(replace(each, state="T", waits_in="") for each in last.pipe_readers)
    assert readers
    [seen] = diagnose(replace(case, looks=(case.looks[0], replace(last, pipe_readers=readers))))
    assert "(stdout)" in seen.sentence and f"process {readers[0].pid}" in seen.sentence
    assert "stopped" in seen.sentence
    assert seen.findings[0].get_out[0].startswith(f"kill -CONT {readers[0].pid} ")
    [other] = diagnose(replace(case, looks=(case.looks[0], replace(last, pipe_readers=()))))
    assert "cannot be seen from here" in other.sentence


def test_a_worker_behind_a_loop_that_stands_in_a_write_is_named_too() -> None:
    [answer] = diagnose(recorded("two_causes_behind_a_full_pipe"))
    rules = [each.rule for each in answer.findings]
    assert rules == ["pipe-without-reader", "network-read"], text_of(answer)
    assert "the loop comes to wait for it next" in answer.findings[1].sentence


def test_a_worker_that_has_not_begun_is_said_to_be_in_worker_init_fn() -> None:
    [answer] = diagnose(recorded("init_fn_waits_for_a_file"))
    assert "in worker_init_fn" in answer.sentence


def test_ranks_wait_for_each_other_and_not_for_who_has_launched_them() -> None:
    first, second = diagnose(recorded("ranks_of_an_own_launcher"))
    assert first.sentence.startswith("rank 0 waits in all_reduce for rank 1 "), first.sentence
    assert f"rank 0 (pid {first.pid}) waits for this rank" in second.sentence
    assert "nothing is stuck" not in second.sentence


@pytest.mark.parametrize(
    ("settings", "threads", "ranks", "role"),
    [
        ({}, (), ("0", "1"), Role.LAUNCHER),
        ({"RANK": "0"}, (), ("1", "2"), Role.MAIN),
        ({}, (Thread(1, "pt_gloo_runloop"),), ("1", "2"), Role.MAIN),
        ({}, (), ("1", "2"), Role.MAIN),  # Lightning's rank 0, which has not come to its group yet
    ],
)
def test_who_starts_all_ranks_and_is_none_launches_them(
    settings: dict[str, str], threads: tuple[Thread, ...], ranks: tuple[str, ...], role: Role
) -> None:
    command = ("python", "train.py")
    script = Process(1, 0, "python", command, settings=settings, threads=threads)
    now = {1: script} | {
        pid: Process(pid, 1, "python", command, settings={"RANK": each, "LOCAL_RANK": each})
        for pid, each in enumerate(ranks, 2)
    }
    assert role_of(script, now) is role
    assert all(role_of(now[pid], now) is Role.MAIN for pid in (2, 3))


def test_what_our_loader_does_every_second_is_not_told() -> None:
    lines = [
        "9.0 s ago: LifeEnded of worker 1 -> StartLife",
        "3.0 s ago: ClockRang -> LookAround",
        "3.0 s ago: LivesSeen -> ExamineLife, ExamineLife",
        "2.0 s ago: LifeExamined of worker 0",
    ]
    case = recorded("sample_in_our_worker")
    pid = diagnose(case)[0].pid
    answer = diagnose(replace(case, told={str(pid): {"loaders": [{"story": lines}]}}))[0]
    assert [line for line in answer.told if "ago" in line] == lines[:1]


def test_what_is_hidden_of_a_command_is_shown_as_dots() -> None:
    def secret(process: Process, look: int) -> Process:
        named_so = process.name == "sleep"
        return replace(process, command=("dd", "***", "if=***")) if named_so else process

    [answer] = diagnose(edited(recorded("child_program_asleep"), process=secret))
    assert "`dd ...`" in answer.sentence, text_of(answer)
