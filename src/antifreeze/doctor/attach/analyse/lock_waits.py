"""What a thread waits for, as its stack and its system call show it. Pure."""

from __future__ import annotations

from enum import Enum

from ...._linux.syscalls import Syscall
from ...._transport import own_frames
from ..facts import Frame
from .threads_and_processes import IDLE_SHARE, Actor, Role, Scene, Strand

_FCNTL_WAITS = (7, 38)  # F_SETLKW, F_OFD_SETLKW: its ways to wait for a lock
_PRIVATE = 128  # a flag of futex: the lock is for the threads of one process
_WAIT, _LOCKED = 128, 2  # how pthread_mutex_lock sleeps: the operation, and what it found
_TID_MASK = 0x3FFFFFFF  # FUTEX_TID_MASK: the rest says that others wait, or that the owner died
# C code that waits for a lock of threads; in it Python's own locks (the last: from 3.13 on).
_REENTRANT = ("rlock_acquire", "RecursiveMutex_Lock")
_LOCKS = ("PyThread_acquire_lock", "acquire_timed", "PyMutex_Lock", *_REENTRANT)
_MUTEXES = ("pthread_mutex_lock", "pthread_rwlock_", "std::mutex", "futex::Mutex", "RwLock")
_IMPORT = "_ModuleLock.acquire"


class Wait(Enum):
    """What somebody waits for."""

    LOCK = "a lock"
    IMPORT = "a module that another thread imports"
    MUTEX = "a lock of a library in C"
    NOTICE = "a notice from another thread"
    RESULT = "a result that another thread is to compute"
    THREAD = "a thread to end"
    SEMAPHORE = "a lock between processes"


HELD = (Wait.LOCK, Wait.IMPORT, Wait.MUTEX)  # somebody has it, and is to give it back


def wait_of(strand: Strand) -> Wait | None:
    """Say what a thread waits for; None if it does not wait for another thread or process."""
    call, at = strand.thread.call, strand.at
    if (call and call[0] != Syscall.FUTEX) or in_team(strand):
        return None
    if not call and "futex" not in strand.thread.waits_in:
        return None
    if call and not call[2] & _PRIVATE:
        return Wait.SEMAPHORE
    if at is None:  # no stacks: a thread without any may be one of C, and idle
        return _by_call(strand) if strand.thread.tid == strand.process.pid else None
    last = at.name.rpartition(".")[2]
    if strand.in_native("SimpleQueue") or at.file == "concurrent/futures/thread.py":
        return Wait.NOTICE
    if at.file == "threading.py" and last in ("join", "_wait_for_tstate_lock", "_shutdown"):
        return Wait.THREAD
    if at.file == "threading.py" and last == "wait":
        return Wait.RESULT if strand.calls("result", "concurrent/futures/_base.py") else Wait.NOTICE
    if at.name.endswith(_IMPORT) and at.file.startswith("<frozen importlib"):
        return Wait.IMPORT
    if not strand.native:
        return _by_call(strand)
    if strand.in_native(*_LOCKS):
        return Wait.LOCK
    return Wait.MUTEX if _is_mutex(strand) or strand.in_native(*_MUTEXES) else None


def in_file_lock_call(call: tuple[int, ...]) -> bool:
    """Whether a system call waits for a lock on a file."""
    if len(call) <= 3:
        return False
    return call[0] == Syscall.FLOCK or (call[0] == Syscall.FCNTL and call[2] in _FCNTL_WAITS)


def awaits_room(strand: Strand) -> bool:
    """Say that it waits for room in a queue between processes: a count, and no lock."""
    at = strand.at
    full = at is not None and at.name == "Queue.put" and at.file == "multiprocessing/queues.py"
    return full and wait_of(strand) is Wait.SEMAPHORE


def for_ever(strand: Strand) -> bool:
    """Say that it sleeps without a limit, and has not woken up between the looks."""
    call = strand.thread.call
    return strand.stuck and (len(call) < 5 or call[4] == 0)


def same_line(strand: Strand) -> bool:
    """Say that it waits at the same line as before; it may have woken up to look."""
    then = strand.before
    if then is None or strand.share >= IDLE_SHARE or not strand.frames:
        return False
    return tuple(each for each in then.frames if not each.native) == strand.frames


def address(strand: Strand) -> int:
    """Give where the lock is that it sleeps on; 0 if that is not known."""
    call = strand.thread.call
    return call[1] if len(call) > 1 and call[0] == Syscall.FUTEX else 0


def reentrant(strand: Strand) -> bool:
    """Say that who waits for this lock cannot have it already: it could take it once more."""
    if wait_of(strand) is Wait.IMPORT or strand.in_native(*_REENTRANT) is not None:
        return True
    at = strand.at
    return at is not None and at.file in ("logging/__init__.py", "tqdm/std.py")


def owner(strand: Strand) -> int:
    """Give the thread that has the mutex of C which this one waits for; 0 if it is not known."""
    words = strand.thread.lock
    return words[2] if _is_mutex(strand) and len(words) > 2 and words[0] == _LOCKED else 0


def shared_owner(strand: Strand) -> int:
    """Give the thread that has the mutex of C, in a file that processes share, which this one waits
    for (LMDB has such a one); 0 if it is no such mutex. One that survives the death of its owner
    has the number of it in its first word too."""
    words = strand.thread.lock
    if wait_of(strand) is not Wait.SEMAPHORE or len(words) < 3 or not strand.thread.lock_file:
        return 0
    survives = words[0] & _TID_MASK == words[2]
    return words[2] if words[2] and (survives or words[0] in (1, _LOCKED)) else 0


def _is_mutex(strand: Strand) -> bool:
    call = strand.thread.call
    in_libc = strand.thread.library.startswith(("libc.", "libc-", "libpthread"))
    return len(call) > 3 and call[2:4] == (_WAIT, _LOCKED) and in_libc


def _by_call(strand: Strand) -> Wait:
    """Say which kind of lock it may be where the code is not known: a mutex is told by how it
    sleeps."""
    return Wait.MUTEX if _is_mutex(strand) else Wait.LOCK


TEAMS = ("gomp", "iomp", "libomp", "openblas", "libblis", "libmkl", "libtbb")


def in_team(strand: Strand) -> str:
    """Give the library of parallel loops in which a thread sleeps; nothing if it does not."""
    places = [strand.thread.library, *(each.file for each in strand.native)]
    return next((each for each in places for team in TEAMS if team in each), "")


def is_service(strand: Strand) -> bool:
    """Say that a thread belongs to Python or torch, and waits for something to do: it holds none of
    the program's locks."""
    if not strand.frames:
        return strand.thread.state == "S" and strand.thread.tid != strand.process.pid
    at = strand.frames[0]
    if strand.calls("_feed", "multiprocessing/queues.py") and at.file == "threading.py":
        return True
    places = {each.file for each in strand.frames}
    if strand.own_line is None and any(each.startswith(own_frames.WORKER) for each in places):
        return strand.thread.tid != strand.process.pid  # it watches, or sends
    if "multiprocessing/resource_sharer.py" in places or at.file == "concurrent/futures/thread.py":
        return True
    return "torch/utils/data/_utils/pin_memory.py" in places and strand.share < IDLE_SHARE


def others(actor: Actor, *but: Strand) -> list[Strand]:
    """Give the threads of a process that may hold a lock of the program's."""
    return [each for each in actor.strands if each not in but and not is_service(each)]


def held_at_fork(scene: Scene) -> list[Strand]:
    """Give the threads of the main process that may have held a lock when workers were forked: all
    but the main one, and the one that iterates, since that is the one which forked."""
    forks = (scene.main.main, scene.loop)
    return [each for each in others(scene.main) if each not in forks]


def taken_before(strand: Strand) -> tuple[Frame, ...]:
    """Give the lines of a thread that have taken the lock which it waits for, as its source says;
    none for one that can be taken twice."""
    if reentrant(strand):
        return ()
    return tuple(each for each in strand.thread.taken_at if each in strand.own_frames)


def taken_by_loop(strand: Strand) -> tuple[Frame, ...]:
    """Give the lines of whoever forked this process that had taken the lock which it waits for: its
    stack still shows them."""
    forker = strand.frames[len(strand.own_frames) :]
    return tuple(each for each in strand.thread.taken_at if each in forker)


_OF_QUEUES = {
    "put": "room in a queue (queue.Queue), which is full",
    "get": "something to be put into a queue (queue.Queue), which is empty",
}


def queue_awaited(strand: Strand) -> str:
    """Say which end of a queue between threads it waits at; nothing if it waits at none."""
    for name, words in _OF_QUEUES.items():
        if strand.calls(name, "queue.py") and wait_of(strand) is Wait.NOTICE:
            return words
    if strand.in_native("SimpleQueue") and wait_of(strand) is Wait.NOTICE:
        return _OF_QUEUES["get"]
    return ""


def nobody_answers(actor: Actor, strand: Strand) -> bool:
    """Say that a thread waits for word from another one of its process, without a limit, and that
    there is none which could answer: all others are idle, or wait without a limit themselves."""
    if wait_of(strand) not in (Wait.NOTICE, Wait.RESULT) or not for_ever(strand):
        return False
    return all(map(brings_nothing, others(actor, strand)))


def brings_nothing(strand: Strand) -> bool:
    """Say that a thread will not do anything for another one: it waits without a limit itself, or
    only looks at a progress bar now and then; or it is one of C, and does nothing."""
    if not strand.frames:
        return strand.share < IDLE_SHARE
    if any(each.file == "tqdm/_monitor.py" for each in strand.frames):
        return True
    return wait_of(strand) is not None and for_ever(strand)


def alike(scene: Scene, actors: list[Actor]) -> list[Actor]:
    """Give these workers, and those whose threads are at the same lines: the C code below Python's
    is looked at in one of them only."""
    if not actors or actors[0] is scene.main:
        return actors
    places = _places(actors[0])
    return [each for each in scene.living if each in actors or _places(each) == places]


def _places(actor: Actor) -> list[object]:
    return [each.frames for each in actor.strands if each.frames]


def forked(scene: Scene, worker: Actor) -> bool:
    """Say whether a worker is a copy of the main process, and was not started afresh."""
    if worker.role is not Role.WORKER:
        return False
    files = {each.file for strand in worker.strands for each in strand.frames}
    if files & {"multiprocessing/spawn.py", "multiprocessing/forkserver.py"}:
        return False
    parent = next((each for each in scene.all if each.pid == worker.process.parent), scene.main)
    return worker.process.command == parent.process.command


def wants_interpreter(strand: Strand) -> bool:
    """Say that a thread waits for the GIL: for a condition with a limit, and below it there is no
    code but Python's and libc's."""
    call = strand.thread.call
    if strand.in_native("take_gil"):
        return True
    if (
        len(call) < 5
        or call[0] != Syscall.FUTEX
        or call[4] == 0
        or not strand.in_native("pthread_cond")
    ):
        return False
    libraries = [each.file for each in strand.native if ".so" in each.file]
    return all(each.startswith(("libc.", "libpython", "libpthread")) for each in libraries)
