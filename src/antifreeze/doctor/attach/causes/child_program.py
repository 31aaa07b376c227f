"""A worker waits for a program that it has started, and that does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...._linux.syscalls import READS, Syscall
from ...findings import Confidence, Finding
from ..analyse.threads_and_processes import IDLE_SHARE, Actor, Role, Scene, Strand
from ..analyse.torch_loader import waits_as_before
from ..analyse.waits import at_line, in_sample, loads_itself, loop_waits, polls, sleeps
from ..facts import HIDDEN, Process
from .base import LIKELY, POSSIBLE, Cause, are, kill_worker, people

NAME = "child-program"
_LONG = 60  # letters of a command that are shown


@dataclass(frozen=True, slots=True)
class Waiting:
    """One process that waits for a program."""

    actor: Actor
    strand: Strand
    child: Actor


def find(scene: Scene) -> Iterator[Finding]:
    alike: dict[object, list[Waiting]] = {}
    for actor in _asked(scene):
        found = _waiting(scene, actor)
        if found is not None:
            key = (at_line(found.strand), _why(found))
            alike.setdefault(key, []).append(found)
    for group in alike.values():
        yield _finding(scene, group)


def _waiting(scene: Scene, actor: Actor) -> Waiting | None:
    strand = actor.main
    if strand is None or not waits_as_before(strand):
        return None
    child = awaited(scene, actor, strand)
    if child is None or not _rests(scene, child):
        return None
    found = Waiting(actor, strand, child)
    if actor is scene.main and not loads_itself(scene) and not _full_pipe(found):
        return None  # a script may wait for a program of its own as long as it likes
    return found


def _asked(scene: Scene) -> list[Actor]:
    if loop_waits(scene):
        return [each for each in scene.living if in_sample(scene, each)]
    return [scene.main]


def awaited(scene: Scene, actor: Actor, strand: Strand) -> Actor | None:
    """Give the program that a thread waits for; None if it waits for none of its own."""
    if strand.calls("join", "multiprocessing/process.py"):
        return None
    call = strand.thread.call
    below = [each for each in scene.others if each.process.parent == actor.pid and not each.dead]
    children = [each for each in below if each.role is Role.CHILD]
    if call[:1] in ((Syscall.WAIT4,), (Syscall.WAITID,)):
        named = [each for each in children if each.pid in call[1:3]]
        return next(iter(named), children[0] if len(children) == 1 else None)
    inside = any(each.file == "subprocess.py" for each in strand.own_frames)
    if not inside and not _reads_from(strand, children):
        return None
    return children[-1] if children else None


def _reads_from(strand: Strand, children: list[Actor]) -> bool:
    """Say that it reads a pipe which one of them writes to."""
    pipe, call = strand.descriptor(), strand.thread.call
    return (
        pipe.startswith("pipe:")
        and call[0] in READS
        and any(each.target == pipe for child in children for each in child.process.descriptors)
    )


def _rests(scene: Scene, child: Actor) -> bool:
    """Say that a program, and all that it has started, has done nothing between the looks."""
    if child.before is None:
        return False
    if child.stopped:
        return True
    moved = child.process.read_bytes + child.process.written_bytes
    then = child.before.read_bytes + child.before.written_bytes
    if child.share >= IDLE_SHARE or moved != then:
        return False
    below = [each for each in scene.others if each.process.parent == child.pid and not each.dead]
    return all(_rests(scene, each) for each in below)


def _finding(scene: Scene, waiting: list[Waiting]) -> Finding:
    actors = [each.actor for each in waiting]
    children = " ".join(str(each.child.pid) for each in waiting)
    first = waiting[0]
    why, sure = _why(first)
    main = first.actor is scene.main
    one = len(waiting) == 1
    program = f"`{_command(first.child.process)}` (pid {children.replace(' ', ', ')})"
    return Finding(
        NAME,
        sure,
        f"{people(actors)} {are(actors, 'waits', 'wait')} for a program that"
        f" {are(actors, 'it has', 'each has')} started, {program}, {at_line(first.strand)}, and"
        f" {'that program' if one else 'each of them'} {why}"
        + ("" if main else "; the loop waits for the batch"),
        evidence=(
            f"{people(actors)}: no CPU, at the same line in both looks",
            f"the program: no CPU, nothing read or written in {scene.seconds:.1f} s"
            + (f", in the kernel's {where}" if (where := _kernel(first.child)) else ""),
        ),
        get_out=(
            f"kill {children}    (it ends {'that program' if one else 'those programs'} alone: the"
            " sample fails or goes on as your code has it; no other work is lost)",
            f"kill -INT {first.actor.pid}    (KeyboardInterrupt there: the script can save)"
            if main
            else kill_worker(actors),
        ),
        prevent=(
            "subprocess.run(..., timeout=...): a program that is stuck becomes an error",
            "read what a program writes while you wait: communicate() and run(capture_output=True)"
            " do, wait() does not; give it stdin=subprocess.DEVNULL",
        ),
        pids=tuple(pid for each in waiting for pid in (each.actor.pid, each.child.pid)),
    )


def _why(waiting: Waiting) -> tuple[str, Confidence]:
    """Say what a program does that rests, and how sure it is that it does not come to an end."""
    child, strand = waiting.child, waiting.child.main
    if child.stopped:
        return "is stopped", LIKELY
    if _full_pipe(waiting):
        return "cannot write: the pipe of its output is full, and nobody reads it", LIKELY
    if strand is None:
        return "has done nothing between two looks", POSSIBLE
    if strand.thread.call[:2] == (Syscall.READ, 0):
        return "waits for something on its standard input", LIKELY
    target = strand.descriptor()
    if target.startswith(("tcp", "udp")):
        return f"waits for the network ({target})", LIKELY
    if target.startswith(("pipe:", "/")):
        return f"waits to read or to write {target}", LIKELY
    if sleeps(strand):
        return "sleeps", POSSIBLE
    if polls(strand):
        return "waits for one of its files or connections", POSSIBLE
    return "has done nothing between two looks", POSSIBLE


def _full_pipe(waiting: Waiting) -> str:
    """Give the pipe that a program is in a write into, and its parent should read."""
    strand = waiting.child.main
    if strand is None or strand.thread.call[:1] != (Syscall.WRITE,):
        return ""
    pipe = strand.descriptor()
    mine = {each.target for each in waiting.actor.process.descriptors if each.flags & 3 == 0}
    return pipe if pipe.startswith("pipe:") and pipe in mine else ""


def _command(process: Process) -> str:
    shown = [each for each in process.command if HIDDEN not in each]
    words = " ".join(shown) or process.name
    # What may be secret is not shown: that there was something is enough.
    whole = len(shown) == len(process.command) and len(words) <= _LONG
    return words if whole else f"{words[:_LONG]} ..."


def _kernel(actor: Actor) -> str:
    return actor.main.thread.waits_in if actor.main is not None else ""


CAUSE = Cause(NAME, find, proven_by_time=True)
