"""A worker waits for a program that it has started, and that does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...._linux.syscalls import READS, Syscall
from ...findings import Confidence, Finding
from ..analyse.library_files import PROCESS
from ..analyse.threads_and_processes import IDLE_SHARE, Program, Role, WatchedProcess, WatchedThread
from ..analyse.torch_loader import waits_as_before
from ..analyse.waits import at_line, in_sample, loads_itself, loop_waits, polls, sleeps
from ..facts import HIDDEN, Process
from .base import LIKELY, POSSIBLE, Cause, kill_worker, names_of, plural

NAME = "child-program"
_LONG = 60  # letters of a command that are shown


@dataclass(frozen=True, slots=True)
class Waiting:
    """One process that waits for a program."""

    process: WatchedProcess
    thread: WatchedThread
    child: WatchedProcess


def find(program: Program) -> Iterator[Finding]:
    alike: dict[object, list[Waiting]] = {}
    for process in _asked(program):
        found = _waiting(program, process)
        if found is not None:
            key = (at_line(found.thread), _why(found))
            alike.setdefault(key, []).append(found)
    for group in alike.values():
        yield _finding(program, group)


def _waiting(program: Program, process: WatchedProcess) -> Waiting | None:
    thread = process.main
    if thread is None or not waits_as_before(thread):
        return None
    child = awaited(program, process, thread)
    if child is None or not _rests(program, child):
        return None
    found = Waiting(process, thread, child)
    if process is program.main and not loads_itself(program) and not _full_pipe(found):
        return None  # a script may wait for a program of its own as long as it likes
    return found


def _asked(program: Program) -> list[WatchedProcess]:
    if loop_waits(program):
        return [each for each in program.living if in_sample(program, each)]
    return [program.main]


def awaited(
    program: Program, process: WatchedProcess, thread: WatchedThread
) -> WatchedProcess | None:
    """Return the program that a thread waits for; None if it waits for none of its own."""
    if thread.calls("join", PROCESS):
        return None
    call = thread.now.call
    below = [each for each in program.others if each.now.parent == process.pid and not each.dead]
    children = [each for each in below if each.role is Role.CHILD]
    if call[:1] in ((Syscall.WAIT4,), (Syscall.WAITID,)):
        named = [each for each in children if each.pid in call[1:3]]
        return next(iter(named), children[0] if len(children) == 1 else None)
    inside = any(each.file == "subprocess.py" for each in thread.own_frames)
    if not inside and not _reads_from(thread, children):
        return None
    return children[-1] if children else None


def _reads_from(thread: WatchedThread, children: list[WatchedProcess]) -> bool:
    """Whether it reads a pipe which one of them writes to."""
    pipe, call = thread.descriptor(), thread.now.call
    return (
        pipe.startswith("pipe:")
        and call[0] in READS
        and any(each.target == pipe for child in children for each in child.now.descriptors)
    )


def _rests(program: Program, child: WatchedProcess) -> bool:
    """Whether a program, and all that it has started, has done nothing between the looks."""
    if child.before is None:
        return False
    if child.stopped:
        return True
    moved = child.now.read_bytes + child.now.written_bytes
    then = child.before.read_bytes + child.before.written_bytes
    if child.share >= IDLE_SHARE or moved != then:
        return False
    below = [each for each in program.others if each.now.parent == child.pid and not each.dead]
    return all(_rests(program, each) for each in below)


def _finding(program: Program, waiting: list[Waiting]) -> Finding:
    processes = [each.process for each in waiting]
    children = " ".join(str(each.child.pid) for each in waiting)
    first = waiting[0]
    why, sure = _why(first)
    main = first.process is program.main
    one = len(waiting) == 1
    command = f"`{_command(first.child.now)}` (pid {children.replace(' ', ', ')})"
    return Finding(
        NAME,
        sure,
        f"{names_of(processes)} {plural(processes, 'waits', 'wait')} for a program that"
        f" {plural(processes, 'it has', 'each has')} started, {command}, {at_line(first.thread)},"
        f" and {'that program' if one else 'each of them'} {why}"
        + ("" if main else "; the loop waits for the batch"),
        evidence=(
            f"{names_of(processes)}: no CPU, at the same line in both looks",
            f"the program: no CPU, nothing read or written in {program.seconds:.1f} s"
            + (f", in the kernel's {where}" if (where := _kernel(first.child)) else ""),
        ),
        get_out=(
            f"kill {children}    (it ends {'that program' if one else 'those programs'} alone: the"
            " sample fails or goes on as your code has it; no other work is lost)",
            f"kill -INT {first.process.pid}    (KeyboardInterrupt there: the script can save)"
            if main
            else kill_worker(processes),
        ),
        prevent=(
            "subprocess.run(..., timeout=...): a program that is stuck becomes an error",
            "read what a program writes while you wait: communicate() and run(capture_output=True)"
            " do, wait() does not; give it stdin=subprocess.DEVNULL",
        ),
        pids=tuple(pid for each in waiting for pid in (each.process.pid, each.child.pid)),
    )


def _why(waiting: Waiting) -> tuple[str, Confidence]:
    """Return what a program does that rests, and how sure it is that it does not come to an end."""
    child, thread = waiting.child, waiting.child.main
    if child.stopped:
        return "is stopped", LIKELY
    if _full_pipe(waiting):
        return "cannot write: the pipe of its output is full, and nobody reads it", LIKELY
    if thread is None:
        return "has done nothing between two looks", POSSIBLE
    if thread.now.call[:2] == (Syscall.READ, 0):
        return "waits for something on its standard input", LIKELY
    target = thread.descriptor()
    if target.startswith(("tcp", "udp")):
        return f"waits for the network ({target})", LIKELY
    if target.startswith(("pipe:", "/")):
        return f"waits to read or to write {target}", LIKELY
    if sleeps(thread):
        return "sleeps", POSSIBLE
    if polls(thread):
        return "waits for one of its files or connections", POSSIBLE
    return "has done nothing between two looks", POSSIBLE


def _full_pipe(waiting: Waiting) -> str:
    """Return the pipe that a program is in a write into, and its parent should read."""
    thread = waiting.child.main
    if thread is None or thread.now.call[:1] != (Syscall.WRITE,):
        return ""
    pipe = thread.descriptor()
    mine = {each.target for each in waiting.process.now.descriptors if each.flags & 3 == 0}
    return pipe if pipe.startswith("pipe:") and pipe in mine else ""


def _command(process: Process) -> str:
    shown = [each for each in process.command if HIDDEN not in each]
    words = " ".join(shown) or process.name
    # What may be secret is not shown: that there was something is enough.
    whole = len(shown) == len(process.command) and len(words) <= _LONG
    return words if whole else f"{words[:_LONG]} ..."


def _kernel(process: WatchedProcess) -> str:
    return process.main.now.waits_in if process.main is not None else ""


CAUSE = Cause(NAME, find, proven_by_time=True)
