"""Break what the supervisor keeps of looks, spared samples and faults: `check()` must say so."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from antifreeze._core.health.health_checks import LOOK_KEY
from antifreeze._core.loader_plan import Plan
from antifreeze._core.supervisor import Supervisor

from .busy import LIMITS, Damage, busy, serving
from .script import CLOSE, Script


def _spare(sup: Supervisor, count: int) -> None:
    held = serving(sup).held
    number, errand = next(iter(held.items()))
    held[number] = replace(errand, ticket=replace(errand.ticket, spared=(0,) * count))


def a_ticket_has_too_many_samples_spared(sup: Supervisor) -> None:
    sup.plan = replace(sup.plan, spares=True)
    _spare(sup, sup.plan.limits.spared)
    assert list(sup.check()) == []
    _spare(sup, sup.plan.limits.spared + 1)


def a_sample_is_spared_without_a_policy(sup: Supervisor) -> None:
    _spare(sup, 1)


# ---- looks ----------------------------------------------------------------------------------


def nobody_will_look_although_the_loop_waits(sup: Supervisor) -> None:
    sup._deadlines.clear(LOOK_KEY)


def a_look_is_asked_for_that_nobody_wants(sup: Supervisor) -> None:
    sup.plan = replace(sup.plan, limits=replace(LIMITS, look_s=None))


def the_call_of_a_life_is_kept_that_is_gone(sup: Supervisor) -> None:
    calls = sup._health.stalls._calls
    calls[1, 3] = calls[0, 1]


def the_call_of_a_dying_life_is_kept(sup: Supervisor) -> None:
    calls = sup._health.stalls._calls
    calls[2, 1] = calls[0, 1]


def a_call_was_reported_too_often(sup: Supervisor) -> None:
    sup._health.stalls._calls[0, 1].reports = len(LIMITS.stalls.reported_s) + 1


def a_call_begins_after_it_was_seen(sup: Supervisor) -> None:
    sup._health.stalls._calls[0, 1].since += 1.0


# ---- records --------------------------------------------------------------------------------


def too_many_faults_are_kept(sup: Supervisor) -> None:
    sup.faults.latest = deque(list(sup.faults.latest)[:1] * (LIMITS.records.supervisor_faults + 1))
    sup.faults.seen = LIMITS.records.supervisor_faults + 1


def faults_are_kept_that_nobody_has_seen(sup: Supervisor) -> None:
    sup.faults.seen = 0


def losses_are_kept_of_more_seats_than_there_are(sup: Supervisor) -> None:
    losses = sup._recovery.losses
    (loss, *_) = losses.values()
    losses.update(dict.fromkeys(range(sup.plan.seats + 1), loss))


DAMAGES: list[Damage] = [
    a_ticket_has_too_many_samples_spared,
    a_sample_is_spared_without_a_policy,
    nobody_will_look_although_the_loop_waits,
    a_look_is_asked_for_that_nobody_wants,
    the_call_of_a_life_is_kept_that_is_gone,
    the_call_of_a_dying_life_is_kept,
    a_call_was_reported_too_often,
    a_call_begins_after_it_was_seen,
    too_many_faults_are_kept,
    faults_are_kept_that_nobody_has_seen,
    losses_are_kept_of_more_seats_than_there_are,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_check_notices_when(damage: Damage) -> None:
    sup = busy()
    damage(sup)
    assert list(sup.check()) != []


def test_check_notices_when_a_look_is_asked_for_after_the_close() -> None:
    s = Script(Plan(seats=1, window=1, limits=LIMITS), batches=1).begin().ready(0)
    s.perform(CLOSE)
    s.sup._deadlines.set(LOOK_KEY, 99.0)
    assert list(s.sup.check()) != []
