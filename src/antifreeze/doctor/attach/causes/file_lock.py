"""Somebody waits for a lock on a file or a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...._linux.syscalls import Syscall
from ...findings import Finding
from ..analyse.lock_waits import (
    alike,
    for_ever,
    held_at_fork,
    in_file_lock_call,
    same_line,
    shared_owner,
)
from ..analyse.threads_and_processes import Actor, Scene, Strand
from ..analyse.waits import at_line, loop_waits
from ..facts import FileLock, Sharer
from .base import CERTAIN, LIKELY, Cause, are, kill_worker, people

NAME = "file-lock"
_MUTEX = "mutex"
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


Waiting = tuple[Actor, Strand, FileLock | None]


def find(scene: Scene) -> Iterator[Finding]:
    groups: dict[str, list[Waiting]] = {}
    for actor in (scene.main, *scene.living):
        for strand in actor.strands:
            kind, path = _waits(strand)
            if kind:
                lock = (
                    _mutex(scene, strand, path)
                    if kind == _MUTEX
                    else _lock(scene, actor, kind, path)
                )
                if _is_at_work(scene, lock):
                    continue
                path = path or (lock.path if lock is not None else "")
                groups.setdefault(f"{kind} {path}", []).append((actor, strand, lock))
    for name, waiting in groups.items():
        yield _finding(scene, name, _with_alike(scene, waiting))


def _with_alike(scene: Scene, waiting: list[Waiting]) -> list[Waiting]:
    """Add the workers that stand at the same lines: that it is sqlite is seen in one only."""
    known = [actor for actor, _, _ in waiting]
    _, first, lock = waiting[0]
    more = [
        (each, strand, lock)
        for each in alike(scene, known)
        if each not in known
        for strand in each.strands
        if strand.frames == first.frames and same_line(strand) and strand.thread.state == "S"
    ]
    return sorted([*waiting, *more], key=lambda each: each[0].number)


def _finding(scene: Scene, name: str, waiting: list[Waiting]) -> Finding:
    kind, _, path = name.partition(" ")
    actors = list({actor.pid: actor for actor, _, _ in waiting}.values())
    _, first, lock = waiting[0]
    who = people(actors) if scene.main not in actors else " and ".join(a.label for a in actors)
    holder = _holder(scene, lock, first)
    ring = _in_a_ring(scene, kind, lock, waiting)
    where_it_is = path or "a lock file (its name cannot be seen from outside)"
    return Finding(
        NAME,
        CERTAIN if ring else LIKELY,
        f"{who} {are(actors, 'waits', 'wait')} for {_what(kind)} {where_it_is}, {at_line(first)}:"
        f" {holder}",
        evidence=(
            f"{who}: {_seen(kind)}",
            "the loop waits for their batch, and they for the loop: every other worker is idle"
            if ring
            else "at the same line in two looks, a second apart: look again with --watch, since a"
            " lock may be held for long and given back",
            *([_source(lock)] if lock else []),
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
    if in_file_lock_call(call):
        target = next((d.target for d in strand.process.descriptors if d.number == call[1]), "")
        stayed = strand.stuck or (not strand.frames and strand.share == 0 and not strand.moved)
        return ("flock" if call[0] == Syscall.FLOCK else "fcntl", target) if stayed else ("", "")
    if shared_owner(strand) and for_ever(strand):
        return _MUTEX, strand.thread.lock_file.rpartition(" [")[0]
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


def _mutex(scene: Scene, strand: Strand, path: str) -> FileLock:
    """Give a mutex in a file, which names the thread that has it."""
    tid = shared_owner(strand)
    has = next((a for a in _everyone(scene) if any(s.thread.tid == tid for s in a.strands)), None)
    return FileLock(_MUTEX, path, has.pid if has else tid, has.process.name if has else "")


def _everyone(scene: Scene) -> tuple[Actor, ...]:
    """Give all processes of the program, those of other ranks' main processes included."""
    return (*scene.all, *(each for each in scene.ranks if each is not scene.main))


def _is_at_work(scene: Scene, lock: FileLock | None) -> bool:
    """Say that who has it is one of us and goes on: it will give it back."""
    holder = next((each for each in scene.all if lock and each.pid == lock.holder), None)
    if holder is None or holder.main is None or holder is scene.main or holder.stopped:
        return False
    return holder.main.moved and not same_line(holder.main)


def _in_a_ring(scene: Scene, kind: str, lock: FileLock | None, waiting: list[Waiting]) -> bool:
    """Say that the loop has the lock and waits for those who wait for it, without a limit, and that
    nobody else is at work."""
    if lock is None or lock.holder != scene.main.pid or not loop_waits(scene):
        return False
    actors = [actor for actor, _, _ in waiting]
    if not all(each in actors or scene.idle(each) for each in scene.living):
        return False
    if kind == _MUTEX:
        _, first, _ = waiting[0]
        return scene.loop is not None and scene.loop.thread.tid == shared_owner(first)
    gives_back = any(each.own_line is not None for each in held_at_fork(scene))
    return kind in ("flock", "fcntl") and not gives_back


def _holder(scene: Scene, lock: FileLock | None, strand: Strand) -> str:
    if lock is None or lock.holder <= 0:
        return "who has it cannot be seen from here (another machine or container, or it is stale)"
    member = next((each for each in _everyone(scene) if each.pid == lock.holder), None)
    if member is not None:
        waits = ", and waits for a batch" if member is scene.main and loop_waits(scene) else ""
        place = _place(member, shared_owner(strand))
        return f"{member.label} has it{place}{waits}{_too(scene, lock)}"
    if lock.kind == _MUTEX:
        return f"thread {lock.holder} has it, which is not of this program, or has ended"
    if not lock.holder_name:
        rest = _names(lock.sharers) or "a child of it"
        return f"process {lock.holder} took it and has ended, but {rest} still has the file open"
    whose = f"process {lock.holder} ({lock.holder_name!r}), which is not of this program,"
    return f"{whose} has it{_too(scene, lock)}"


def _place(actor: Actor, tid: int) -> str:
    """Say where the thread is that has a lock; the main one, if it is not known which."""
    strand = next((each for each in actor.strands if each.thread.tid == tid), actor.main)
    return f", {at_line(strand)}" if strand is not None and strand.frames else ""


def _names(sharers: Sequence[Sharer]) -> str:
    return " and ".join(f"process {each.pid} ({each.name!r})" for each in sharers[:4])


def _too(scene: Scene, lock: FileLock) -> str:
    """Name who has it as well, but the loop's own workers, which end with it: the lock belongs to
    the open file, which children inherit."""
    below = {each.pid for each in scene.all} if lock.holder == scene.main.pid else set()
    also = [each for each in lock.sharers if each.pid not in below]
    if not also:
        return ""
    have = "has" if len(also) == 1 else "have"
    return f", and so {have} {_names(also)}, which {have} inherited the open file"


def _source(lock: FileLock) -> str:
    if lock.kind == _MUTEX:
        return f"the lock itself names its owner: a thread of process {lock.holder}"
    return f"/proc/locks: {lock.kind} on {lock.path} held by {lock.holder}"


def _what(kind: str) -> str:
    match kind:
        case "mutex":
            return "a lock (a mutex that processes share) in"
        case "flock" | "fcntl":
            return "a lock on"
        case "sqlite":
            return "the database to be unlocked,"
        case _:
            return f"a lock of {kind.replace('_', ' ')}:"


def _seen(kind: str) -> str:
    match kind:
        case "mutex":
            return "asleep in a mutex in a mapped file, without a limit"
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
        return (_end_the_loop(scene, actors),)
    if lock is not None and lock.holder > 0:
        found.append(_end_holders(scene, lock))
    else:
        found.append(
            f"fuser -v {path}    (who has it open? end that, and the wait goes on)"
            if path
            else "remove the lock file if nobody works with it any more: the wait then goes on"
        )
    found.append(f"kill -9 {ours}    (if nothing else helps: what is not saved is lost)")
    return tuple(found)


def _end_the_loop(scene: Scene, actors: list[Actor]) -> str:
    """Say how to get out where the loop has the lock: workers that are started anew would wait for
    it again."""
    if scene.loop is not scene.main.main:
        return kill_worker(actors)  # Ctrl-C comes to the main thread, and that is not the loop
    return (
        f"kill -INT {scene.main.pid}    (KeyboardInterrupt where the loop waits: the script can"
        " give back the lock, and save; what it does not save is lost)"
    )


def _end_holders(scene: Scene, lock: FileLock) -> str:
    """Say whom to end: all that have the lock, but not the program itself."""
    mine = {each.pid for each in (scene.main, *scene.workers)}
    pids = [lock.holder] if lock.holder_name else []
    pids += [each.pid for each in lock.sharers if each.pid not in mine]
    if lock.kind == _MUTEX:
        return (
            f"ps -Lp {lock.holder}    (what is it? it has to give back the lock, by committing what"
            " it writes; if it is a leftover, end it: nothing is lost here)"
        )
    if not pids:
        return f"fuser -v {lock.path}    (who has it open? end that, and the wait goes on)"
    them = _if_one(pids, "what is it? if it is a leftover", "what are they? if they are leftovers")
    return (
        f"ps -fp {','.join(map(str, pids))}    ({them}: kill {' '.join(map(str, pids))}, and the"
        " wait goes on where it was: nothing is lost)"
    )


def _if_one(pids: list[int], one: str, several: str) -> str:
    return one if len(pids) == 1 else several


CAUSE = Cause(NAME, find, may_be_slow=True)
