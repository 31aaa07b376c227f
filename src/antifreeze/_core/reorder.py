"""The window between drawing and delivery: which batch is due next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum


class Order(Enum):
    STRICT = "strict"  # the sampler's order
    OVERTAKE = "overtake"  # whoever is ready first


class ReorderWindow:
    """Hold positions from drawing to delivery and release them in the order that was asked for.

    Each position is drawn once and leaves once: released to the loop, or void (it held nothing).
    """

    __slots__ = ("_arrived", "_in_turn", "_next", "_order", "_ready", "_waiting", "count", "drawn")

    def __init__(self, order: Order) -> None:
        self._order = order
        self._waiting: set[int] = set()  # drawn, not arrived
        self._arrived: dict[int, int] = {}  # position -> number of the ticket that arrived
        self._ready: deque[int] = deque()  # positions in order of arrival (OVERTAKE)
        self._in_turn: set[int] = set()  # arrived, and kept from overtaking
        self.drawn = 0
        self._next = 0  # no position before this one is in the window
        self.count = 0  # positions in the window

    @property
    def has_arrivals(self) -> bool:
        return bool(self._arrived)

    def draw(self) -> int:
        """Open the next position."""
        position = self.drawn
        self.drawn += 1
        self.count += 1
        self._waiting.add(position)
        return position

    def arrive(self, position: int, number: int, *, in_turn: bool = False) -> None:
        """Take what came for a position. `in_turn`: it overtakes nothing that was drawn before."""
        self._waiting.remove(position)
        self._arrived[position] = number
        if in_turn:
            self._in_turn.add(position)
        elif self._order is Order.OVERTAKE:
            self._ready.append(position)

    def void(self, position: int) -> None:
        """Close a position that will bring nothing (the stream of its seat has ended)."""
        self._waiting.remove(position)
        self.count -= 1

    def ready(self) -> int | None:
        """Give the number of the ticket that `release` would give."""
        if not self._arrived:
            return None
        if self._next in self._arrived and not self._ready:
            return self._arrived[self._next]
        due = self.due()
        return None if due is None else self._arrived.get(due)

    def release(self) -> int | None:
        """Give the number of the ticket that is due, or None if the loop must wait."""
        if not self._arrived:
            return None
        if not self._ready and not self._in_turn and self._next in self._arrived:
            self.count -= 1
            self._next += 1
            return self._arrived.pop(self._next - 1)
        due = self.due()
        if due not in self._arrived:
            return None
        if due in self._in_turn:
            self._in_turn.remove(due)
        elif self._ready:
            self._ready.popleft()
        self.count -= 1
        return self._arrived.pop(due)

    def due(self) -> int | None:
        """Say which position the loop receives next, or None if the window is empty."""
        while self._next < self.drawn:
            if self._next in self._waiting or self._next in self._arrived:
                first_has_its_turn = self._next in self._in_turn
                return self._ready[0] if self._ready and not first_has_its_turn else self._next
            self._next += 1
        return None

    def oldest_waiting(self) -> int | None:
        """Say which position has been waited for longest. Another thread may ask: nothing is
        changed; raises RuntimeError if it changes meanwhile."""
        return min(self._waiting, default=None)

    def clear(self) -> list[int]:
        """Empty the window for a new epoch; give the numbers of the parcels it held."""
        numbers = list(self._arrived.values())
        self._waiting.clear()
        self._arrived.clear()
        self._ready.clear()
        self._in_turn.clear()
        self.drawn = self._next = self.count = 0
        return numbers

    def unsound(self) -> Iterator[str]:
        if self.count != len(self._waiting) + len(self._arrived):
            yield f"{len(self._waiting)} + {len(self._arrived)} positions, but {self.count} counted"
        if both := self._waiting & self._arrived.keys():
            yield f"positions {sorted(both)} are both waited for and arrived"
        overtaking = self._arrived.keys() - self._in_turn
        if self._order is Order.OVERTAKE and set(self._ready) != overtaking:
            yield "the arrival order and the arrived positions differ"
        if early := [p for p in (*self._waiting, *self._arrived) if p < self._next]:
            yield f"positions {sorted(early)} lie before the next one, {self._next}"
