"""Somebody reads a named pipe that nobody writes to."""

from __future__ import annotations

from collections.abc import Iterator

from ...._linux.syscalls import READS
from ...findings import Finding
from ..analyse.threads_and_processes import Actor, Scene, Strand
from ..analyse.waits import at_line, in_sample, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import CERTAIN, LIKELY, POSSIBLE, Cause, are, kill_worker, people
from .waits_for_a_person import asks as asks_a_person

NAME = "pipe-without-writer"
_OPENING = ("wait_for_partner", "fifo_open")
_ACCESS = 3  # the bits of a descriptor's flags that say how it was opened: 0 is to read only


def find(scene: Scene) -> Iterator[Finding]:
    waits = loop_waits(scene)
    asked = [each for each in scene.living if waits and (in_sample(scene, each) or not scene.seen)]
    if not waits:
        asked = [scene.main]
    stuck = [
        (a, s)
        for a in asked
        if (s := a.main) is not None and s.stuck and _reads(s) and asks_a_person(s) is None
    ]
    groups: dict[tuple[bool, str], list[tuple[Actor, Strand]]] = {}
    for actor, strand in stuck:
        opens = _opens(strand)
        groups.setdefault((not opens, strand.thread.opens if opens else ""), []).append(
            (actor, strand)
        )
    for _, some in sorted(groups.items()):
        yield _finding(scene, some)


def _finding(scene: Scene, stuck: list[tuple[Actor, Strand]]) -> Finding:
    actors = [actor for actor, _ in stuck]
    _, first = stuck[0]
    opening = _opens(first)
    path = first.thread.opens if opening else first.descriptor()
    writers = [] if opening else _writers(scene, first.descriptor(), actors)
    main = scene.main in actors
    pids = " ".join(str(each.pid) for each in actors)
    what = _what(first, path, writers)
    return Finding(
        NAME,
        CERTAIN if opening else POSSIBLE if writers else LIKELY,
        f"{people(actors)} {what if len(actors) == 1 else what.replace('waits', 'wait', 1)},"
        f" {at_line(first)}" + ("" if main else and_the_loop_waits(scene, actors)),
        evidence=tuple(
            f"{actor.label}: no CPU, in the kernel's {strand.thread.waits_in},"
            f" {strand.descriptor() or 'opening ' + (strand.thread.opens or 'it')}"
            for actor, strand in stuck[:4]
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
            else kill_worker(actors),
        ),
        prevent=(
            "a named pipe is no file: it can be read once, by one reader, while somebody writes."
            f" {are(actors, 'This sample', 'These samples')} should be a file; check with"
            " stat.S_ISFIFO when the list of files is made",
        ),
        pids=tuple(actor.pid for actor in actors),
    )


def _what(strand: Strand, path: str, writers: list[Actor]) -> str:
    if _opens(strand):
        return "waits until somebody opens the other end of " + (
            f"the named pipe (FIFO) {path}" if path else "a named pipe (FIFO)"
        )
    if writers:
        return (
            f"waits for something to come out of the named pipe {path}, which {writers[0].label}"
            " has open and does not write to"
        )
    return f"reads the named pipe {path}, and nobody of the program has it open to write"


def _writers(scene: Scene, path: str, readers: list[Actor]) -> list[Actor]:
    """Return the processes of the program, but its readers, that could write to a named pipe."""
    return [
        each
        for each in scene.all
        if each not in readers
        and not each.dead
        and any(d.target == path and d.flags & _ACCESS for d in each.process.descriptors)
    ]


def _opens(strand: Strand) -> bool:
    return any(each in strand.thread.waits_in for each in _OPENING)


def _reads(strand: Strand) -> bool:
    if _opens(strand):
        return True
    call = strand.thread.call
    if not call or call[0] not in READS or "pipe_read" not in strand.thread.waits_in:
        return False
    return strand.descriptor().startswith("/") and call[1] != 0


CAUSE = Cause(NAME, find)
