"""What is seen of a program is seen right, or said not to be known, and in bounded time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from antifreeze._linux import bounded_reads, syscalls
from antifreeze._linux.syscalls import Syscall
from antifreeze.doctor.attach.analyse.frames import in_init_fn, is_at_work
from antifreeze.doctor.attach.analyse.library_files import LOADER
from antifreeze.doctor.attach.analyse.threads_and_processes import programs
from antifreeze.doctor.attach.facts import Case, Frame, Look, Process, Thread
from antifreeze.doctor.attach.gather import machine, pipe_readers, proc, py_spy, time_since_run
from antifreeze.doctor.attach.gather.socket_peers import Sockets
from antifreeze.doctor.attach.gather.time_since_run import TimesSinceRun

from ..hostile.stage import dead_file_system, needs_root
from ..patience import PATIENCE_S

WAITS = "import sys; print(flush=True); sys.stdin.read()"


@contextmanager
def running(**options: object) -> Iterator[int]:
    """Run a Python process that waits for its input to end."""
    started = subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
    )
    started.stdout.readline()
    try:
        yield started.pid
    finally:
        started.communicate(timeout=PATIENCE_S)


def test_system_calls_have_the_numbers_of_one_processor_whatever_the_machine() -> None:
    asked = "{} 0x3 0x2 0x0 0x0 0x0 0x0 0x7ffc 0x7f00"
    seen = (Syscall.FLOCK, 3, 2, 0, 0, 0, 0)
    assert syscalls.parse(asked.format(73), "x86_64") == seen
    assert syscalls.parse(asked.format(32), "aarch64") == seen
    assert syscalls.parse(asked.format(73), "aarch64")[0] == Syscall.PPOLL
    assert syscalls.parse(asked.format(1), "aarch64") == ()  # io_destroy, which nobody waits in
    assert syscalls.parse(asked.format(73), "riscv64") == ()
    for each in ("x86_64", "aarch64"):
        assert syscalls.parse("running", each) == syscalls.parse("", each) == ()
        assert syscalls.parse("-1 0x7ffc 0x7f00", each) == ()


@pytest.mark.parametrize(
    ("processor", "header"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/aarch64-linux-gnu/include/asm-generic/unistd.h"),
        ("aarch64", "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_numbers_are_those_of_the_kernels_header(processor: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"no {header} here")
    named = re.findall(
        r"#define __NR(?:3264)?_(\w+) (\d+)$", Path(header).read_text(), re.MULTILINE
    )
    names = {number: name for name, number in named}
    for number, name in names.items():
        call = syscalls.parse(f"{number} 0 0 0 0 0 0 0 0", processor)
        known = call and call[0] in {*Syscall}
        if processor == "x86_64" and not known:
            continue
        wanted = KERNELS.get(name, name.upper())
        assert not call or Syscall(call[0]).name == wanted, (number, name)
    ours = [KERNELS.get(name, name.upper()) in Syscall.__members__ for name in names.values()]
    assert sum(ours) > 20


# What the kernel calls some of them.
KERNELS = {
    "pread64": "PREAD",
    "pwrite64": "PWRITE",
    "pselect6": "PSELECT",
    "restart_syscall": "RESTARTED",
}


def test_on_a_processor_that_is_not_known_system_calls_are_not_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proc.os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    done, ready = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (ready.set(), done.wait(20)))
    thread.start()
    ready.wait(20)
    try:
        seen = proc.process(os.getpid(), Sockets(os.getpid()))
    finally:
        done.set()
        thread.join()
    assert seen is not None
    assert all(not each.call and not each.lock for each in seen.threads)


def test_any_thread_that_waits_for_a_disk_lets_a_process_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for tid, state in ((7, "S"), (8, "D")):
        folder = tmp_path / "7" / "task" / str(tid)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{tid} (a) b) {state} 1 7")
        (folder / "wchan").write_text("futex_wait")
    (tmp_path / "7" / "stat").write_text("7 (a) b) S 1 7")
    monkeypatch.setattr(bounded_reads, "PROC", str(tmp_path))
    assert py_spy._rests(7)
    (tmp_path / "7" / "task" / "8" / "stat").write_text("8 (a) b) S 1 7")
    assert not py_spy._rests(7)
    (tmp_path / "7" / "task" / "8" / "wchan").write_text("anon_pipe_write")
    assert py_spy._rests(7)


def test_one_that_cannot_be_stopped_in_time_is_looked_at_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = '[{"os_thread_id": 5, "thread_name": "told", "frames": [], "owns_gil": false}]'
    spy = tmp_path / "py-spy"
    spy.write_text(
        f"#!/bin/sh\ncase \"$*\" in *--nonblocking*) echo '{said}';; *) exec sleep 20;; esac\n"
    )
    spy.chmod(0o755)
    monkeypatch.setattr(py_spy.PySpy, "find", staticmethod(lambda: str(spy)))
    with running() as pid:
        found = py_spy.PySpy(bound_s=1.0).take([pid])[pid]
    assert found.error == ""
    assert [each.name for each in found.threads] == ["told"]


@needs_root
def test_a_folder_that_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    with dead_file_system(tmp_path / "dead") as dead:
        gone = str(dead / "temporary")
        with running(env={**os.environ, "TMPDIR": gone}) as pid:
            began = time.monotonic()
            first = machine.machine(pid)
            assert machine.machine(pid).temporary == gone  # it is not asked again
            assert time.monotonic() - began < 5 * machine.FOLDERS_S
    assert (first.temporary, first.temporary_there, first.temporary_free) == (gone, True, -1)


def test_a_relative_folder_is_one_of_where_the_process_works(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    for name, there in (("inside", True), ("missing", False)):
        with running(env={**os.environ, "TMPDIR": name}, cwd=tmp_path) as pid:
            seen = machine.machine(pid)
        assert (seen.temporary, seen.temporary_there) == (name, there)
        assert (seen.temporary_free > 0) == there


def test_a_number_that_was_given_anew_is_another_process() -> None:
    main = Process(1, 0, "python", ("python", "train.py"), "S", 1.0, threads=(Thread(1),))
    old = Process(2, 1, "pt_data_worker", main.command, "S", 2.0, 5.0, (Thread(2, cpu_s=5.0),))
    new = replace(old, started_at=9.0, cpu_s=0.0, threads=(Thread(2, cpu_s=0.0),))
    program = programs(Case(1, (Look(10.0, (main, old)), Look(11.0, (main, new)))))[0]
    assert program.main.before is main
    assert program.workers[0].before is None
    assert program.workers[0].share == 0.0
    assert program.missing == (2,)
    kept = programs(Case(1, (Look(10.0, (main, old)), Look(11.0, (main, old)))))[0]
    assert kept.workers[0].before is old
    assert kept.missing == ()


def test_the_scheduler_says_since_when_a_thread_has_not_run() -> None:
    assert (
        time_since_run.ran_at("se.exec_start                  :       4458807.424372\nx : 1")
        > 4458807
    )
    assert time_since_run.ran_at("") == time_since_run.ran_at("se.vruntime : 3") == 0.0
    with running() as pid:
        if not time_since_run.ran_at(proc.read(pid, "sched")):
            pytest.skip("this kernel does not say")
        manner = TimesSinceRun()
        first = manner.seconds([pid])[pid, pid]
        time.sleep(1.0)
        second = manner.seconds([pid])[pid, pid]
        assert 0.9 < second - first < 1.0 + PATIENCE_S
        # To be stopped and let go, as py-spy does, wakes it: we remember that it was we.
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGCONT)
        manner.disturbed({(pid, pid)})
        assert manner.seconds([pid])[pid, pid] >= second
        assert TimesSinceRun().seconds([pid])[pid, pid] < second


def test_where_the_kernel_does_not_say_it_is_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bounded_reads, "PROC", str(tmp_path))
    assert TimesSinceRun().seconds([7]) == {}


def test_who_could_read_a_full_pipe_is_found_among_all_processes() -> None:
    with running() as pid:
        pipe = os.readlink(f"/proc/{pid}/fd/0")
        writes = Thread(1, state="S", call=(Syscall.WRITE, 5))
        who = proc.process(os.getpid(), Sockets(os.getpid()))
        assert who is not None
        number = next(each.number for each in who.descriptors if each.target == pipe)
        writer = replace(who, threads=(replace(writes, call=(Syscall.WRITE, number)),))
        found = pipe_readers.readers_of_pipes((writer,))
    assert [(each.pipe, each.pid) for each in found] == [(pipe, pid)]
    assert pipe_readers.readers_of_pipes((replace(who, threads=()),)) == ()


LOOP = Frame("_worker_loop", "torch/utils/data/_utils/worker.py", 300)
FETCH = Frame("_MapDatasetFetcher.fetch", "torch/utils/data/_utils/fetch.py", 50)
GET = Frame("Queue.get", "multiprocessing/queues.py", 113)
MINE = Frame("wait", "/home/jo/train.py", 3)


@pytest.mark.parametrize(
    ("frames", "works", "begins"),
    [
        ((GET, LOOP), False, False),
        ((MINE, FETCH, LOOP), True, False),
        ((GET, MINE, FETCH, LOOP), True, False),
        ((MINE, LOOP), True, True),
        ((GET, MINE, LOOP), True, True),  # not an order: what worker_init_fn waits for
        ((MINE,), True, False),
        ((Frame("_next_data", LOADER), MINE), False, False),
        ((MINE, FETCH, Frame("_next_data", LOADER), MINE), True, False),
        ((), False, False),
    ],
)
def test_a_worker_is_at_work_unless_it_asks_for_an_order(
    frames: tuple[Frame, ...], works: bool, begins: bool
) -> None:
    process = Process(1, 0, threads=(Thread(1, frames=frames),))
    assert is_at_work(process, asked=1) is works
    assert is_at_work(process, asked=2) is (works and frames != (MINE,))
    assert in_init_fn(frames) is begins
