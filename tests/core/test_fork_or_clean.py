"""Which process workers descend from: what speaks for each, and what is tried when it fails."""

from __future__ import annotations

import pytest

from antifreeze._core.fork_or_clean import (
    Choice,
    Program,
    Wish,
    WorkerOrigin,
    choose,
)
from antifreeze._core.limits import LIMITS, UNBOUNDED

THREADED = Program(threads=("writer",))
HUGE = Program(held_bytes=LIMITS.forking.huge_bytes)


def test_a_quiet_program_is_forked() -> None:
    choice = choose(Program(held_bytes=LIMITS.forking.huge_bytes - 1), Wish.NONE)
    assert choice == Choice(WorkerOrigin.MAIN)
    assert choice.is_plain and not choice.is_hazard


@pytest.mark.parametrize(
    ("program", "why", "bounds"),
    [
        (THREADED, "another thread runs here (writer)", LIMITS.sending.against_freezes),
        (
            Program(threads=("a", "b", "c", "d")),
            "4 other threads run here (a, b, c ...)",
            LIMITS.sending.against_freezes,
        ),
        (
            Program(threads=("polars-0", "writer", "polars-1", "grpc_global_tim", "a")),
            "5 other threads run here (2 of polars, 1 of gRPC, writer ...)",
            LIMITS.sending.against_freezes,
        ),
        (
            Program(threads=("writer",), running="it runs metrics.py:31, in publish"),
            "another thread runs here (writer: it runs metrics.py:31, in publish)",
            LIMITS.sending.against_freezes,
        ),
        (
            Program(held="dataset.lock is held"),
            "dataset.lock is held",
            LIMITS.sending.against_freezes,
        ),
        (HUGE, "this process holds 3.0 GiB", LIMITS.sending.against_slow_forks),
        (
            Program(threads=("a",), accelerator="cuda", held_bytes=LIMITS.forking.huge_bytes),
            "another thread runs here (a)",
            LIMITS.sending.against_freezes,
        ),
    ],
)
def test_what_speaks_against_a_fork(program: Program, why: str, bounds: object) -> None:
    choice = choose(program, Wish.NONE)
    assert choice.descent is WorkerOrigin.CLEAN_PROCESS
    assert choice.why == why
    assert choice.bounds is bounds
    assert choice.is_hazard == (bounds is LIMITS.sending.against_freezes)
    assert not choice.is_plain


@pytest.mark.parametrize(
    ("program", "beside"),
    [
        (Program(), ""),
        (Program(accelerator="cuda"), "a context of cuda"),
        (Program(parked=("writer",)), "1 parked thread (writer)"),
        (
            Program(parked=("a", "b", "c", "d"), accelerator="xpu"),
            "4 parked threads (a, b, c ...) and a context of xpu",
        ),
    ],
)
def test_a_context_and_parked_threads_do_not_speak_against_a_fork(
    program: Program, beside: str
) -> None:
    choice = choose(program, Wish.NONE)
    assert choice.descent is WorkerOrigin.MAIN and choice.is_plain
    assert choice.beside == beside


def test_forked_workers_that_cannot_live_with_what_they_inherited_turn_once() -> None:
    first = choose(Program(parked=("writer",)), Wish.NONE)
    turned = first.after_misfit("it waits for a lock")
    assert turned is not None and turned.descent is WorkerOrigin.CLEAN_PROCESS
    assert turned.why == "it waits for a lock" and turned.bounds is LIMITS.sending.to_save_the_run
    assert turned.after_misfit("again") is None
    forked = turned.after_refusal("dataset.rows is a socket")
    assert forked is not None and forked.descent is WorkerOrigin.MAIN
    assert forked.after_misfit("again") is None


def test_a_fork_that_was_asked_for_never_turns() -> None:
    for wish in (Wish.FORK, Wish.AS_TORCH):
        choice = choose(Program(parked=("writer",)), wish)
        assert choice.after_misfit("a lock") is None
        assert choice.at_fork("a lock") is None


def test_a_fork_that_is_not_safe_at_its_moment_can_still_be_sent_or_forked() -> None:
    choice = choose(Program(parked=("writer",)), Wish.NONE).at_fork("another thread runs here")
    assert choice is not None and choice.descent is WorkerOrigin.CLEAN_PROCESS and choice.is_hazard
    assert choice.after_refusal("a socket") is not None


def test_who_asks_for_a_clean_process_gets_nothing_else() -> None:
    choice = choose(Program(), Wish.CLEAN)
    assert choice.descent is WorkerOrigin.CLEAN_PROCESS and choice.bounds is UNBOUNDED
    assert choice.after_refusal("a socket") is None
    assert choice.after_silence() is None


@pytest.mark.parametrize("program", [THREADED, HUGE])
def test_what_cannot_be_sent_is_forked_after_all_and_that_is_the_end_of_it(
    program: Program,
) -> None:
    first = choose(program, Wish.NONE)
    choice = first.after_refusal("dataset.rows is a socket")
    assert choice is not None
    assert choice.descent is WorkerOrigin.MAIN
    assert (choice.why, choice.forked_though) == (first.why, "dataset.rows is a socket")
    assert choice.is_hazard == first.is_hazard and not choice.is_plain
    assert choice.after_refusal("again") is None
    assert choice.after_silence() is None


@pytest.mark.parametrize("program", [Program(), THREADED, HUGE])
def test_workers_that_never_get_going_are_made_the_other_way_once(program: Program) -> None:
    first = choose(program, Wish.NONE)
    choice = first.after_silence()
    assert choice is not None
    assert choice.descent is not first.descent
    assert choice.why
    assert choice.after_silence() is None


def test_a_fork_that_froze_is_sent_if_it_can_be_and_forked_again_if_not() -> None:
    turned = choose(Program(), Wish.NONE).after_silence()
    assert turned is not None and turned.bounds is LIMITS.sending.against_freezes
    back = turned.after_refusal("a socket")
    assert back is not None and back.descent is WorkerOrigin.MAIN


@pytest.mark.parametrize("program", [Program(), THREADED, HUGE])
def test_who_asks_for_a_fork_gets_one_whatever_runs_beside(program: Program) -> None:
    choice = choose(program, Wish.FORK)
    assert choice.descent is WorkerOrigin.MAIN
    assert choice.after_silence() is None
