"""Ctrl-C at awkward moments, and forks in the middle of everything."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import util
from multiprocessing.context import ForkContext
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from antifreeze import DataLoader
from antifreeze._processes.fork_safety import fork_hazards
from antifreeze._transport import descriptors

from ..other_limits import other_limits
from .parked import wait_until_parked
from .programs import all_gone, finish, line, program

STUBBORN = """
    class Stubborn(Numbers):
        def __getitem__(self, index):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if index > 1:
                time.sleep(100)
            return index
    iterator = iter(DataLoader(Stubborn(), num_workers=2))
    next(iterator)
    time.sleep(0.3)
    pids = [worker.pid for worker in iterator._workers]
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
"""


@pytest.mark.parametrize("leaving", ["del iterator", "iterator._shutdown_workers()"])
def test_an_interrupt_while_workers_are_being_ended_ends_them_and_is_not_lost(
    leaving: str, tmp_path: Path
) -> None:
    code = f"""
    {STUBBORN.strip()}
    try:
        {leaving}
        time.sleep(10)
        say("never interrupted")
    except KeyboardInterrupt:
        say("interrupted", *[pid for pid in pids if os.path.exists(f"/proc/{{pid}}")])
    """
    with program(tmp_path, code) as process:
        returned, out, err = finish(process)
    assert (returned, out, err) == (0, "interrupted\n", "")


def test_a_child_that_exits_leaves_the_parents_workers_alone(tmp_path: Path) -> None:
    code = """
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                info = torch.utils.data.get_worker_info()
                for number in range(info.id, 200, info.num_workers):
                    time.sleep(0.002)
                    yield number
        iterator = iter(DataLoader(Stream(), batch_size=None, num_workers=2))
        got = [next(iterator)]
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        got += list(iterator)
        assert sorted(got) == list(range(200))
        say("all")
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "all\n", "")


def test_a_child_and_its_parent_can_both_go_on(tmp_path: Path) -> None:
    code = """
        loader = DataLoader(Numbers(100), batch_size=10, num_workers=2, persistent_workers=True)
        iterator = iter(loader)
        next(iterator)
        child = os.fork()
        if child == 0:
            from antifreeze.errors import LoaderClosed
            try:
                next(iterator)
            except LoaderClosed:
                got = torch.cat(list(loader)).tolist()      # workers of its own
                os._exit(0 if got == list(range(100)) else 1)
            os._exit(2)
        rest = torch.cat(list(iterator)).tolist()
        assert rest == list(range(10, 100))
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "0\n", "")


def test_interrupts_while_workers_are_being_started_are_never_lost(tmp_path: Path) -> None:
    code = """
        import random
        dice = random.Random(5)
        caught = 0
        for _ in range(10):
            timer = threading.Timer(dice.uniform(0, 0.02), os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                for _ in range(200):
                    next(iter(DataLoader(Numbers(8), num_workers=2)))
            except KeyboardInterrupt:
                caught += 1
            timer.join()
        say(caught)
    """
    with program(tmp_path, code) as process:
        returned, out, err = finish(process)
    assert (returned, out) == (0, "10\n"), err


def test_ctrl_c_ends_a_program_with_one_traceback_and_nothing_left(tmp_path: Path) -> None:
    code = """
        iterator = iter(DataLoader(Numbers(nap_s=0.05), num_workers=2))
        next(iterator)
        say(*[worker.pid for worker in iterator._workers])
        for _ in iterator:
            pass
    """
    with program(tmp_path, code) as process:
        pids = [int(pid) for pid in line(process).split()]
        os.killpg(process.pid, signal.SIGINT)
        returned, _, err = finish(process)
        assert returned == -signal.SIGINT
        assert err.count("Traceback") == 1 and err.strip().endswith("KeyboardInterrupt")
        assert all_gone(pids)


@pytest.mark.parametrize("loaders", [1, 2])
def test_ctrl_c_while_the_clean_process_starts_says_nothing_of_workers(
    tmp_path: Path, loaders: int
) -> None:
    code = f"""
        if __name__ == "__main__":
            named = dict(num_workers=2, multiprocessing_context="spawn")
            loaders = [DataLoader(Numbers(), **named) for _ in range({loaders})]
            iterators = [iter(each) for each in loaders]
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            for each in iterators:
                next(each)
            time.sleep(60)
    """
    with program(tmp_path, code) as process:
        returned, _, err = finish(process)
    assert returned == -signal.SIGINT
    assert err.count("Traceback") == 1 and err.strip().endswith("KeyboardInterrupt")


class Own(ForkContext):
    """A context of the program's own."""


def lost_if_interrupted() -> Callable[[FrameType, str, Any], None]:
    """Return a profiler that keeps, in its list `places`, where the interpreter itself calls Python
    code for a process object that is collected: what is raised in there is printed and dropped."""
    here = threading.get_ident()
    places: list[str] = []

    def look(frame: FrameType, event: str, arg: Any) -> None:
        if event != "call" or threading.get_ident() != here:
            return
        seen = frame.f_locals
        ends = frame.f_code is util.Finalize.__call__.__code__ and seen.get("wr") is not None
        dangles = frame.f_code.co_name == "_remove" and "selfref" in seen
        dangles = dangles and seen["selfref"]() is multiprocessing.process._dangling
        if (ends or dangles) and signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, []):
            where = traceback.extract_stack(frame)[-3:-1]
            places.append(" < ".join(f"{each.filename}:{each.lineno}" for each in where))

    look.places = places
    return look


KINDS = ("left", "whole", "stays", "killed", "given up")
USUAL = {*((None, kind) for kind in KINDS), ("spawn", "left"), ("spawn", "killed"), (Own, "left")}


@pytest.mark.parametrize(
    ("context", "kind"),
    [
        pytest.param(
            context() if context is Own else context,
            kind,
            marks=() if (context, kind) in USUAL else pytest.mark.thorough,
        )
        for context in (None, "spawn", Own)
        for kind in KINDS
    ],
)
def test_process_objects_are_let_go_of_where_an_interrupt_is_not_lost(
    kind: str, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "given up":  # at the very moment of the fork
        monkeypatch.setattr(fork_hazards, "unsafe_now", lambda reached: "a thread runs")

    def run() -> None:
        dataset: Any = list(range(16))
        loader: DataLoader[Any] = DataLoader(
            dataset,
            2,
            num_workers=2,
            multiprocessing_context=context,
            persistent_workers=kind == "stays",
        )
        if kind == "given up":
            loader._limits = other_limits(forking={"looks": 1})
        iterator: Any = iter(loader)
        next(iterator)
        if kind == "killed":
            iterator._workers[0].kill()
        if kind != "left":
            list(iterator)
        if kind == "stays":
            list(loader)

    idle = threading.Event()
    thread = threading.Thread(target=idle.wait)
    thread.start()
    look = lost_if_interrupted()
    try:
        wait_until_parked(thread)
        run()
        sys.setprofile(look)
        for _ in range(3):
            run()
    finally:
        sys.setprofile(None)
        idle.set()
        thread.join()
    assert look.places == []


class Kept:
    def close(self) -> None:
        raise AssertionError("nobody forks here")


def test_what_is_kept_from_children_is_collected_without_a_call_into_python() -> None:
    """An interrupt that came in such a call would be lost."""
    calls: list[str] = []
    kept = Kept()
    descriptors.keep_from_children(kept)
    sys.setprofile(lambda frame, event, arg: event == "call" and calls.append(str(frame.f_code)))
    del kept
    sys.setprofile(None)
    assert calls == []


def test_what_is_gone_and_was_kept_from_children_is_forgotten() -> None:
    before = len(descriptors._of_this_process)
    for _ in range(10 * descriptors._ROOM + 10 * before):
        descriptors.keep_from_children(Kept())
    assert len(descriptors._of_this_process) <= 2 * before + 3 * descriptors._ROOM
