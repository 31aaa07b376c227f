"""Somebody waits for a lock on a file or a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...._linux.syscalls import Syscall
from ...findings import Finding
from ..analyse.lock_waits import (
    alike,
    held_at_fork,
    in_file_lock_call,
    same_line,
    shared_owner,
    waits_without_limit,
)
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, loop_waits
from ..facts import FileLock, Sharer
from .base import CERTAIN, LIKELY, Cause, kill_worker, names_of, plural

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


Waiting = tuple[WatchedProcess, WatchedThread, FileLock | None]


def find(program: Program) -> Iterator[Finding]:
    groups: dict[str, list[Waiting]] = {}
    for process in (program.main, *program.living):
        for thread in process.threads:
            kind, path = _waits(thread)
            if kind:
                lock = (
                    _mutex(program, thread, path)
                    if kind == _MUTEX
                    else _lock(program, process, kind, path)
                )
                if _is_at_work(program, lock):
                    continue
                path = path or (lock.path if lock is not None else "")
                groups.setdefault(f"{kind} {path}", []).append((process, thread, lock))
    for name, waiting in groups.items():
        yield _finding(program, name, _with_alike(program, waiting))


def _with_alike(program: Program, waiting: list[Waiting]) -> list[Waiting]:
    """Add the workers that stand at the same lines: that it is sqlite is seen in one only."""
    known = [process for process, _, _ in waiting]
    _, first, lock = waiting[0]
    more = [
        (each, thread, lock)
        for each in alike(program, known)
        if each not in known
        for thread in each.threads
        if thread.frames == first.frames and same_line(thread) and thread.now.state == "S"
    ]
    return sorted([*waiting, *more], key=lambda each: each[0].number)


def _finding(program: Program, name: str, waiting: list[Waiting]) -> Finding:
    kind, _, path = name.partition(" ")
    processes = list({process.pid: process for process, _, _ in waiting}.values())
    _, first, lock = waiting[0]
    who = (
        names_of(processes)
        if program.main not in processes
        else " and ".join(a.label for a in processes)
    )
    holder = _holder(program, lock, first)
    ring = _in_a_ring(program, kind, lock, waiting)
    where_it_is = path or "a lock file (its name cannot be seen from outside)"
    return Finding(
        NAME,
        CERTAIN if ring else LIKELY,
        f"{who} {plural(processes, 'waits', 'wait')} for {_what(kind)} {where_it_is},"
        f" {at_line(first)}:"
        f" {holder}",
        evidence=(
            f"{who}: {_seen(kind)}",
            "the loop waits for their batch, and they for the loop: every other worker is idle"
            if ring
            else "at the same line in two looks, a second apart: look again with --watch, since a"
            " lock may be held for long and given back",
            *([_source(lock)] if lock else []),
        ),
        get_out=_get_out(program, lock, path, processes),
        prevent=(
            "hold locks on files for a moment only; one lock file a rank or worker, not one for"
            " all; give the wait a limit (FileLock(timeout=...), sqlite3.connect(timeout=...))",
            "open a database read-only in the workers: sqlite3.connect('file:x?mode=ro', uri=True)",
        ),
        pids=tuple(each.pid for each in processes),
    )


def _waits(thread: WatchedThread) -> tuple[str, str]:
    """Return how a thread waits for a lock on a file, and the file if its call names it."""
    call = thread.now.call
    if in_file_lock_call(call):
        target = next((d.target for d in thread.process.descriptors if d.number == call[1]), "")
        stayed = thread.stuck or (not thread.frames and thread.share == 0 and not thread.moved)
        return ("flock" if call[0] == Syscall.FLOCK else "fcntl", target) if stayed else ("", "")
    if shared_owner(thread) and waits_without_limit(thread):
        return _MUTEX, thread.now.lock_file.rpartition(" [")[0]
    if not same_line(thread) or thread.now.state != "S":
        return "", ""
    if thread.in_native("sqlite", "BusyCallback", "busyHandler") or _in_sqlite(thread):
        return "sqlite", ""
    at = thread.at
    # Python's own sleep has no line: the innermost one is the loop's.
    for place, library in _LOOPS.items():
        if at is not None and at.file.startswith(place):
            return library.replace(" ", "_"), ""
    return "", ""


def _in_sqlite(thread: WatchedThread) -> bool:
    return any("sqlite3" in each.file for each in thread.native)


def _lock(program: Program, process: WatchedProcess, kind: str, path: str) -> FileLock | None:
    """Return the lock that is in the way."""
    known = program.case.looks[-1].file_locks
    foreign = [each for each in known if each.holder != process.pid]
    open_here = {each.target for each in process.now.descriptors}
    for each in foreign:
        if process.pid in each.waiting or (path and each.path == path):
            return each
        if kind == "sqlite" and each.path in open_here and each.first >= _SQLITE:
            return each
        if kind not in ("flock", "fcntl", "sqlite") and each.path.endswith((".lock", ".lck")):
            return each
    return None


def _mutex(program: Program, thread: WatchedThread, path: str) -> FileLock:
    """Return a mutex in a file, which names the thread that has it."""
    tid = shared_owner(thread)
    has = next((a for a in _everyone(program) if any(s.now.tid == tid for s in a.threads)), None)
    return FileLock(_MUTEX, path, has.pid if has else tid, has.now.name if has else "")


def _everyone(program: Program) -> tuple[WatchedProcess, ...]:
    """Return all processes of the program, those of other ranks' main processes included."""
    return (*program.all, *(each for each in program.ranks if each is not program.main))


def _is_at_work(program: Program, lock: FileLock | None) -> bool:
    """Whether who has it is one of us and goes on: it will give it back."""
    holder = next((each for each in program.all if lock and each.pid == lock.holder), None)
    if holder is None or holder.main is None or holder is program.main or holder.stopped:
        return False
    return holder.main.moved and not same_line(holder.main)


def _in_a_ring(program: Program, kind: str, lock: FileLock | None, waiting: list[Waiting]) -> bool:
    """Whether the loop has the lock and waits for those who wait for it, without a limit, and that
    nobody else is at work."""
    if lock is None or lock.holder != program.main.pid or not loop_waits(program):
        return False
    processes = [process for process, _, _ in waiting]
    if not all(each in processes or program.idle(each) for each in program.living):
        return False
    if kind == _MUTEX:
        _, first, _ = waiting[0]
        return program.loop is not None and program.loop.now.tid == shared_owner(first)
    gives_back = any(each.own_line is not None for each in held_at_fork(program))
    return kind in ("flock", "fcntl") and not gives_back


def _holder(program: Program, lock: FileLock | None, thread: WatchedThread) -> str:
    if lock is None or lock.holder <= 0:
        return "who has it cannot be seen from here (another machine or container, or it is stale)"
    member = next((each for each in _everyone(program) if each.pid == lock.holder), None)
    if member is not None:
        waits = ", and waits for a batch" if member is program.main and loop_waits(program) else ""
        place = _place(member, shared_owner(thread))
        return f"{member.label} has it{place}{waits}{_too(program, lock)}"
    if lock.kind == _MUTEX:
        return f"thread {lock.holder} has it, which is not of this program, or has ended"
    if not lock.holder_name:
        rest = _names(lock.sharers) or "a child of it"
        return f"process {lock.holder} took it and has ended, but {rest} still has the file open"
    whose = f"process {lock.holder} ({lock.holder_name!r}), which is not of this program,"
    return f"{whose} has it{_too(program, lock)}"


def _place(process: WatchedProcess, tid: int) -> str:
    """Return where the thread is that has a lock; the main one, if it is not known which."""
    thread = next((each for each in process.threads if each.now.tid == tid), process.main)
    return f", {at_line(thread)}" if thread is not None and thread.frames else ""


def _names(sharers: Sequence[Sharer]) -> str:
    return " and ".join(f"process {each.pid} ({each.name!r})" for each in sharers[:4])


def _too(program: Program, lock: FileLock) -> str:
    """Name who has it as well, but the loop's own workers, which end with it: the lock belongs to
    the open file, which children inherit."""
    below = {each.pid for each in program.all} if lock.holder == program.main.pid else set()
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
    program: Program, lock: FileLock | None, path: str, processes: list[WatchedProcess]
) -> tuple[str, ...]:
    ours = " ".join(str(each.pid) for each in processes)
    found = []
    if lock is not None and lock.holder == program.main.pid and program.main not in processes:
        return (_end_the_loop(program, processes),)
    if lock is not None and lock.holder > 0:
        found.append(_end_holders(program, lock))
    else:
        found.append(
            f"fuser -v {path}    (who has it open? end that, and the wait goes on)"
            if path
            else "remove the lock file if nobody works with it any more: the wait then goes on"
        )
    found.append(f"kill -9 {ours}    (if nothing else helps: what is not saved is lost)")
    return tuple(found)


def _end_the_loop(program: Program, processes: list[WatchedProcess]) -> str:
    """Return how to get out where the loop has the lock: workers that are started anew would wait
    for it again."""
    if program.loop is not program.main.main:
        return kill_worker(processes)  # Ctrl-C comes to the main thread, and that is not the loop
    return (
        f"kill -INT {program.main.pid}    (KeyboardInterrupt where the loop waits: the script can"
        " give back the lock, and save; what it does not save is lost)"
    )


def _end_holders(program: Program, lock: FileLock) -> str:
    """Return whom to end: all that have the lock, but not the program itself."""
    mine = {each.pid for each in (program.main, *program.workers)}
    pids = [lock.holder] if lock.holder_name else []
    pids += [each.pid for each in lock.sharers if each.pid not in mine]
    if lock.kind == _MUTEX:
        return (
            f"ps -Lp {lock.holder}    (what is it? it has to give back the lock, by committing what"
            " it writes; if it is a leftover, end it: nothing is lost here)"
        )
    if not pids:
        return f"fuser -v {lock.path}    (who has it open? end that, and the wait goes on)"
    them = plural(pids, "what is it? if it is a leftover", "what are they? if they are leftovers")
    return (
        f"ps -fp {','.join(map(str, pids))}    ({them}: kill {' '.join(map(str, pids))}, and the"
        " wait goes on where it was: nothing is lost)"
    )


CAUSE = Cause(NAME, find, may_be_slow=True)
