"""The record of every event and of the commands it led to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from ..commands import Command
from ..events import Event
from ..frozen_values import frozen
from ..limits import LIMITS


@frozen
class Entry:
    at: float
    event: Event
    commands: tuple[Command, ...]

    def __str__(self) -> str:
        done = ", ".join(map(repr, self.commands)) or "nothing"
        return f"{self.at:.3f}  {self.event!r} -> {done}"


class EventLog:
    """Keep the last entries; with `limit=None`, all of them (for replay in tests)."""

    __slots__ = ("_entries", "record")

    def __init__(self, limit: int | None = LIMITS.records.event_log_entries) -> None:
        self._entries: deque[tuple[float, Event, Sequence[Command]]] = deque(maxlen=limit)
        # Called with (at, event, commands) for every event of a run: nothing but an append.
        self.record = self._entries.append

    @property
    def is_whole(self) -> bool:
        """Say whether nothing is left out."""
        return self._entries.maxlen is None

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        for at, event, commands in self._entries:
            yield Entry(at, event, tuple(commands))
