"""The lock on running the code of stand-ins: one thread at a time, and those it waits for.

One lock for each module, as importlib has them, would not do: two threads that begin at different
places of a circle of imports would each wait for the other, or see half of a module. So threads
take turns. What keeps them from waiting forever:

1. A thread that has the turn may import what another thread is importing, and wait for that. If the
   other one needs a stand-in meanwhile, it borrows the turn. It then sees what the first one would
   if it did that import itself: a module that the first one runs is half of a circle.
2. It may wait for another thread in some other way, for a pool that it has started, say. A thread
   that has waited for `SendLimits.turn_s` goes on beside it, with other modules.
3. Finders of modules are called under Python's import lock, which every import of another thread
   needs. Whoever has the turn, or waits for it, lets go of that lock.
4. In the child of a fork only the thread that forked is left: `renew`.
"""

from __future__ import annotations

import _imp
import contextlib
import sys
import threading
from collections.abc import Iterator
from threading import get_ident
from typing import Any

from ..._core.limits import LIMITS, SendLimits
from ..._linux.clock import monotonic


class StandInLock:
    """Let one thread run modules. Re-entrant."""

    def __init__(self, limits: SendLimits = LIMITS.sending) -> None:
        self._limits = limits
        self._changed = threading.Condition()
        self._running: dict[str, int] = {}  # threads, by the modules whose code they run
        self._owners: list[int] = []  # threads that have the turn; each waits for the next
        self._waiting: dict[int, str] = {}  # the modules that threads wait for

    @contextlib.contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Wait for the turn to run a module. If it runs already, wait for the end of that; but not
        in a circle, where whoever runs it waits for this thread, or is this thread."""
        me = get_ident()
        with _without_import_lock():
            with self._changed:
                self._wait(me, name, has_turn=True)
                self._owners.append(me)
            try:
                yield
            finally:
                with self._changed:
                    self._owners.remove(me)
                    self._changed.notify_all()

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Note that this thread, whose turn it is, runs a module."""
        self._running[name] = get_ident()
        try:
            yield
        finally:
            with self._changed:
                self._running.pop(name, None)
                self._changed.notify_all()

    def wait_for(self, name: str) -> None:
        """Wait until a module does not run any more; not in a circle."""
        if self._running.get(name) not in (None, get_ident()):
            with _without_import_lock(), self._changed:
                self._wait(get_ident(), name, has_turn=False)

    def runs(self, name: str) -> bool:
        """Whether a thread runs this module."""
        return name in self._running

    @property
    def is_nested(self) -> bool:
        """Whether this thread runs a module already."""
        return get_ident() in self._running.values()

    def renew(self) -> list[str]:
        """Begin anew in the child of a fork. Return the modules that nobody runs any more."""
        me = get_ident()
        self._changed = threading.Condition()
        self._waiting.clear()
        self._owners = [each for each in self._owners if each == me]
        left = [name for name, thread in self._running.items() if thread != me]
        for name in left:
            del self._running[name]
        return left

    def _wait(self, me: int, name: str, *, has_turn: bool) -> None:
        self._waiting[me], began = name, monotonic()
        try:
            while not self._may_go_on(me, name, has_turn, monotonic() - began):
                self._changed.wait(self._limits.turn_look_s)
        finally:
            self._waiting.pop(me, None)

    def _may_go_on(self, me: int, name: str, has_turn: bool, waited_s: float) -> bool:
        runner = self._running.get(name, me)
        if runner != me:
            return self._waits(runner, me)
        if not has_turn or not self._owners or me in self._owners:
            return True
        return self._waits(self._owners[-1], me) or waited_s >= self._limits.turn_s

    def _waits(self, thread: int | None, me: int) -> bool:
        """Whether another thread waits for this one, or for one that does."""
        for _ in range(self._limits.turn_chain):
            name = self._waiting.get(thread or 0)
            if name is None:
                thread = _importer(thread or 0)
            elif (runner := self._running.get(name)) is not None:
                thread = runner
            else:
                thread = self._owners[-1] if self._owners else None
            if thread is None or thread == me:
                return thread == me
        return False

    def __repr__(self) -> str:
        return f"<StandInLock {', '.join(self._running) or 'free'}, {len(self._waiting)} wait>"


@contextlib.contextmanager
def _without_import_lock() -> Iterator[None]:
    """Let other threads find modules meanwhile, if this one is called by a finder."""
    depth = 0
    while True:
        try:
            _imp.release_lock()
        except RuntimeError:  # it is not held here, or no more
            break
        depth += 1
    try:
        yield
    finally:
        for _ in range(depth):
            _imp.acquire_lock()


def _importer(thread: int) -> int | None:
    """Return which thread imports what another one waits for, if that one waits in an import."""
    blocking: Any = getattr(sys.modules["_frozen_importlib"], "_blocking_on", None) or {}
    locks = blocking.get(thread)
    if isinstance(locks, list):  # since Python 3.12: signal handlers may import, too
        locks = locks[-1] if locks else None
    owner: int | None = getattr(locks, "owner", None)
    return owner
