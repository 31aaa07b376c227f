"""Ask the sampler for batches of indices, and tell the core what came of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .._core import events as ev
from .._transport.sampled_indices import own_copy

Drawn = ev.TicketsDrawn | ev.SamplerEnded | ev.SamplerFailed


class SamplerReader:
    """Draw from the sampler of one epoch."""

    def __init__(self, sampler: Iterator[Any]) -> None:
        self._sampler = sampler
        self._next_time: ev.SamplerEnded | ev.SamplerFailed | None = None
        self.errors: deque[Exception] = deque()  # that the sampler raised, the oldest first

    def draw(self, count: int, now: Callable[[], float]) -> tuple[Drawn, float | None]:
        """Draw up to so many batches. Returns what to tell the core, and the seconds that the
        sampler took, if it was asked.

        What stops it before the count is told when it is asked again, if it yielded any.
        """
        if self._next_time is not None:
            event, self._next_time = self._next_time, None
            return event, None
        drawn: list[Any] = []
        stopped: ev.SamplerEnded | ev.SamplerFailed | None = None
        # What a signal handler raises here is no error of the sampler's (see `Asked.attend`).
        if (attend := getattr(self._sampler, "attend", None)) is not None:
            attend()
        asked_at = now()
        try:
            for _ in range(count):
                drawn.append(own_copy(next(self._sampler)))
        except StopIteration:
            stopped = ev.SamplerEnded()
        except Exception as error:
            self.errors.append(error)
            stopped = ev.SamplerFailed()
        took_s = now() - asked_at
        if not drawn:
            assert stopped is not None
            return stopped, took_s
        self._next_time = stopped
        return ev.TicketsDrawn(tuple(drawn), took_s), took_s
