"""Whose memory grows, and who is let go for it before the kernel ends somebody.

1. What a life held of its own when it was first looked at, after its first batch, is what it needs.
   What it holds beyond that has grown.
2. A life that holds more than it may is let go. So is the one that has grown most, when little is
   left of what the machine or the container has, or will be, as they grow, after a few more looks:
   one at a time, for its memory comes back.
3. Who has grown by little is left alone: a new life would need as much, and soon.
"""

from __future__ import annotations

from ..frozen_values import frozen, message
from ..limits import Limits
from ..worker_slots import Life, LifeState
from .stall_detection import Sight


@message
class Room:
    """How much memory is left, and of how much."""

    left: int
    total: int
    words: str = ""  # "available in this machine"


@frozen
class Growth:
    """A life that has grown too much."""

    seat: int
    life: int
    before: int  # bytes
    now: int
    parcels: int  # it has brought
    room: Room | None = None  # the shortage it is let go for; None: it holds more than it may
    goes: bool = True  # else nobody could go on from where it is

    @property
    def grown(self) -> int:
        return self.now - self.before


class Growths:
    """What all present lives held, at first and lately. Decides who has grown too much."""

    __slots__ = ("_before", "_lately", "_limits", "_rates", "_told")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._before: dict[tuple[int, int], int] = {}  # of lives that have brought something
        self._lately: dict[tuple[int, int], int] = {}
        self._rates = (0, 0)  # bytes by which all together grew from look to look, the last two
        self._told: set[tuple[int, int]] = set()

    def see(self, seen: list[tuple[Sight, Life]], room: Room | None) -> list[Growth]:
        """Take what present lives hold; give those that have grown too much."""
        grown = []
        for sight, life in seen:
            if not sight.own_bytes or not life.brought or life.state is not LifeState.SERVING:
                continue
            key = (sight.seat, sight.life)
            before = self._before.setdefault(key, sight.own_bytes)
            grown.append(Growth(*key, before, sight.own_bytes, life.brought))
        more = sum(each.now - self._lately.get((each.seat, each.life), each.now) for each in grown)
        self._rates = (self._rates[1], more)
        self._lately = {(each.seat, each.life): each.now for each in grown}
        present = {(sight.seat, sight.life) for sight, _ in seen}
        self._before = {key: held for key, held in self._before.items() if key in present}
        self._told &= present
        return [each for each in self._too_much(grown, seen, room) if self._is_news(each)]

    def _too_much(
        self, grown: list[Growth], seen: list[tuple[Sight, Life]], room: Room | None
    ) -> list[Growth]:
        if any(life.state is LifeState.RETIRING for _, life in seen):
            return []
        limits, growth = self._limits, self._limits.growth
        most = limits.life_bytes
        if most is not None:
            over = [each for each in grown if each.now > most]
            if over := [each for each in over if each.grown > growth.least_share_of_limit * most]:
                return [max(over, key=lambda each: each.grown)]
        if room is None or not grown or not limits.short_share:
            return []
        if room.left >= max(limits.short_share * room.total, growth.ahead_looks * min(self._rates)):
            return []
        worst = max(grown, key=lambda each: each.grown)
        if worst.grown < max(limits.grown_bytes, growth.least_share_of_memory * room.total):
            return []
        return [Growth(worst.seat, worst.life, worst.before, worst.now, worst.parcels, room)]

    def _is_news(self, growth: Growth) -> bool:
        key = (growth.seat, growth.life)
        news = key not in self._told
        self._told.add(key)
        return news

    def __repr__(self) -> str:
        return f"<Growths of {len(self._before)} lives, {len(self._told)} too much>"
