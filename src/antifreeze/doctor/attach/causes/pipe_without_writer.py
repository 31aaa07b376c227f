"""Somebody reads a named pipe that nobody writes to."""

from __future__ import annotations

from collections.abc import Iterator

from ...._linux.syscalls import READS
from ...findings import Finding
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, in_sample, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import CERTAIN, LIKELY, POSSIBLE, Cause, kill_worker, names_of, plural
from .waits_for_a_person import asks as asks_a_person

NAME = "pipe-without-writer"
_OPENING = ("wait_for_partner", "fifo_open")
_ACCESS = 3  # the bits of a descriptor's flags that say how it was opened: 0 is to read only


def find(program: Program) -> Iterator[Finding]:
    waits = loop_waits(program)
    asked = [
        each for each in program.living if waits and (in_sample(program, each) or not program.seen)
    ]
    if not waits:
        asked = [program.main]
    stuck = [
        (a, s)
        for a in asked
        if (s := a.main) is not None and s.stuck and _reads(s) and asks_a_person(s) is None
    ]
    groups: dict[tuple[bool, str], list[tuple[WatchedProcess, WatchedThread]]] = {}
    for process, thread in stuck:
        opens = _opens(thread)
        groups.setdefault((not opens, thread.now.opens if opens else ""), []).append(
            (process, thread)
        )
    for _, some in sorted(groups.items()):
        yield _finding(program, some)


def _finding(program: Program, stuck: list[tuple[WatchedProcess, WatchedThread]]) -> Finding:
    processes = [process for process, _ in stuck]
    _, first = stuck[0]
    opening = _opens(first)
    path = first.now.opens if opening else first.descriptor()
    writers = [] if opening else _writers(program, first.descriptor(), processes)
    main = program.main in processes
    pids = " ".join(str(each.pid) for each in processes)
    what = _what(first, path, writers)
    return Finding(
        NAME,
        CERTAIN if opening else POSSIBLE if writers else LIKELY,
        f"{names_of(processes)}"
        f" {what if len(processes) == 1 else what.replace('waits', 'wait', 1)}, {at_line(first)}"
        + ("" if main else and_the_loop_waits(program, processes)),
        evidence=tuple(
            f"{process.label}: no CPU, in the kernel's {thread.now.waits_in},"
            f" {thread.descriptor() or 'opening ' + (thread.now.opens or 'it')}"
            for process, thread in stuck[:4]
        ),
        get_out=(
            f"see why {writers[0].label} does not write: as soon as it does, the wait ends and"
            " nothing is lost"
            if writers
            else f"see who should write to {path or 'it (the file of that line)'}, and start that:"
            " the wait then ends, and nothing is lost",
            f"kill -INT {pids}    (a KeyboardInterrupt at this line: what the script does not save"
            " then is lost)"
            if main
            else kill_worker(processes),
        ),
        prevent=(
            "a named pipe is no file: it can be read once, by one reader, while somebody writes."
            f" {plural(processes, 'This sample', 'These samples')} should be a file; check with"
            " stat.S_ISFIFO when the list of files is made",
        ),
        pids=tuple(process.pid for process in processes),
    )


def _what(thread: WatchedThread, path: str, writers: list[WatchedProcess]) -> str:
    if _opens(thread):
        return "waits until somebody opens the other end of " + (
            f"the named pipe (FIFO) {path}" if path else "a named pipe (FIFO)"
        )
    if writers:
        return (
            f"waits for something to come out of the named pipe {path}, which {writers[0].label}"
            " has open and does not write to"
        )
    return f"reads the named pipe {path}, and nobody of the program has it open to write"


def _writers(program: Program, path: str, readers: list[WatchedProcess]) -> list[WatchedProcess]:
    """Return the processes of the program, but its readers, that could write to a named pipe."""
    return [
        each
        for each in program.all
        if each not in readers
        and not each.dead
        and any(d.target == path and d.flags & _ACCESS for d in each.now.descriptors)
    ]


def _opens(thread: WatchedThread) -> bool:
    return any(each in thread.now.waits_in for each in _OPENING)


def _reads(thread: WatchedThread) -> bool:
    if _opens(thread):
        return True
    call = thread.now.call
    if not call or call[0] not in READS or "pipe_read" not in thread.now.waits_in:
        return False
    return thread.descriptor().startswith("/") and call[1] != 0


CAUSE = Cause(NAME, find)
