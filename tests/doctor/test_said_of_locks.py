"""What is said of waits where a wrong cause is easy to name: cases, as they are and changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from antifreeze.doctor.attach.diagnose import Answer
from antifreeze.doctor.attach.facts import Case, Descriptor, FileLock, Look, Process, Thread
from antifreeze.doctor.findings import Confidence, Finding

from .patient_programs import answer_to, text_of

CASES = Path(__file__).parent / "cases"


def recorded(name: str) -> Case:
    return Case.from_json((CASES / f"{name}.json").read_text())


def changed(
    name: str,
    thread: Callable[[Thread], Thread] = lambda thread: thread,
    process: Callable[[Process], Process] = lambda process: process,
    lock: Callable[[FileLock], FileLock] = lambda lock: lock,
) -> Answer:
    """Change the facts of a recorded case, in both looks, and ask again."""

    def look(seen: Look) -> Look:
        processes = (
            process(replace(each, threads=tuple(map(thread, each.threads))))
            for each in seen.processes
        )
        locks = tuple(map(lock, seen.file_locks))
        return replace(seen, processes=tuple(processes), file_locks=locks)

    case = recorded(name)
    return answer_to(replace(case, looks=tuple(map(look, case.looks))))


def first(answer: Answer, rule: str) -> Finding:
    found = answer.findings[0]
    assert found.rule == rule, text_of(answer)
    return found


# An event loop.


@pytest.mark.parametrize("name", ["idle_event_loop", "idle_event_loop_in_a_thread"])
def test_an_event_loop_without_a_connection_does_not_wait_for_the_network(name: str) -> None:
    answer = answer_to(recorded(name))
    assert first(answer, "idle-event-loop").confidence is Confidence.LIKELY
    assert "network" not in text_of(answer)


def test_an_event_loop_that_watches_a_connection_waits_for_that() -> None:
    def connected(process: Process) -> Process:
        watched = {number for each in process.threads for number in each.watches}
        peer = "tcp 10.0.0.1:4000 -> 10.0.0.9:443"
        return replace(
            process,
            descriptors=tuple(
                replace(each, target=peer) if each.number in watched else each
                for each in process.descriptors
                if not each.target.startswith("pipe:")
            ),
        )

    answer = changed("idle_event_loop", process=connected)
    assert "10.0.0.9:443" in first(answer, "network-read").sentence


def test_a_connection_that_the_event_loop_does_not_watch_is_none_of_its_own() -> None:
    def connected(process: Process) -> Process:
        other = Descriptor(90, "tcp 10.0.0.1:4000 -> 10.0.0.9:443")
        return replace(process, descriptors=(*process.descriptors, other))

    first(changed("idle_event_loop", process=connected), "idle-event-loop")


def test_what_an_event_loop_watches_is_not_known_everywhere() -> None:
    answer = changed("idle_event_loop", lambda thread: replace(thread, watches=()))
    assert first(answer, "idle-event-loop").confidence is Confidence.POSSIBLE


def test_an_event_loop_that_only_wakes_up_for_timers_is_named_as_possible() -> None:
    def timed(thread: Thread) -> Thread:
        waits = "epoll" in thread.waits_in
        return replace(thread, call=(*thread.call[:4], 5000, 0, 0)) if waits else thread

    answer = changed("idle_event_loop", timed)
    assert first(answer, "idle-event-loop").confidence is Confidence.POSSIBLE


# A lock that is taken twice.


def test_a_lock_taken_twice_is_likely_where_the_source_says_so() -> None:
    found = first(answer_to(recorded("lock_taken_twice")), "deadlock-of-threads")
    assert found.confidence is Confidence.LIKELY
    assert "Twice.load" in found.sentence and "Twice.__getitem__" in found.sentence


def test_without_the_source_taken_twice_is_said_first_and_both_are_possible() -> None:
    answer = changed("lock_taken_twice", lambda thread: replace(thread, taken_at=()))
    rules = [(each.rule, each.confidence) for each in answer.findings]
    assert rules == [
        ("deadlock-of-threads", Confidence.POSSIBLE),
        ("lock-held-at-fork", Confidence.POSSIBLE),
    ], text_of(answer)


def test_the_thread_that_iterates_has_forked_and_held_nothing() -> None:
    answer = answer_to(recorded("lock_taken_twice_unseen"))
    assert first(answer, "deadlock-of-threads").confidence is Confidence.POSSIBLE
    assert {each.confidence for each in answer.findings} == {Confidence.POSSIBLE}


def test_a_lock_that_the_loop_held_is_not_said_to_be_another_thread_s() -> None:
    found = first(answer_to(recorded("lock_held_by_the_loop")), "lock-held-at-fork")
    assert "the loop itself had taken it, in train" in found.sentence
    assert "another thread" not in found.sentence


# Locks between processes.


def test_nobody_is_said_to_have_died_where_nobody_has() -> None:
    found = first(answer_to(recorded("semaphore_not_given_back")), "lock-of-the-dead")
    assert found.confidence is Confidence.POSSIBLE
    assert "taken and not given back" in found.sentence
    assert "was killed or ended" not in found.sentence


def test_a_worker_that_has_died_is_named() -> None:
    case = recorded("lock_of_the_dead")
    before, after = case.looks
    main = case.asked
    gone = Process(2, main, "pt_data_worker", state="S", started_at=1.0)
    early = replace(before, processes=(*before.processes, gone))
    found = first(answer_to(replace(case, looks=(early, after))), "lock-of-the-dead")
    assert found.confidence is Confidence.LIKELY and "was killed or ended" in found.sentence


def test_a_mutex_in_a_file_names_who_has_it() -> None:
    found = first(answer_to(recorded("lock_in_a_mapped_file")), "file-lock")
    assert found.confidence is Confidence.CERTAIN
    assert "/folder/store.lock" in found.sentence and "the main process" in found.sentence
    assert len(found.pids) == 2
    assert found.get_out[0].startswith("kill -INT")


def test_a_mutex_of_somebody_else_is_not_said_to_be_the_loop_s() -> None:
    def elsewhere(thread: Thread) -> Thread:
        words = thread.lock
        if not thread.lock_file or len(words) < 4:
            return thread
        return replace(thread, lock=(0x80000000 | 999_999, words[1], 999_999, words[3]))

    found = first(changed("lock_in_a_mapped_file", elsewhere), "file-lock")
    assert found.confidence is Confidence.LIKELY
    assert "thread 999999 has it, which is not of this program" in found.sentence


# Locks on files.


def test_all_workers_that_wait_for_a_database_are_named() -> None:
    def unseen(process: Process) -> Process:
        """See the C code in the first worker only, as on a machine that has no time."""
        if process.name != "pt_data_worker" or process.pid == lowest:
            return process
        threads = (
            replace(each, frames=tuple(f for f in each.frames if not f.native))
            for each in process.threads
        )
        return replace(process, threads=tuple(threads))

    case = recorded("file_lock_sqlite")
    workers = [each.pid for each in case.looks[-1].processes if each.name == "pt_data_worker"]
    lowest = min(workers)
    found = first(changed("file_lock_sqlite", process=unseen), "file-lock")
    assert sorted(found.pids) == sorted(workers)


def test_a_loop_that_has_the_lock_is_to_be_interrupted_whosever_its_loader_is() -> None:
    found = first(answer_to(recorded("file_lock_of_the_loop")), "file-lock")
    assert found.confidence is Confidence.CERTAIN
    assert [line.split()[1] for line in found.get_out] == ["-INT"]
    assert "inherited" not in found.sentence


def test_who_has_inherited_a_lock_is_named_and_to_be_ended() -> None:
    answer = answer_to(recorded("file_lock_inherited"))
    [lock] = [each for each in recorded("file_lock_inherited").looks[-1].file_locks if each.sharers]
    [sharer] = lock.sharers
    found = first(answer, "file-lock")
    assert f"process {sharer.pid} ('sleep') still has the file open" in found.sentence
    assert f"kill {sharer.pid}," in found.get_out[0]


def test_all_that_have_a_lock_are_to_be_ended() -> None:
    def held(lock: FileLock) -> FileLock:
        return replace(lock, holder=77, holder_name="flock")

    found = first(changed("file_lock_inherited", lock=held), "file-lock")
    [lock] = [each for each in recorded("file_lock_inherited").looks[-1].file_locks if each.sharers]
    assert f"kill 77 {lock.sharers[0].pid}," in found.get_out[0]


# Threads that do not answer.


def test_a_thread_that_the_main_process_has_not_is_not_said_to_have_been_there() -> None:
    found = first(answer_to(recorded("thread_of_a_worker_ended")), "threads-after-fork")
    assert "room in a queue" in found.sentence and "has ended" in found.sentence
    assert "was started in the main process, and" not in found.sentence


@pytest.mark.parametrize("name", ["threads_after_fork_pool", "threads_after_fork_polling"])
def test_a_thread_that_the_main_process_has_is_said_to_be_there(name: str) -> None:
    found = first(answer_to(recorded(name)), "threads-after-fork")
    assert found.confidence is Confidence.LIKELY
    assert "was started in the main process, and was not copied by fork" in found.sentence


@pytest.mark.parametrize("name", ["thread_gone", "thread_gone_in_a_worker"])
def test_who_waits_for_a_thread_that_is_gone_is_not_well(name: str) -> None:
    found = first(answer_to(recorded(name)), "thread-gone")
    assert found.confidence is Confidence.LIKELY
    assert "something to be put into a queue" in found.sentence


# A named pipe, and two loaders.


def test_the_path_of_a_pipe_that_is_being_opened_is_named() -> None:
    found = first(answer_to(recorded("pipe_without_writer")), "pipe-without-writer")
    assert "/folder/13.txt" in found.sentence and "/fd" not in " ".join(found.get_out)
    answer = changed("pipe_without_writer", lambda thread: replace(thread, opens=""))
    assert "a named pipe (FIFO)," in first(answer, "pipe-without-writer").sentence


def test_the_loop_is_said_to_wait_for_what_it_waits_for() -> None:
    answer = answer_to(recorded("two_causes_in_two_loaders"))
    pipe = first(answer, "pipe-without-writer")
    assert "for another loader than the one that the loop waits for now" in pipe.sentence
    unknown = changed("two_causes_in_two_loaders", lambda thread: replace(thread, watches=()))
    assert "the loop waits" not in first(unknown, "pipe-without-writer").sentence
    [one] = answer_to(recorded("pipe_without_writer")).findings
    assert one.sentence.endswith(", and the loop waits for it")
