"""A signal handler that raises while one of our threads starts: its exception, and nothing else."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from antifreeze import DataLoader
from antifreeze._engine import main_process_monitor, worker_watchdog
from antifreeze._worker import deferred_work, thread_start

from ..other_limits import other_limits
from ..patience import PATIENCE_S

STARTS = "_start_joinable_thread" if sys.version_info >= (3, 13) else "_start_new_thread"
OURS = ("antifreeze-watchdog", "antifreeze-bystander", "antifreeze-errands", "antifreeze-pin")


class TooLate(RuntimeError):
    """What a handler raises. A RuntimeError, as the one of a machine that gives no thread."""


@pytest.fixture
def handled() -> Iterator[None]:
    def handle(number: int, frame: FrameType | None) -> None:
        raise TooLate

    before = signal.signal(signal.SIGUSR1, handle)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def signal_at_start(monkeypatch: pytest.MonkeyPatch, handled: None) -> Callable[[str], list[str]]:
    """Have a signal come when a thread of a name has started, before `Thread.start` is over."""
    start = getattr(threading, STARTS)

    def arm(name: str) -> list[str]:
        due = [name]

        def started(bootstrap: Any, *rest: Any, **named: Any) -> Any:
            result = start(bootstrap, *rest, **named)
            thread = bootstrap.__self__
            if thread.name in due:
                due.remove(thread.name)
                thread._started.wait(PATIENCE_S)
                while thread in threading._limbo:
                    threading.Event().wait(0.001)
                signal.raise_signal(signal.SIGUSR1)
            return result

        monkeypatch.setattr(threading, STARTS, started)
        return due

    return arm


def numbers(**named: Any) -> DataLoader[Any]:
    dataset: Any = list(range(16))
    return DataLoader(dataset, batch_size=4, **named)


def threads_left() -> list[str]:
    gc.collect()
    main_process_monitor.rest()
    deferred_work.rest()
    ours = [each for each in threading.enumerate() if each.name in OURS]
    for each in ours:
        each.join(10.0)
    return [each.name for each in threading.enumerate() if each.name in OURS]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["antifreeze-errands", "antifreeze-bystander"])
def test_the_exception_of_a_handler_comes_out_as_itself(
    name: str,
    workers: int,
    signal_at_start: Callable[[str], list[str]],
) -> None:
    assert threads_left() == []
    due = signal_at_start(name)
    loader = numbers(num_workers=workers)
    # Nobody waits for what is over.
    loader._limits = other_limits(starting={"thread_s": 10 * PATIENCE_S})
    if workers == 0 and name == "antifreeze-errands":
        assert len(list(loader)) == 4
        assert due == [name]
        return
    with pytest.raises(TooLate):
        list(loader)
    assert due == []
    assert threads_left() == []
    assert next(batch.tolist() for batch in loader) == [0, 1, 2, 3]


class StackFile:
    """Raise at the n-th line that the main thread runs in some files, once."""

    def __init__(self, at: int, *modules: Any) -> None:
        self.left, self.files = at, {module.__file__ for module in modules}
        self.hit = ""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        if event == "line" and not self.hit:
            self.left -= 1
            if self.left < 0:
                self.hit = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise TooLate
        return self


def test_whatever_line_of_a_start_is_interrupted_nothing_is_left_and_the_next_loop_works() -> None:
    hits = []
    for at in range(1000):
        assert threads_left() == [], hits[-1:]
        trace = StackFile(at, thread_start, deferred_work, worker_watchdog)
        loader = numbers(num_workers=2)
        loader._limits = other_limits(starting={"thread_s": 0.2})
        sys.settrace(trace)
        iterator = None
        try:
            iterator = iter(loader)
        except TooLate:
            pass
        finally:
            sys.settrace(None)
        assert (iterator is None) == bool(trace.hit), trace.hit
        if not trace.hit:
            break
        hits.append(trace.hit)
    else:
        raise AssertionError("it never came through")
    assert any(hit.startswith("thread_start.py") for hit in hits)
    assert any(hit.startswith("deferred_work.py") for hit in hits)
    assert any(hit.startswith("worker_watchdog.py") for hit in hits)
    assert next(batch.tolist() for batch in numbers(num_workers=2)) == [0, 1, 2, 3]


def test_where_the_machine_gives_no_thread_it_goes_on_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*arguments: Any, **named: Any) -> int:
        raise RuntimeError("can't start new thread")

    assert threads_left() == []
    monkeypatch.setattr(threading, STARTS, refuse)
    assert len(list(numbers(num_workers=2))) == 4


def test_signals_that_come_again_and_again_end_in_one_of_them(handled: None) -> None:
    for _ in range(20):
        ended = threading.Event()
        thread = threading.Thread(target=ended.wait, args=(PATIENCE_S,), daemon=True)
        pelt = threading.Thread(target=_pelt, args=(5,))
        try:
            pelt.start()
            thread_start.start(thread)
        except TooLate:
            pass
        while pelt.is_alive():
            with contextlib.suppress(TooLate):
                pelt.join(PATIENCE_S)
        ended.set()
        if thread.ident is not None:
            thread.join(PATIENCE_S)
        assert thread not in threading._limbo


def _pelt(count: int) -> None:
    for _ in range(count):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
