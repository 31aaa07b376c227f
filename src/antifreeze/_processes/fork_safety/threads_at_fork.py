"""A look at the other threads at the very moment of a fork.

What was parked when the loop began may run by the time of the fork, and nobody can stop a fork from
inside. So Python itself is asked to have us look at each of its sides, and the child waits to hear
what was seen:

1. Right before the fork: if a thread does not park within some milliseconds, it is not safe. Where
   all are, is noted. From here on no thread takes the GIL from this one, unless it is given.
2. It may be given: what others have registered to run before a fork, earlier than we have, runs
   after us, and may wait for something. So right after the fork the parent looks whether all
   threads are where they were. One that has moved may have taken a lock in between.
3. The parent writes what it has found, and the child reads it before it begins: it leaves at once
   if the fork was not safe. The parent kills it then, too, and raises ForkHazard.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType

from ..._core.limits import LIMITS, ForkLimits
from ..._linux.clock import pause
from ..._loading.raw_attributes import module_of
from . import fork_hazards
from .reachable_objects import Reached

_SAFE, _VOID = 1, 2
_NOT_LOOKED = "the other threads could not be looked at"
_MOVED = "another thread ran while this process was forked"
_PACKAGE = __name__.partition(".")[0]


class ForkHazard(Exception):
    """A fork may have copied a lock that another thread holds. Raised in the parent; the child has
    left, or is killed. Of the program's code only what it has registered to run in each of its
    forked children has run there (`os.register_at_fork`, and multiprocessing's likewise)."""

    def __init__(self, words: str, number: int | None = None) -> None:
        super().__init__(words)
        self.number = number  # multiprocessing's, of the child: whoever takes its place has it


class _Check:
    """The looks at one fork."""

    def __init__(self, reached: Reached, limits: ForkLimits) -> None:
        self.reached, self._limits, self.unsafe = reached, limits, ""
        self._raised: BaseException | None = None
        self._positions: fork_hazards.Positions | None = None  # if it was safe with them there
        self._interval_s = 0.0  # the interpreter's own, while another one is set
        self._verdict = -1  # eventfd

    def look(self) -> None:
        """Look before the fork. Python forks even if this raises, and says no more of it than that:
        so nothing is safe before it was seen to be, and what was raised is kept."""
        self.unsafe = _NOT_LOOKED
        try:
            self.close()  # of an earlier try, where the machine gave no process
            self._verdict = os.eventfd(0, os.EFD_CLOEXEC)
            self.unsafe = self._look()
        except BaseException as error:
            self._keep(error)

    def _look(self) -> str:
        unsafe = _MOVED
        for _ in range(self._limits.looks):
            self._positions = fork_hazards.Positions()
            unsafe = fork_hazards.unsafe_now(self.reached, self._positions)
            if not unsafe:
                self._interval_s = sys.getswitchinterval()
                sys.setswitchinterval(self._limits.undisturbed_s)
                if not self._positions.have_changed():
                    return ""
                self.let_go()
                unsafe = _MOVED
            pause(self._limits.look_s)
        return unsafe

    def compare(self) -> None:
        """Look after the fork, in the parent, and tell the child."""
        unsafe, self.unsafe = self.unsafe, _NOT_LOOKED
        try:
            if not unsafe and (self._positions is None or self._positions.have_changed()):
                unsafe = _MOVED
            self.unsafe = unsafe
            self._positions = None
            self.let_go()
            os.eventfd_write(self._verdict, _VOID if unsafe else _SAFE)
        except BaseException as error:
            self.unsafe = unsafe or _NOT_LOOKED
            self._keep(error)

    def let_go(self) -> None:
        """Let other threads have the GIL as before."""
        if self._interval_s:
            sys.setswitchinterval(self._interval_s)
            self._interval_s = 0.0

    def inherit(self) -> int:
        """Return where the child hears of what was seen; below zero: nowhere. In the child."""
        self.let_go()
        verdict, self._verdict = self._verdict, -1
        return verdict

    def close(self) -> None:
        self.let_go()
        self._positions = None
        if self._verdict >= 0:
            os.close(self._verdict)
            self._verdict = -1

    def end(self) -> None:
        """Raise what a handler of a signal has raised meanwhile."""
        self.close()
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _keep(self, error: BaseException) -> None:
        self._positions = None  # not to be kept alive by the error's traceback
        if not _is_of_the_look(error):
            self._raised = error


def _is_of_the_look(error: BaseException) -> bool:
    """Whether an error is the look's own, which is a reason against the fork and no more; not that
    of a handler of a signal, or one that another thread has raised here."""
    if not isinstance(error, Exception) or module_of(type(error)) != "builtins":
        return False
    return all(map(_is_ours, _frames(error.__traceback__)))


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    top = name.partition(".")[0] if type(name) is str else ""
    return top == _PACKAGE or top in sys.stdlib_module_names


_present = threading.local()  # the check of the thread that forks


def _look_before_fork() -> None:
    check: _Check | None = getattr(_present, "check", None)
    if check is not None:
        check.look()


def _compare_in_parent() -> None:
    check: _Check | None = getattr(_present, "check", None)
    if check is not None:
        check.compare()


_verdict: int | None = None  # eventfd; None: nobody looked when this process was forked
_parent = 0


def _remember_in_child() -> None:
    """Look no more: forks of the child are its own affair."""
    global _verdict
    check: _Check | None = getattr(_present, "check", None)
    _verdict = None if check is None else check.inherit()
    _present.check = None


os.register_at_fork(
    before=_look_before_fork,
    after_in_parent=_compare_in_parent,
    after_in_child=_remember_in_child,
)


@contextlib.contextmanager
def looking(
    reached: Reached | None, limits: ForkLimits = LIMITS.forking
) -> Iterator[_Check | None]:
    """Look at the other threads at each fork within. None: do not."""
    global _parent
    _parent = os.getpid()
    _present.check = check = None if reached is None else _Check(reached, limits)
    try:
        yield check
    finally:
        _present.check = None
        if check is not None:
            check.end()


def is_void() -> bool:
    """Whether this process was forked at a moment that was not safe: it must do nothing. Waits
    until the parent says so: not for long, since it does that first of all."""
    global _verdict
    number, _verdict = _verdict, None
    if number is None or number < 0:
        return number is not None
    try:
        poller = select.poll()
        poller.register(number, select.POLLIN)
        while not poller.poll(1000 * LIMITS.forking.parent_look_s):
            if os.getppid() != _parent:
                return True
        return os.eventfd_read(number) != _SAFE
    finally:
        os.close(number)
