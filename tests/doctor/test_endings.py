"""What is said of dead workers, lost batches and ends that do not come, beyond the right name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from antifreeze.doctor.attach.analyse.threads_and_processes import Program
from antifreeze.doctor.attach.causes import all_causes, batch_lost
from antifreeze.doctor.attach.diagnose import Answer, diagnose
from antifreeze.doctor.attach.facts import Case, Frame, Look, Process
from antifreeze.doctor.findings import Confidence, Finding

from .patient_programs import named, text_of, wrongly_certain

CASES = Path(__file__).parent / "cases"
ALL = sorted(path.stem for path in CASES.glob("*.json"))


def test_a_lost_batch_points_to_the_log_with_the_reason() -> None:
    finding = _answer("batch_lost").findings[0]
    assert "/folder/err" in finding.get_out[0], finding
    assert "batch_lost.py:24" in finding.sentence


def test_a_lost_batch_tells_of_a_full_shm_and_of_too_many_files() -> None:
    case = _case("batch_lost")
    full = replace(case.looks[-1].machine, shm=64 << 20, shm_free=1 << 20)
    at_limit = _changed(case, lambda each: replace(each, open_files=1020, most_files=1024))
    looks = tuple(replace(each, machine=full) for each in at_limit.looks)
    alone = diagnose(replace(case, looks=looks), [batch_lost.CAUSE])[0]  # others know more of it
    evidence = "\n".join(alone.findings[0].evidence)
    assert "/dev/shm is full: 1 MB free of 64 MB" in evidence
    assert "1020 files open, of 1024" in evidence


def test_indices_that_were_lost_are_told_from_batches() -> None:
    assert "indices that the sampler gave" in _answer("indices_lost").sentence
    assert "indices that the sampler gave" not in _answer("batch_lost").sentence


def test_what_a_worker_died_of_is_told() -> None:
    told_of = _answer("worker_gone").findings[0]
    assert any("killed by SIGKILL" in each for each in told_of.evidence), told_of
    crashed = _changed(
        _case("worker_gone"),
        lambda each: replace(each, exit_status=3 << 8 if each.exit_status else 0),
    )
    evidence = diagnose(crashed)[0].findings[0].evidence
    assert any("exit code 3" in each for each in evidence), evidence


def test_a_message_that_a_living_worker_may_finish_is_not_laid_to_the_dead() -> None:
    """As where one worker was killed, and another was stopped in the middle of its batch."""

    def sends(process: Process) -> Process:
        frames = (
            Frame("Connection._send", "multiprocessing/connection.py", 384),
            Frame("Queue._feed", "multiprocessing/queues.py", 250),
        )
        first, *rest = process.threads
        feeder = replace(first, tid=process.pid + 1, name="QueueFeederThread", frames=frames)
        worker = process.name == "pt_data_worker" and process.state not in "ZX"
        return replace(process, threads=(first, feeder, *rest)) if worker else process

    assert _answer("worker_gone").findings[0].confidence is Confidence.CERTAIN
    for finding in diagnose(_changed(_case("worker_gone"), sends))[0].findings:
        assert finding.confidence is not Confidence.CERTAIN, finding
        assert "in the middle of" not in finding.sentence, finding


def test_a_worker_that_ended_by_itself_is_not_mourned() -> None:
    case = _changed(_case("worker_gone"), lambda each: replace(each, exit_status=0))
    assert "worker-gone" not in named(diagnose(case)[0])


def test_a_worker_that_died_between_the_looks_is_left_to_torch() -> None:
    case = _case("worker_gone")
    first = case.looks[0]
    alive = tuple(replace(each, state="S", exit_status=0) for each in first.processes)
    case = replace(case, looks=(replace(first, processes=alive), case.looks[-1]))
    assert "worker-gone" not in named(diagnose(case)[0])


def test_a_lost_batch_is_not_blamed_for_a_worker_that_is_gone_without_a_trace() -> None:
    assert named(_answer("worker_gone_unseen")) == {"worker-gone"}
    assert named(_answer("batch_lost_error")) == {"batch-lost"}


def test_all_orphans_are_named_and_how_to_end_them() -> None:
    finding = _answer("orphaned_workers").findings[0]
    assert len(finding.pids) == 2
    command = finding.get_out[0].partition("  ")[0]
    assert command == f"kill -9 {' '.join(map(str, finding.pids))}"


def test_a_worker_with_a_parent_outside_of_the_container_is_no_orphan() -> None:
    case = _changed(_case("orphaned_workers"), lambda each: replace(each, parent=0))
    assert not diagnose(case)[0].findings


def test_at_the_end_all_workers_that_are_left_are_to_be_killed() -> None:
    finding = _answer("exit_joins_busy_worker").findings[0]
    assert len(finding.get_out[0].partition("  ")[0].split()) == len(["kill", "-9", "pid", "pid"])


def test_who_is_stopped_for_a_moment_only_is_not_called_stopped() -> None:
    case = _case("worker_stopped")
    first = case.looks[0]
    running = tuple(replace(each, state="S") for each in first.processes)
    case = replace(case, looks=(replace(first, processes=running), case.looks[-1]))
    assert "worker-stopped" not in named(diagnose(case)[0])


@pytest.mark.parametrize("name", ALL)
def test_without_stacks_nothing_wrong_is_certain_and_nothing_fails(name: str) -> None:
    """As where py-spy is not there."""
    answer = diagnose(_changed(_case(name), _without_stacks))[0]
    assert not wrongly_certain(answer, tuple(named(_answer(name)))), text_of(answer)


@pytest.mark.parametrize("name", ALL)
def test_without_open_files_nothing_fails(name: str) -> None:
    """As where they are another user's."""
    answer = diagnose(_changed(_case(name), lambda each: replace(each, descriptors=())))[0]
    assert not wrongly_certain(answer, tuple(named(_answer(name)))), text_of(answer)


def _case(name: str) -> Case:
    return Case.from_json((CASES / f"{name}.json").read_text())


def _answer(name: str) -> Answer:
    return diagnose(_case(name))[0]


def _changed(case: Case, change: Callable[[Process], Process]) -> Case:
    def seen(look: Look) -> Look:
        return replace(look, processes=tuple(change(each) for each in look.processes))

    return replace(case, looks=tuple(seen(each) for each in case.looks))


def _without_stacks(process: Process) -> Process:
    threads = tuple(replace(each, frames=()) for each in process.threads)
    return replace(process, threads=threads, blind="py-spy is not installed")


def test_a_mistake_in_one_cause_does_not_cost_the_answer_of_the_others() -> None:
    def fails(program: Program) -> Iterator[Finding]:
        raise IndexError("no such thread")
        yield

    causes = [replace(all_causes()[0], name="hasty", find=fails), *all_causes()]
    answer = diagnose(_case("worker_stopped"), causes)[0]
    assert "worker-stopped" in named(answer)
    assert answer.broken == ("hasty: IndexError: no such thread",)


def test_who_runs_what_was_typed_at_a_prompt_does_not_stand_at_it() -> None:
    case = _case("batch_lost")
    main = case.asked

    def typed(process: Process) -> Process:
        if process.pid != main:
            return process
        below = (Frame("Interpreter.runcode", "code.py", 90), Frame("interact", "code.py", 290))
        threads = tuple(
            replace(each, frames=(*each.frames, *below)) if each.tid == main else each
            for each in process.threads
        )
        return replace(process, threads=threads)

    answer = diagnose(_changed(case, typed))[0]
    assert "batch-lost" in named(answer) and "waits-for-a-person" not in named(answer), text_of(
        answer
    )
