"""A handle that each process opens for itself: files, databases, sockets in a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class per_worker(Generic[T]):
    """Open something in each process that uses it, on first use.

        class Rows:
            def __init__(self, path):
                self.rows = antifreeze.per_worker(lambda: sqlite3.connect(path))

            def __getitem__(self, index):
                return self.rows().execute("select ... where id = ?", (index,)).fetchone()

    Only how to open it is sent to a worker, or inherited by it. What another process has opened is
    left alone, not closed: a conversation that is closed twice is closed for both.
    """

    __slots__ = ("_open", "_opened")

    def __init__(self, open_it: Callable[[], T]) -> None:
        if not callable(open_it):
            raise TypeError(
                f"per_worker takes a function that opens something, not a {type(open_it).__name__}:"
                " per_worker(lambda: open(path))"
            )
        self._open = open_it
        self._opened: dict[int, T] = {}  # by process; those of others are kept, and never used

    def __call__(self) -> T:
        """Give what this process has opened; open it if there is none yet."""
        try:
            return self._opened[os.getpid()]
        except KeyError:
            # Of two threads that come at once, one opens in vain.
            return self._opened.setdefault(os.getpid(), self._open())

    def close(self) -> None:
        """Close what this process has opened; the next call opens it anew."""
        opened: Any = self._opened.pop(os.getpid(), None)
        if opened is not None:
            opened.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return per_worker, (self._open,)

    def __repr__(self) -> str:
        state = "open" if os.getpid() in self._opened else "not open"
        return f"<per_worker {self._open!r}, {state} here>"
