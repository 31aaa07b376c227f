"""What a thread waits for, as its stack and its system call show it. Pure."""

from __future__ import annotations

from enum import Enum

from ...._linux.syscalls import Syscall
from ...._transport import own_frames
from ..facts import Frame
from .library_files import EXECUTOR, FORK_SERVER, FUTURE, PIN_MEMORY, QUEUES, SPAWN
from .threads_and_processes import IDLE_SHARE, Program, Role, WatchedProcess, WatchedThread

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


def wait_of(thread: WatchedThread) -> Wait | None:
    """Return what a thread waits for; None if it does not wait for another thread or process."""
    call, at = thread.now.call, thread.at
    if (call and call[0] != Syscall.FUTEX) or in_team(thread):
        return None
    if not call and "futex" not in thread.now.waits_in:
        return None
    if call and not call[2] & _PRIVATE:
        return Wait.SEMAPHORE
    if at is None:  # no stacks: a thread without any may be one of C, and idle
        return _by_call(thread) if thread.now.tid == thread.process.pid else None
    last = at.name.rpartition(".")[2]
    if thread.in_native("SimpleQueue") or at.file == EXECUTOR:
        return Wait.NOTICE
    if at.file == "threading.py" and last in ("join", "_wait_for_tstate_lock", "_shutdown"):
        return Wait.THREAD
    if at.file == "threading.py" and last == "wait":
        return Wait.RESULT if thread.calls("result", FUTURE) else Wait.NOTICE
    if at.name.endswith(_IMPORT) and at.file.startswith("<frozen importlib"):
        return Wait.IMPORT
    if not thread.native:
        return _by_call(thread)
    if thread.in_native(*_LOCKS):
        return Wait.LOCK
    return Wait.MUTEX if _is_mutex(thread) or thread.in_native(*_MUTEXES) else None


def in_file_lock_call(call: tuple[int, ...]) -> bool:
    """Whether a system call waits for a lock on a file."""
    if len(call) <= 3:
        return False
    return call[0] == Syscall.FLOCK or (call[0] == Syscall.FCNTL and call[2] in _FCNTL_WAITS)


def awaits_room(thread: WatchedThread) -> bool:
    """Whether it waits for room in a queue between processes: a count, and no lock."""
    at = thread.at
    full = at is not None and at.name == "Queue.put" and at.file == QUEUES
    return full and wait_of(thread) is Wait.SEMAPHORE


def waits_without_limit(thread: WatchedThread) -> bool:
    """Whether it sleeps without a limit, and has not woken up between the looks."""
    call = thread.now.call
    return thread.stuck and (len(call) < 5 or call[4] == 0)


def same_line(thread: WatchedThread) -> bool:
    """Whether it waits at the same line as before; it may have woken up to look."""
    then = thread.before
    if then is None or thread.share >= IDLE_SHARE or not thread.frames:
        return False
    return thread.at_same_lines


def address(thread: WatchedThread) -> int:
    """Return where the lock is that it sleeps on; 0 if that is not known."""
    call = thread.now.call
    return call[1] if len(call) > 1 and call[0] == Syscall.FUTEX else 0


def reentrant(thread: WatchedThread) -> bool:
    """Whether who waits for this lock cannot have it already: it could take it once more."""
    if wait_of(thread) is Wait.IMPORT or thread.in_native(*_REENTRANT) is not None:
        return True
    at = thread.at
    return at is not None and at.file in ("logging/__init__.py", "tqdm/std.py")


def owner(thread: WatchedThread) -> int:
    """Return the thread that has the mutex of C which this one waits for; 0 if it is not known."""
    words = thread.now.lock
    return words[2] if _is_mutex(thread) and len(words) > 2 and words[0] == _LOCKED else 0


def shared_owner(thread: WatchedThread) -> int:
    """Return the thread that has the mutex of C, in a file that processes share, which this one
    waits for (LMDB has such a one); 0 if it is no such mutex. One that survives the death of its
    owner has the number of it in its first word too."""
    words = thread.now.lock
    if wait_of(thread) is not Wait.SEMAPHORE or len(words) < 3 or not thread.now.lock_file:
        return 0
    survives = words[0] & _TID_MASK == words[2]
    return words[2] if words[2] and (survives or words[0] in (1, _LOCKED)) else 0


def _is_mutex(thread: WatchedThread) -> bool:
    call = thread.now.call
    in_libc = thread.now.library.startswith(("libc.", "libc-", "libpthread"))
    return len(call) > 3 and call[2:4] == (_WAIT, _LOCKED) and in_libc


def _by_call(thread: WatchedThread) -> Wait:
    """Return which kind of lock it may be where the code is not known: a mutex is told by how it
    sleeps."""
    return Wait.MUTEX if _is_mutex(thread) else Wait.LOCK


TEAMS = ("gomp", "iomp", "libomp", "openblas", "libblis", "libmkl", "libtbb")


def in_team(thread: WatchedThread) -> str:
    """Return the library of parallel loops in which a thread sleeps; nothing if it does not."""
    places = [thread.now.library, *(each.file for each in thread.native)]
    return next((each for each in places for team in TEAMS if team in each), "")


def is_service(thread: WatchedThread) -> bool:
    """Whether a thread belongs to Python or torch, and waits for something to do: it holds none of
    the program's locks."""
    if not thread.frames:
        return thread.now.state == "S" and thread.now.tid != thread.process.pid
    at = thread.frames[0]
    if thread.calls("_feed", QUEUES) and at.file == "threading.py":
        return True
    places = {each.file for each in thread.frames}
    if thread.own_line is None and any(each.startswith(own_frames.WORKER) for each in places):
        return thread.now.tid != thread.process.pid  # it watches, or sends
    if "multiprocessing/resource_sharer.py" in places or at.file == EXECUTOR:
        return True
    return PIN_MEMORY in places and thread.share < IDLE_SHARE


def others(process: WatchedProcess, *but: WatchedThread) -> list[WatchedThread]:
    """Return the threads of a process that may hold a lock of the program's."""
    return [each for each in process.threads if each not in but and not is_service(each)]


def held_at_fork(program: Program) -> list[WatchedThread]:
    """Return the threads of the main process that may have held a lock when workers were forked:
    all but the main one, and the one that iterates, since that is the one which forked."""
    forks = (program.main.main, program.loop)
    return [each for each in others(program.main) if each not in forks]


def acquired_before(thread: WatchedThread) -> tuple[Frame, ...]:
    """Return the lines of a thread that have taken the lock which it waits for, as its source says;
    none for one that can be taken twice."""
    if reentrant(thread):
        return ()
    return tuple(each for each in thread.now.taken_at if each in thread.own_frames)


def acquired_by_loop(thread: WatchedThread) -> tuple[Frame, ...]:
    """Return the lines of whoever forked this process that had taken the lock which it waits for:
    its stack still shows them."""
    forker = thread.frames[len(thread.own_frames) :]
    return tuple(each for each in thread.now.taken_at if each in forker)


_OF_QUEUES = {
    "put": "room in a queue (queue.Queue), which is full",
    "get": "something to be put into a queue (queue.Queue), which is empty",
}


def queue_awaited(thread: WatchedThread) -> str:
    """Return which end of a queue between threads it waits at; nothing if it waits at none."""
    for name, words in _OF_QUEUES.items():
        if thread.calls(name, "queue.py") and wait_of(thread) is Wait.NOTICE:
            return words
    if thread.in_native("SimpleQueue") and wait_of(thread) is Wait.NOTICE:
        return _OF_QUEUES["get"]
    return ""


def nobody_answers(process: WatchedProcess, thread: WatchedThread) -> bool:
    """Whether a thread waits for word from another one of its process, without a limit, and that
    there is none which could answer: all others are idle, or wait without a limit themselves."""
    if wait_of(thread) not in (Wait.NOTICE, Wait.RESULT) or not waits_without_limit(thread):
        return False
    return all(map(brings_nothing, others(process, thread)))


def brings_nothing(thread: WatchedThread) -> bool:
    """Whether a thread will not do anything for another one: it waits without a limit itself, or
    only looks at a progress bar now and then; or it is one of C, and does nothing."""
    if not thread.frames:
        return thread.share < IDLE_SHARE
    if any(each.file == "tqdm/_monitor.py" for each in thread.frames):
        return True
    return wait_of(thread) is not None and waits_without_limit(thread)


def alike(program: Program, processes: list[WatchedProcess]) -> list[WatchedProcess]:
    """Return these workers, and those whose threads are at the same lines: the C code below
    Python's is looked at in one of them only."""
    if not processes or processes[0] is program.main:
        return processes
    places = _places(processes[0])
    return [each for each in program.living if each in processes or _places(each) == places]


def _places(process: WatchedProcess) -> list[object]:
    return [each.frames for each in process.threads if each.frames]


def forked(program: Program, worker: WatchedProcess) -> bool:
    """Whether a worker is a copy of the main process, and was not started afresh."""
    if worker.role is not Role.WORKER:
        return False
    files = {each.file for thread in worker.threads for each in thread.frames}
    if files & {SPAWN, FORK_SERVER}:
        return False
    parent = next((each for each in program.all if each.pid == worker.now.parent), program.main)
    return worker.now.command == parent.now.command


def wants_interpreter(thread: WatchedThread) -> bool:
    """Whether a thread waits for the GIL: for a condition with a limit, and below it there is no
    code but Python's and libc's."""
    call = thread.now.call
    if thread.in_native("take_gil"):
        return True
    if (
        len(call) < 5
        or call[0] != Syscall.FUTEX
        or call[4] == 0
        or not thread.in_native("pthread_cond")
    ):
        return False
    libraries = [each.file for each in thread.native if ".so" in each.file]
    return all(each.startswith(("libc.", "libpython", "libpthread")) for each in libraries)
