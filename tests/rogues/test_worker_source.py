"""Where workers come from, and why, is said: in the log once a program, and by the loader."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator

import pytest

from antifreeze import DataLoader
from antifreeze._core.fork_or_clean import Choice, Program, Wish, choose
from antifreeze._processes.starting import start_method, start_method_messages

from .clean import another_thread

HERE = f"forked from this process (pid {os.getpid()})"


@pytest.fixture
def logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> pytest.LogCaptureFixture:
    """What is logged of it, as in a program that begins."""
    monkeypatch.setattr(start_method, "_logged", set())
    caplog.set_level(logging.INFO, logger="antifreeze")
    return caplog


@pytest.fixture
def parked() -> Iterator[None]:
    """A thread that waits, and holds nothing."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="writer")
    thread.start()
    yield
    done.set()
    thread.join()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if line.startswith("antifreeze: workers ")]


def test_workers_that_are_forked_are_logged_once_a_program(
    logged: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        loader = DataLoader(range(4), num_workers=2)
        assert "workers:" not in repr(loader) and loader.snapshot().worker_source == ""
        list(loader)
        assert f"; workers: {HERE};" in repr(loader)
        assert loader.snapshot().worker_source == HERE
    assert told(logged) == ["antifreeze: workers are forked from this process."]


def test_what_they_are_forked_beside_is_logged_apart(
    logged: pytest.LogCaptureFixture, parked: None
) -> None:
    for _ in range(2):
        loader = DataLoader(range(4), num_workers=1)
        list(loader)
        assert f"workers: {HERE}, beside 1 parked thread (writer)" in repr(loader)
    assert told(logged) == [
        "antifreeze: workers are forked from this process, beside 1 parked thread (writer)."
    ]


def test_a_fork_that_was_asked_for_is_said_to_be(logged: pytest.LogCaptureFixture) -> None:
    loader = DataLoader([1, 2], num_workers=1, multiprocessing_context="fork")
    list(loader)
    because = ", because a fork was asked for"
    assert told(logged) == [f"antifreeze: workers are forked from this process{because}."]
    assert loader.snapshot().worker_source == HERE + because


def test_workers_of_a_clean_process_are_said_to_be_and_why(
    logged: pytest.LogCaptureFixture,
) -> None:
    loader = DataLoader([1, 2], num_workers=1)
    with another_thread():
        list(loader)
    assert loader.snapshot().worker_source.startswith(
        "from a clean process, because another thread runs here ("
    )
    assert [line.split(",")[0] for line in told(logged)] == [
        "antifreeze: workers start from a clean process"
    ]


def test_workers_that_torch_starts_by_another_method_are_said_to_be_started_so() -> None:
    loader = DataLoader([1], num_workers=1, multiprocessing_context="spawn", randomness="torch")
    loader._lineage()
    assert loader.snapshot().worker_source == "started one by one by multiprocessing (spawn)"


def test_a_forked_child_does_not_take_its_parents_source_for_its_own() -> None:
    kept = start_method.StartMethod(Wish.FORK)
    assert kept.source == f"{HERE}, because a fork was asked for"
    kept._process += 1
    assert kept.source == ""


def test_every_choice_is_said_in_words() -> None:
    waits = Program(parked=("a", "b", "c"), accelerator="cuda")
    beside = ", beside 3 parked threads (a, b, c) and a context of cuda"
    assert (
        start_method_messages.in_words(choose(waits, Wish.NONE))
        == f"forked from this process{beside}"
    )
    clean: Choice | None = choose(Program(threads=("reader",), running="reads"), Wish.NONE)
    assert clean is not None
    why = "another thread runs here (reader: reads)"
    assert start_method_messages.in_words(clean) == f"from a clean process, because {why}"
    forked = clean.after_refusal("a lambda")
    assert forked is not None
    assert start_method_messages.in_words(forked, 7) == (
        f"forked from this process (pid 7), although {why}: a lambda"
    )


def test_what_a_program_gets_depends_on_how_it_asks() -> None:
    usual = start_method_messages.of_programs(Wish.NONE)
    assert usual.startswith("a fork of the program, or of a clean process where another thread")
    assert start_method_messages.of_programs(Wish.AS_TORCH) == "a fork of the program, always"
    assert start_method_messages.of_programs(Wish.CLEAN) == "a clean process"
