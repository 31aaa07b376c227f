"""Somebody waits for a lock on a file or a database."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..calls import Call
from ..facts import FileLock
from ..locks import same_line
from ..scene import Actor, Scene, Strand
from ..waits import at_line
from .base import CERTAIN, LIKELY, Shape, are, kill_worker, people

NAME = "file-lock"
_WAITING = (7, 38)  # F_SETLKW, F_OFD_SETLKW: fcntl's ways to wait for a lock
_SQLITE = 1 << 30  # the byte from which on sqlite locks its files
# Where libraries look again and again whether a lock file has gone.
_LOOPS = {
    "filelock/": "filelock",
    "torch/utils/file_baton.py": "torch's build of an extension",
    "portalocker/": "portalocker",
    "fasteners/": "fasteners",
    "lockfile/": "lockfile",
    "zc/lockfile/": "zc.lockfile",
}


def find(scene: Scene) -> Iterator[Finding]:
    groups: dict[str, list[tuple[Actor, Strand, FileLock | None]]] = {}
    for actor in (scene.main, *scene.living):
        for strand in actor.strands:
            kind, path = _waits(strand)
            if kind:
                lock = _lock(scene, actor, kind, path)
                if _is_at_work(scene, lock):
                    continue
                path = path or (lock.path if lock is not None else "")
                groups.setdefault(f"{kind} {path}", []).append((actor, strand, lock))
    for name, waiting in groups.items():
        yield _finding(scene, name, waiting)


def _finding(
    scene: Scene, name: str, waiting: list[tuple[Actor, Strand, FileLock | None]]
) -> Finding:
    kind, _, path = name.partition(" ")
    actors = list({actor.pid: actor for actor, _, _ in waiting}.values())
    _, first, lock = waiting[0]
    who = people(actors) if scene.main not in actors else " and ".join(a.label for a in actors)
    holder = _holder(scene, lock, actors)
    where_it_is = path or "a lock file (its name cannot be seen from outside)"
    return Finding(
        NAME,
        CERTAIN if _in_a_ring(scene, kind, lock) else LIKELY,
        f"{who} {are(actors, 'waits', 'wait')} for {_what(kind)} {where_it_is}, {at_line(first)}:"
        f" {holder}",
        evidence=(
            f"{who}: {_seen(kind)}",
            "at the same line in two looks, a second apart: look again with --watch, since a lock"
            " may be held for long and given back",
            *([f"/proc/locks: {lock.kind} on {lock.path} held by {lock.holder}"] if lock else []),
        ),
        get_out=_get_out(scene, lock, path, actors),
        prevent=(
            "hold locks on files for a moment only; one lock file a rank or worker, not one for"
            " all; give the wait a limit (FileLock(timeout=...), sqlite3.connect(timeout=...))",
            "open a database read-only in the workers: sqlite3.connect('file:x?mode=ro', uri=True)",
        ),
        pids=tuple(each.pid for each in actors),
    )


def _waits(strand: Strand) -> tuple[str, str]:
    """Give how a thread waits for a lock on a file, and the file if its call names it."""
    call = strand.thread.call
    if len(call) > 3 and (call[0] == Call.FLOCK or (call[0] == Call.FCNTL and call[2] in _WAITING)):
        target = next((d.target for d in strand.process.descriptors if d.number == call[1]), "")
        stayed = strand.stuck or (not strand.frames and strand.share == 0 and not strand.moved)
        return ("flock" if call[0] == Call.FLOCK else "fcntl", target) if stayed else ("", "")
    if not same_line(strand) or strand.thread.state != "S":
        return "", ""
    if strand.in_native("sqlite", "BusyCallback", "busyHandler") or _in_sqlite(strand):
        return "sqlite", ""
    at = strand.at
    # Python's own sleep has no line: the innermost one is the loop's.
    for place, library in _LOOPS.items():
        if at is not None and at.file.startswith(place):
            return library.replace(" ", "_"), ""
    return "", ""


def _in_sqlite(strand: Strand) -> bool:
    return any("sqlite3" in each.file for each in strand.native)


def _lock(scene: Scene, actor: Actor, kind: str, path: str) -> FileLock | None:
    """Give the lock that is in the way."""
    known = scene.case.looks[-1].file_locks
    foreign = [each for each in known if each.holder != actor.pid]
    open_here = {each.target for each in actor.process.descriptors}
    for each in foreign:
        if actor.pid in each.waiting or (path and each.path == path):
            return each
        if kind == "sqlite" and each.path in open_here and each.first >= _SQLITE:
            return each
        if kind not in ("flock", "fcntl", "sqlite") and each.path.endswith((".lock", ".lck")):
            return each
    return None


def _is_at_work(scene: Scene, lock: FileLock | None) -> bool:
    """Say that who has it is one of us and goes on: it will give it back."""
    holder = next((each for each in scene.all if lock and each.pid == lock.holder), None)
    if holder is None or holder.main is None or holder is scene.main or holder.stopped:
        return False
    return holder.main.moved and not same_line(holder.main)


def _in_a_ring(scene: Scene, kind: str, lock: FileLock | None) -> bool:
    """Say that the loop has the lock and waits for those who wait for it, without a limit."""
    held = lock is not None and lock.holder == scene.main.pid and scene.waits_for_batch is not None
    return held and kind in ("flock", "fcntl")


def _holder(scene: Scene, lock: FileLock | None, actors: list[Actor]) -> str:
    if lock is None or lock.holder <= 0:
        return "who has it cannot be seen from here (another machine or container, or it is stale)"
    member = next((each for each in scene.all if each.pid == lock.holder), None)
    if member is not None:
        place = f", {at_line(member.main)}" if member.main and member.main.frames else ""
        return f"{member.label} has it{place}"
    if not lock.holder_name:
        return f"process {lock.holder} took it and has ended, but a child of it has the file open"
    return f"process {lock.holder} ({lock.holder_name!r}), which is not of this program, has it"


def _what(kind: str) -> str:
    match kind:
        case "flock" | "fcntl":
            return "a lock on"
        case "sqlite":
            return "the database to be unlocked,"
        case _:
            return f"a lock of {kind.replace('_', ' ')}:"


def _seen(kind: str) -> str:
    match kind:
        case "flock" | "fcntl":
            return f"asleep in the system call {kind}, which waits for a lock on a file"
        case "sqlite":
            return "sqlite sleeps and tries again"
        case _:
            return f"{kind.replace('_', ' ')} sleeps and looks again"


def _get_out(
    scene: Scene, lock: FileLock | None, path: str, actors: list[Actor]
) -> tuple[str, ...]:
    ours = " ".join(str(each.pid) for each in actors)
    found = []
    if lock is not None and lock.holder == scene.main.pid and scene.main not in actors:
        return (kill_worker(actors),)  # it is the program itself: to end it would lose everything
    if lock is not None and lock.holder > 0:
        found.append(
            f"ps -fp {lock.holder}    (what is it? if it is a leftover: kill {lock.holder}, and the"
            " wait goes on where it was: nothing is lost)"
        )
    else:
        found.append(
            f"fuser -v {path}    (who has it open? end that, and the wait goes on)"
            if path
            else "remove the lock file if nobody works with it any more: the wait then goes on"
        )
    found.append(f"kill -9 {ours}    (if nothing else helps: what is not saved is lost)")
    return tuple(found)


SHAPE = Shape(
    name=NAME,
    title="Somebody waits for a lock on a file or a database",
    what=(
        "A lock on a file (`flock`, `fcntl`), sqlite's own locks, and lock files of libraries"
        " (filelock of Hugging Face's hub and datasets, torch's build of extensions) are shared by"
        " all processes, and by other machines on a network's file system. Who waits for one says"
        " nothing; who has it may be another rank, a notebook that was left open, or a process that"
        " was killed and has left its lock file behind."
    ),
    tell=(
        "A thread is in the system call that waits for such a lock; or sqlite or a library of lock"
        " files sleeps and looks again, at the same line in two looks. The kernel's table"
        " (/proc/locks) names the file and who has it, if that is on this machine. That it waits is"
        " certain; whether for ever, only time tells."
    ),
    get_out=(
        "Find who has it (`ps -fp PID`, `fuser -v FILE`). If it is a leftover, end it: the wait"
        " goes on, and nothing is lost. A lock file that a killed process left behind can be"
        " removed."
    ),
    prevent=(
        "Hold such locks for a moment, give every wait a limit, use one lock a rank, and open"
        " databases read-only in workers."
    ),
    find=find,
)
