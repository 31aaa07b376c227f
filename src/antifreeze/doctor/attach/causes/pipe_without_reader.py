"""Somebody writes into a pipe that is full, most often its output, and nobody reads it."""

from __future__ import annotations

from collections.abc import Iterator

from ...._linux.syscalls import WRITES
from ...._transport import own_frames
from ...findings import Confidence, Finding
from ..analyse.threads_and_processes import IDLE_SHARE, Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, sent_nothing
from ..facts import PipeReader
from .base import LIKELY, POSSIBLE, Cause, interrupt_at_line, kill_worker, plural

NAME = "pipe-without-reader"
_STREAMS = {1: "its output (stdout)", 2: "its messages (stderr)"}
# How the processes of a program talk to each other: data for a new worker (popen_spawn_posix.py),
# queues, our own sockets. A reader that is late there is a cause of its own, and nobody else may
# read from such a pipe: what is taken out of it is missing in the worker.
_OWN_CHANNELS = ("multiprocessing/", own_frames.PACKAGE)


def find(program: Program) -> Iterator[Finding]:
    groups: dict[str, list[tuple[WatchedProcess, WatchedThread]]] = {}
    for process in (program.main, *program.living):
        for thread in process.threads:
            if writes_in_vain(thread):
                groups.setdefault(thread.descriptor(), []).append((process, thread))
    for pipe, writing in groups.items():
        yield _finding(program, pipe, writing)


def writes_in_vain(thread: WatchedThread) -> bool:
    """Whether a thread is in a write into a full pipe which is not one of multiprocessing's."""
    call = thread.now.call
    if not call or call[0] not in WRITES or not thread.stuck:
        return False
    if not thread.descriptor().startswith("pipe:"):
        return False
    if not thread.frames:
        return call[1] in _STREAMS
    return not any(frame.file.startswith(_OWN_CHANNELS) for frame in thread.own_frames)


def _finding(
    program: Program, pipe: str, writing: list[tuple[WatchedProcess, WatchedThread]]
) -> Finding:
    processes = list({process.pid: process for process, _ in writing}.values())
    _, first = writing[0]
    who = " and ".join(each.label for each in processes[:3])
    stream = _STREAMS.get(first.now.call[1], f"the pipe of its descriptor {first.now.call[1]}")
    ends = [each for each in program.case.looks[-1].pipe_readers if each.pipe == pipe]
    others = [each for each in ends if each.pid not in {a.pid for a in processes}] or ends
    running = [each for each in others if _runs(program, each)]
    main = program.main in processes
    thread = ""
    if main and first is not program.main.main:
        thread = f"thread {first.now.name!r} of "
    return Finding(
        NAME,
        POSSIBLE if running else _confidence(first, others),
        f"{thread}{who} {plural(processes, 'writes', 'write')} {stream} into a pipe that is full,"
        f" {at_line(first)}: {_reader(program, running or others, runs=bool(running))}",
        evidence=(
            *(
                f"{process.label}: no CPU, in the system call write, on {pipe}, in both looks"
                for process, _ in writing[:4]
            ),
            *(f"{pipe} is open to be read by {_person(each)}" for each in others[:4]),
        ),
        get_out=_get_out(program, processes, others, running),
        prevent=(
            "write to a file (python train.py > log.txt 2>&1) and look at that (tail -f, less +F):"
            " a pager, a stopped `tee` or a launcher that does not read holds up whoever prints",
            "if your code has made the pipe (subprocess.PIPE), have a thread read it all the time,"
            " or give subprocess.DEVNULL or a file instead: a pipe holds 64 kB",
        ),
        pids=tuple(each.pid for each in processes),
        harmless=bool(running),
    )


def _runs(program: Program, reader: PipeReader) -> bool:
    """Whether a reader was seen to do something else: it may come to the pipe later."""
    member = next((each for each in program.all if each.pid == reader.pid), None)
    if member is None:
        return reader.state == "R"
    return not member.dead and (member.share >= IDLE_SHARE or not sent_nothing(member))


def _confidence(thread: WatchedThread, readers: list[PipeReader]) -> Confidence:
    """It is seen that it writes, and into what; without stacks it may be anybody's pipe."""
    return LIKELY if thread.frames or readers else POSSIBLE


def _reader(program: Program, readers: list[PipeReader], *, runs: bool) -> str:
    if not readers:
        return (
            "who should read it cannot be seen from here (another user's process, or outside of"
            " this container), and does not"
        )
    members = {each.pid: each for each in program.all}
    words = []
    for each in readers[:3]:
        member = members.get(each.pid)
        place = ""
        if member is not None and member.main is not None and member.main.frames:
            place = f", {at_line(member.main)}"
        words.append(_person(each) + place)
    if runs:
        return f"{' and '.join(words)} has it open to read and runs: it is slow, and may come to it"
    return f"{' and '.join(words)} should read it, and {plural(readers, 'does', 'do')} not"


def _person(reader: PipeReader) -> str:
    doing = {"T": "stopped", "t": "stopped by a debugger", "Z": "dead"}.get(reader.state)
    if doing is None:
        doing = f"asleep in the kernel's {reader.waits_in}" if reader.waits_in else "running"
    return f"process {reader.pid} ({reader.name!r}, {doing})"


def _get_out(
    program: Program,
    processes: list[WatchedProcess],
    readers: list[PipeReader],
    running: list[PipeReader],
) -> tuple[str, ...]:
    """Return what to do. Never to read from the pipe: its data is for whoever has the other end."""
    if running:
        return (
            f"nothing is to be done while process {running[0].pid} runs: look again in a minute"
            f" (antifreeze attach {program.main.pid})",
        )
    stopped = [each for each in readers if each.state == "T"]
    strangers = [each for each in readers if each.pid not in {each.pid for each in program.all}]
    found = [
        f"kill -CONT {each.pid}    (it goes on and reads: nothing is lost)" for each in stopped
    ]
    if strangers and not stopped:
        found.append(
            f"have process {strangers[0].pid} ({strangers[0].name!r}) read on (a pager: press End):"
            " nothing is lost"
        )
    elif readers and not stopped:
        found.append(
            f"see why process {readers[0].pid} ({readers[0].name!r}) does not read: as soon as it"
            " does, the program goes on and nothing is lost"
        )
    if not readers:
        found.append(
            f"sudo antifreeze attach {program.main.pid}    (shows who has the other end, if it is"
            " on this machine; have that read on: nothing is lost)"
        )
    if program.main in processes:
        found.append(interrupt_at_line(program.main))
    else:
        found.append(kill_worker(processes))
    return tuple(found)


CAUSE = Cause(NAME, find, hides_wait_of_loop=True)
