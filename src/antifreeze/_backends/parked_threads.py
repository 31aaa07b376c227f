"""Whether a thread is parked: it waits in the standard library, and holds nothing that it shows.

A fork copies no thread but the caller's. A thread that runs may hold any lock; one that sleeps in
`Queue.get` or in an event loop holds none that its frames do not show. Read under the GIL, so that
nothing moves meanwhile:

1. The innermost frame is at a call that waits: a known line of the standard library, or such a call
   (`time.sleep`, `sock.recv`) that the program makes itself.
2. No other frame stands inside a `with` that may hold something, or a `try` whose `finally` may
   release something. Functions of the standard library that wait for others are known not to.
3. What cannot be told counts as running. (A lock that was taken by `acquire()`: `held_locks`.)
"""

from __future__ import annotations

import dis
import functools
import os
import re
import threading
from collections.abc import Iterator
from pathlib import PurePath
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

_STANDARD = os.path.dirname(os.__file__) + os.sep
_PACKAGES = _STANDARD + "site-packages" + os.sep

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
}
# Functions of the standard library inside which others wait, and which hold nothing meanwhile:
# what they entered is released for the wait, or is no lock.
_AROUND_WAITS: dict[str, frozenset[str]] = {
    "threading.py": frozenset(
        {"_bootstrap", "_bootstrap_inner", "run", "wait", "wait_for", "_wait", "join", "acquire"}
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
}
# Calls that wait, made by the program itself: builtins by their names, methods by their types.
_WAITING_FUNCTIONS = frozenset(
    {"time.sleep", "select.select", "posix.read", "_signal.sigwait", "_signal.pause"}
)
_WAITING_METHODS: dict[str, frozenset[str]] = {
    "_queue.SimpleQueue": frozenset({"get"}),
    "select.poll": frozenset({"poll"}),
    "select.epoll": frozenset({"poll"}),
    "socket.socket": frozenset(
        {"recv", "recvfrom", "recvmsg", "recv_into", "recvfrom_into", "recvmsg_into"}
    ),
}
# What a `with` may enter without holding anything that a worker could need: what it calls for that,
# and the types of what it is given.
_HARMLESS_CONTEXTS = frozenset(
    {
        "_io.open",
        "io.open",
        "asyncio.runners.Runner",
        "concurrent.futures.process.ProcessPoolExecutor",
        "concurrent.futures.thread.ThreadPoolExecutor",
        "contextlib.closing",
        "contextlib.nullcontext",
        "contextlib.redirect_stderr",
        "contextlib.redirect_stdout",
        "contextlib.suppress",
        "socket.create_connection",
        "socket.socket",
        "tempfile.TemporaryDirectory",
        "torch.autograd.grad_mode.enable_grad",
        "torch.autograd.grad_mode.inference_mode",
        "torch.autograd.grad_mode.no_grad",
        "warnings.catch_warnings",
    }
)
# What a `finally` may call without releasing a lock by it.
_HARMLESS_AT_LAST = frozenset(
    {"append", "clear", "discard", "monotonic", "perf_counter", "pop", "put", "remove", "set"}
    | {"task_done", "time"}
)
_LOADS = ("LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
# Instructions between what is called and the call, or between a context and entering it.
_BETWEEN = frozenset(
    {"CACHE", "EXTENDED_ARG", "KW_NAMES", "LOAD_CONST", "NOP", "PRECALL", "PUSH_NULL"}
)
_ENTERS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL", "COPY", "SWAP"})
_OWNER = re.compile(r"owner\W(\d+)")
_LOCK = type(threading.Lock())
_RLOCK = type(threading.RLock())


class _Step(NamedTuple):
    """One instruction, as far as it is looked at."""

    offset: int
    name: str
    argument: Any
    begins: tuple[int | None, int | None]  # line and column, of what it stands for in the source
    ends: tuple[int | None, int | None]


Chain = tuple[str, ...]  # `self._queue.get`, step by step


def running(frame: FrameType) -> str:
    """Return where a thread runs, or what it may hold, by its innermost frame; nothing if it is
    parked. Call it with the GIL held by another thread."""
    if not _waits(frame):
        return f"it runs {_place(frame)}"
    outer: FrameType | None = frame
    while outer is not None:
        if not _is_around_waits(outer.f_code) and (why := _may_hold(outer)):
            return why
        outer = outer.f_back
    return ""


def is_held(lock: Any) -> bool:
    """Whether somebody holds a lock of the standard library, and not the calling thread again."""
    if isinstance(lock, threading.Condition):
        lock = vars(lock).get("_lock")
    if isinstance(lock, threading.Semaphore):  # one without a bound may begin with nothing
        free = vars(lock).get("_value", 1) or not vars(lock).get("_initial_value")
        return not free or is_held(vars(lock).get("_cond"))
    if type(lock) is _LOCK:
        return bool(lock.locked())
    if type(lock) is _RLOCK:
        told = repr(lock)  # it has no method for that before Python 3.14
        owner = _OWNER.search(told)
        mine = owner is not None and int(owner[1]) == threading.get_ident()
        return told.startswith("<locked") and not mine
    return False


def owner_of(lock: Any) -> str:
    """Return the name of the thread that holds a lock, if the lock knows."""
    if isinstance(lock, threading.Condition):
        lock = vars(lock).get("_lock")
    found = _OWNER.search(repr(lock)) if type(lock) is _RLOCK else None
    if found is None:
        return ""
    return next((t.name for t in threading.enumerate() if t.ident == int(found[1])), "")


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{PurePath(code.co_filename).name}:{frame.f_lineno}, in {code.co_name}"


def _standard_file(code: CodeType) -> str:
    """Return the path of a file of the standard library, from its folder on; else nothing."""
    file = code.co_filename
    if not file.startswith(_STANDARD) or file.startswith(_PACKAGES):
        return ""
    return file.removeprefix(_STANDARD)


def _is_around_waits(code: CodeType) -> bool:
    return code.co_name in _AROUND_WAITS.get(_standard_file(code), ())


def _waits(frame: FrameType) -> bool:
    """Whether the innermost frame of a thread is at a call that waits."""
    code = frame.f_code
    steps = _steps(code)
    at = _step_at(steps, frame.f_lasti)
    # In Python 3.11 a call that has been made often is made by the instruction before it.
    if at is None or not steps[at].name.startswith(("CALL", "PRECALL")):
        return False
    chain = _callee(steps, at)
    if not chain:
        return False
    known = _WAITS.get((_standard_file(code), code.co_name))
    if known is not None:
        return chain[-1] in known
    found, owner = _resolve(frame, chain), _resolve(frame, chain[:-1])
    if _full_name(found) in _WAITING_FUNCTIONS:
        return True
    kinds = _WAITING_METHODS.get(_full_name(type(owner)), ()) if len(chain) > 1 else ()
    return chain[-1] in kinds


@functools.lru_cache(maxsize=512)
def _steps(code: CodeType) -> tuple[_Step, ...]:
    found = []
    for each in dis.get_instructions(code):
        place = each.positions
        begins = (None, None) if place is None else (place.lineno, place.col_offset)
        ends = (None, None) if place is None else (place.end_lineno, place.end_col_offset)
        found.append(_Step(each.offset, each.opname, each.argval, begins, ends))
    return tuple(found)


def _step_at(steps: tuple[_Step, ...], offset: int) -> int | None:
    """Return the place of the instruction at an offset, or of the one that its cache belongs to."""
    at = None
    for place, step in enumerate(steps):
        if step.offset > offset:
            break
        at = place
    return at


def _callee(steps: tuple[_Step, ...], at: int) -> Chain:
    """Return what an instruction calls, as names; nothing if it is more than names."""
    call = steps[at]
    if None in (*call.begins, *call.ends):
        return ()
    return _chain(steps[:at], call.begins, call.ends, whole=False)


def _chain(
    steps: tuple[_Step, ...],
    begins: tuple[int | None, int | None],
    ends: tuple[int | None, int | None],
    *,
    whole: bool,
) -> Chain:
    """Return the names that are loaded, one from the other, at a place of the source. `whole`: they
    are all that stands there; else what is called there."""
    names: list[tuple[Any, str]] = []
    for step in reversed(steps):  # the last ones before: a loop has the same place many times
        if step.begins != begins or None in step.ends:
            continue
        if step.ends > ends or (step.ends == ends and not whole):
            continue
        loads = step.name.startswith(_LOADS)
        if step.name in _BETWEEN:
            continue
        if not (loads or step.name in _ATTRIBUTES) or not isinstance(step.argument, str):
            return ()
        names.append((step.ends, step.argument))
        if loads:
            break
    else:
        return ()
    names.reverse()
    if whole and names[-1][0] != ends:
        return ()
    return tuple(name for _, name in names)


def _resolve(frame: FrameType, chain: Chain) -> Any:
    """Return what names stand for in a frame, looked up without running any code of theirs."""
    if not chain:
        return None
    first, *rest = chain
    if first in frame.f_code.co_varnames or first in frame.f_code.co_freevars:
        found = frame.f_locals.get(first)
    else:
        found = frame.f_globals.get(first, frame.f_builtins.get(first))
    for name in rest:
        found = _attribute(found, name)
    return found


def _attribute(thing: Any, name: str) -> Any:
    if type(thing) is ModuleType:
        return vars(thing).get(name)
    try:
        inside = object.__getattribute__(thing, "__dict__")
    except Exception:  # it has none
        return None
    if type(inside) is dict and name in inside:
        return inside[name]
    for kind in type(thing).__mro__:
        if name in vars(kind):
            return vars(kind)[name]
    return None


def _full_name(thing: Any) -> str:
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else ""


# ---- inside of `with` and `finally` --------------------------------------------------------------


def _may_hold(frame: FrameType) -> str:
    """Return which `with` or `finally` a frame stands in, if it may hold something by it."""
    code = frame.f_code
    if not code.co_exceptiontable:
        return ""
    steps, regions = _steps(code), _regions(code)
    for target in _handlers(regions, frame.f_lasti):
        at = _step_at(steps, target)
        if at is None or steps[at].name != "PUSH_EXC_INFO" or at + 1 >= len(steps):
            continue  # it only tidies up
        if steps[at + 1].name == "WITH_EXCEPT_START":
            if not _is_harmless_with(frame, steps, _entered_at(regions, target)):
                return f"it is inside a `with` {_place(frame)}"
        elif not _is_except(steps, at + 1) and not _is_harmless_finally(steps, at + 1):
            return f"it is inside a `try` with a `finally` {_place(frame)}"
    return ""


@functools.lru_cache(maxsize=512)
def _regions(code: CodeType) -> tuple[tuple[int, int, int], ...]:
    """Return the table of exception handlers: from where, to where, and what follows there."""
    numbers = _numbers(code.co_exceptiontable)
    found = []
    for start, length, target, _ in zip(numbers, numbers, numbers, numbers, strict=False):
        found.append((2 * start, 2 * (start + length), 2 * target))
    return tuple(found)


def _numbers(table: bytes) -> Iterator[int]:
    """Yield numbers of six bits a byte, the highest first; bit 6 says that more follow."""
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0


def _handlers(regions: tuple[tuple[int, int, int], ...], offset: int) -> Iterator[int]:
    """Yield what would handle an exception at an offset, the innermost first: each handler is
    itself inside of the next one."""
    seen: set[int] = set()
    while True:
        inside = [target for start, end, target in regions if start <= offset < end]
        if not inside or inside[0] in seen:
            return
        offset = inside[0]
        seen.add(offset)
        yield offset


def _entered_at(regions: tuple[tuple[int, int, int], ...], target: int) -> int:
    return min(start for start, _, other in regions if other == target)


def _is_except(steps: tuple[_Step, ...], at: int) -> bool:
    """Whether a handler is that of `except`: it begins by comparing, or takes anything."""
    if steps[at].name == "POP_TOP":
        return True
    for step in steps[at:]:
        if step.name.startswith("CHECK_E"):
            return True
        if not step.name.startswith(("LOAD_", "BUILD_TUPLE", "NOP")):
            return False
    return False


def _is_harmless_finally(steps: tuple[_Step, ...], at: int) -> bool:
    for place, step in enumerate(steps[at:], at):
        if step.name == "RERAISE":
            return True
        if step.name.startswith("CALL"):
            chain = _callee(steps, place)
            if not chain or chain[-1] not in _HARMLESS_AT_LAST:
                return False
        elif step.name in ("BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL"):
            return False
    return False


def _is_harmless_with(frame: FrameType, steps: tuple[_Step, ...], entered: int) -> bool:
    at = _made_at(steps, entered)
    if at is None or None in (*steps[at].begins, *steps[at].ends):
        return False
    made = steps[at]
    if made.name.startswith("CALL"):
        return _full_name(_resolve(frame, _callee(steps, at))) in _HARMLESS_CONTEXTS
    thing = _resolve(frame, _chain(steps[: at + 1], made.begins, made.ends, whole=True))
    if isinstance(thing, threading.Condition) or type(thing) in (_LOCK, _RLOCK):
        return not is_held(thing)  # a condition is released while somebody waits for it
    return _full_name(type(thing)) in _HARMLESS_CONTEXTS


def _made_at(steps: tuple[_Step, ...], entered: int) -> int | None:
    """Return the place of the instruction that makes what a `with` enters before an offset."""
    at = _step_at(steps, entered - 1)
    if at is None or at < 1:
        return None
    if steps[at].name.startswith("CALL"):  # of `__enter__`, from Python 3.14 on
        at -= 1
    while at >= 0 and steps[at].name in _ENTERS | _BETWEEN:
        at -= 1
    return at if at >= 0 else None
