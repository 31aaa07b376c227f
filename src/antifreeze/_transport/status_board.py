"""A few words of memory that the main process and its workers both see, without a message.

One word says that the loop waits; each life has two: which ticket it works on, and which step of it
(see `_core/health/worker_phases.py`). A word is written by one side only, in one store, so nobody
needs a lock and nobody can be blocked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .descriptors import Descriptor
from .memory import Memory, reserve

SIZE = 128 * 1024  # bytes: words for 8,191 lives, then they are used again
WORD = 8
WORDS = 2  # of a life
_WAITING = 0


Steps = tuple[Any, int]  # something with items, and the place of the one that counts


class StatusBoard:
    """All words of one loader's iterator."""

    def __init__(self, send: Callable[[int], Any]) -> None:
        """`send`, for workers that do not inherit memory, makes of a descriptor what can be
        pickled for one of them, with a method `detach` that gives it its own descriptor."""
        self._descriptor = Descriptor(reserve(SIZE))
        self._words = _map(self._descriptor.number)
        self._taken = 0
        self._send = send

    def set_waiting(self, waiting: bool) -> None:
        """Say whether the loop waits. Called by the main process."""
        self._words[_WAITING] = waiting

    def take(self) -> int:
        """Give the next life words of its own: their place."""
        self._taken = self._taken % (SIZE // WORD // WORDS - 1) + 1
        place = WORDS * self._taken
        self._words[place] = self._words[place + 1] = 0
        return place

    def line(self, place: int) -> StatusLine:
        return StatusLine(self._words, place, self._pickled)

    def close(self) -> None:
        self._descriptor.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive_board, (self._pickled(),)

    def _pickled(self) -> Any:
        return self._send(self._descriptor.number)


class StatusLine:
    """The words of one life, and its view of whether the loop waits."""

    def __init__(
        self, words: memoryview, place: int, pickled: Callable[[], Any] | None = None
    ) -> None:
        self._words, self._place, self._pickled = words, place, pickled

    @property
    def working_on(self) -> int:
        """Give the number of the ticket, or 0."""
        return int(self._words[self._place])

    @working_on.setter
    def working_on(self, number: int) -> None:
        self._words[self._place] = number

    @property
    def call(self) -> tuple[int, int]:
        """Give the ticket and the step."""
        return int(self._words[self._place]), int(self._words[self._place + 1])

    @property
    def steps(self) -> Steps:
        """Give where the step is written: a sample may take less time than a call of a method."""
        return self._words, self._place + 1

    @property
    def loop_waits(self) -> bool:
        return self._words[_WAITING] != 0

    def __reduce__(self) -> tuple[Any, ...]:
        assert self._pickled is not None
        return _receive, (self._pickled(), self._place)


def _receive(sent: Any, place: int) -> StatusLine:
    descriptor = Descriptor(sent.detach())
    return StatusLine(_map(descriptor.number), place)


def _receive_board(sent: Any) -> StatusBoard:
    board = StatusBoard.__new__(StatusBoard)
    board._descriptor = Descriptor(sent.detach())
    board._words, board._taken = _map(board._descriptor.number), 0
    board.close()
    return board


def _map(descriptor: int) -> memoryview:
    return Memory(descriptor, SIZE).view.cast("Q")
