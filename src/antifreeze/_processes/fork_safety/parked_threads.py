"""Whether a thread is parked: it waits in the standard library, and holds nothing that it shows.

A fork copies no thread but the caller's. A thread that runs may hold any lock; one that sleeps in
`Queue.get` or in an event loop holds none that its frames do not show. Read under the GIL: what has
moved meanwhile is found by comparing where the threads are (`threads_at_fork`).

1. The innermost frame is at a call that waits: a known line of the standard library, or such a call
   (`time.sleep`, `sock.recv`) that the program makes itself.
2. No other frame stands inside a block that may hold something (`open_blocks`). Functions of the
   standard library that wait for others are known not to.
3. What cannot be told counts as running. So does every thread where there is no GIL.
4. To look changes nothing: no code of the program's runs, and nothing is kept alive by it.
"""

from __future__ import annotations

import io
import sys
from pathlib import PurePath
from types import FrameType
from typing import Any

from ..._transport.own_frames import HERE
from .bytecode import Expression, Reading, reading_of
from .frame_names import name_of, standard_file, value_in
from .open_blocks import may_hold

# Where the standard library waits: file and function -> the calls in it that do.
_WAITS: dict[tuple[str, str], frozenset[str]] = {
    ("threading.py", "wait"): frozenset({"acquire"}),
    ("threading.py", "join"): frozenset({"acquire", "join"}),
    ("threading.py", "_wait_for_tstate_lock"): frozenset({"acquire"}),
    ("concurrent/futures/thread.py", "_worker"): frozenset({"get"}),
    ("selectors.py", "select"): frozenset({"poll", "select", "_select"}),
    ("socket.py", "accept"): frozenset({"_accept"}),
    ("socket.py", "readinto"): frozenset({"recv_into"}),
    ("ssl.py", "read"): frozenset({"read"}),
    ("multiprocessing/connection.py", "_recv"): frozenset({"read"}),
    ("multiprocessing/pool.py", "worker"): frozenset({"get"}),  # of a pool of threads
    ("multiprocessing/pool.py", "_handle_results"): frozenset({"get"}),
    ("subprocess.py", "_try_wait"): frozenset({"waitpid"}),
}
# Where it waits in a loop for the next item, of a queue.
_WAITING_LOOPS = frozenset({("multiprocessing/pool.py", "_handle_tasks")})
# Functions of the standard library inside which others wait, and which hold nothing meanwhile:
# what they entered is released for the wait, or is no lock.
_AROUND_WAITS: dict[str, frozenset[str]] = {
    "threading.py": frozenset(
        {"_bootstrap", "_bootstrap_inner", "run", "wait", "wait_for", "_wait", "join", "acquire"}
        | {"_wait_for_tstate_lock"}
    ),
    "queue.py": frozenset({"get", "put", "join"}),
    "concurrent/futures/thread.py": frozenset({"_worker"}),
    "concurrent/futures/process.py": frozenset({"run", "wait_result_broken_or_wakeup"}),
    "concurrent/futures/_base.py": frozenset({"result", "exception"}),
    "asyncio/base_events.py": frozenset({"run_forever", "run_until_complete", "_run_once"}),
    "asyncio/runners.py": frozenset({"run"}),
    "asyncio/events.py": frozenset({"_run"}),
    "selectors.py": frozenset({"select"}),
    "socketserver.py": frozenset({"serve_forever"}),
    "multiprocessing/connection.py": frozenset({"wait", "poll", "_poll", "recv_bytes", "recv"}),
    "logging/handlers.py": frozenset({"_monitor", "dequeue"}),
    # Its lock is one that all processes share: it is held by a process, not by a thread.
    "multiprocessing/queues.py": frozenset({"get"}),
    "multiprocessing/pool.py": frozenset(
        {"worker", "_handle_tasks", "_handle_results", "_handle_workers", "_wait_for_updates"}
    ),
    # A `Popen` that workers can reach has its lock found by the search.
    "subprocess.py": frozenset(
        {"wait", "_wait", "_try_wait", "communicate", "_communicate", "run", "call", "__exit__"}
    ),
}
# Ours and torch's loader wait in loops of other threads for workers of their own.
_LOADERS = (HERE, "/torch/utils/data/")
# Calls that wait, made by the program itself: builtins by their names, methods by their types.
_WAITING_FUNCTIONS = frozenset(
    {"time.sleep", "select.select", "posix.read", "_signal.sigwait", "_signal.pause"}
    | {"posix.waitpid", "posix.wait4", "posix.waitid", "posix.wait", "fcntl.flock", "fcntl.lockf"}
)
_READS = frozenset({"read", "read1", "readinto", "readline", "readlines"})
_WAITING_METHODS: dict[str, frozenset[str]] = {
    "_queue.SimpleQueue": frozenset({"get"}),
    "select.poll": frozenset({"poll"}),
    "select.epoll": frozenset({"poll"}),
    "socket.socket": frozenset(
        {"recv", "recvfrom", "recvmsg", "recv_into", "recvfrom_into", "recvmsg_into"}
    ),
    # While the interpreter's lock is with us they wait for data: the output of another program.
    "_io.BufferedReader": _READS,
    "_io.TextIOWrapper": _READS,
}
_WAITING_NAMES = frozenset(each.rpartition(".")[2] for each in _WAITING_FUNCTIONS).union(
    *_WAITING_METHODS.values()
)


def running(frame: FrameType) -> str:
    """Return where a thread runs, or what it may hold, by its innermost frame; nothing if it is
    parked. Call it with the GIL held by another thread."""
    if not has_gil():
        return f"it may run at any time, without a GIL; now {_place(frame)}"
    reading = reading_of(frame.f_code)
    if not _waits(frame, reading):
        return f"it runs {_place(frame)}"
    outer: FrameType | None = frame
    while outer is not None:
        if not _is_around_waits(outer) and (block := may_hold(outer)) is not None:
            return f"it is inside {block.words} {_place(outer)}"
        outer = outer.f_back
    return ""


def has_gil() -> bool:
    """Whether only one thread runs Python at a time, in this process."""
    asked = getattr(sys, "_is_gil_enabled", None)  # from Python 3.13 on
    return asked is None or bool(asked())


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{PurePath(code.co_filename).name}:{frame.f_lineno}, in {code.co_name}"


def _is_around_waits(frame: FrameType) -> bool:
    code = frame.f_code
    if code.co_filename.startswith(_LOADERS[0]) or _LOADERS[1] in code.co_filename:
        return True
    return code.co_name in _AROUND_WAITS.get(standard_file(code), ())


def _waits(frame: FrameType, reading: Reading) -> bool:
    """Whether the innermost frame of a thread is at a call that waits."""
    code = frame.f_code
    if reading.is_loop_at(frame.f_lasti):
        if (standard_file(code), code.co_name) in _WAITING_LOOPS:
            return True
        items = reading.items_at(frame.f_lasti)
        return items is not None and _is_read(value_in(frame, items))
    called = reading.callee_at(frame.f_lasti)
    if called is None:
        return False
    name = called.names[-1]
    known = _WAITS.get((standard_file(code), code.co_name))
    if known is not None:
        return name in known
    return _is_waiting_call(frame, called)


def _is_waiting_call(frame: FrameType, called: Expression) -> bool:
    *owner, name = called.names
    if owner and called.is_local and name not in _WAITING_NAMES:
        return False  # and nobody's locals need be read
    if name_of(value_in(frame, called)) in _WAITING_FUNCTIONS:
        return True
    if not owner or name not in _WAITING_NAMES:
        return False
    thing = value_in(frame, called._replace(names=tuple(owner)))
    if name not in _WAITING_METHODS.get(name_of(type(thing)), ()):
        return False
    return name not in _READS or _is_read(thing)


def _is_read(thing: Any) -> bool:
    """Whether this is a file that is read. Not standard input, which a worker closes: it would wait
    for whoever reads it."""
    if name_of(type(thing)) not in ("_io.BufferedReader", "_io.TextIOWrapper"):
        return False
    stdin = sys.stdin, sys.__stdin__
    return not any(thing is each or thing is _buffer_of(each) for each in stdin)


def _buffer_of(file: Any) -> Any:
    return file.buffer if type(file) is io.TextIOWrapper else None
