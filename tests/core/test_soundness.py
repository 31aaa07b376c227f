"""Break the supervisor on purpose: `check()` must say so, or it is worth nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from antifreeze._core.deadlines import DeadlineKind
from antifreeze._core.events import Outcome, ParcelArrived
from antifreeze._core.leases import LeaseState
from antifreeze._core.plan import Drawing, Limits, Plan
from antifreeze._core.reorder import Order
from antifreeze._core.seats import Life, LifeState, SeatCue, SeatState
from antifreeze._core.supervisor import Supervisor

from .script import ASK, RING, Script, stop

LIMITS = Limits(attempts=2, ticket_s=5.0, start_s=10.0, rest_s=0.5)


def busy(order: Order = Order.STRICT) -> Supervisor:
    """Give a supervisor in the middle of everything.

    Seat 0 serves and holds positions 0 and 5. Seat 1 has brought position 1 and holds 4.
    Seat 2 was replaced: its life 1 is dying, its life 2 starts and holds 2. Seat 3 rests. The
    fault of position 3, which ended two lives there, waits for its turn. The loop waits.
    """
    plan = Plan(seats=4, window=6, order=order, timeout_s=60.0, limits=LIMITS)
    s = Script(plan, batches=6).begin()
    s.ready(0, 1, 3)
    s.perform(ASK)
    for life in (1, 2):
        sup = s.sup
        if life == 2:
            s.ready(3, life=2)
        s.dies(3, *s.sup_commands_of_death(3, life)) if False else _end(s, 3, life)
        assert sup is s.sup
    s.at(4.0).loaded(1, 2)
    _hang_the_start(s, 2)
    return s.sup


def _end(s: Script, seat: int, life: int) -> None:
    raise NotImplementedError


def _hang_the_start(s: Script, seat: int) -> None:
    raise NotImplementedError
