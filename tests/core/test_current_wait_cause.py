"""What a wait is for that is not over, on a clock that only moves when told."""

from __future__ import annotations

from typing import Any

import pytest

from antifreeze._core import events as ev
from antifreeze._core.batch_timings import Timings
from antifreeze._core.health.stall_detection import Activity, Sight
from antifreeze._core.health.worker_phases import COLLATE, PACK, SAMPLE
from antifreeze._core.limits import Limits
from antifreeze._core.loader_plan import Plan, Tenure
from antifreeze._core.worker_slots import Gap
from antifreeze._reporting.current_wait_cause import in_step, so_far
from antifreeze._reporting.wait_totals import CAUSES, Split

from .script import ASK, KILLED, Script, drawn, in_slab, returned
from .test_wait_causes import MANY, comes


def began(seats: int = 1, window: int = 1, **plan: Any) -> Script:
    return Script(Plan(seats=seats, window=window, **plan), MANY).begin()


def split(s: Script, now: float, answered_at: float = 0.0) -> dict[str, float]:
    return told(so_far(s.sup, s.waits, now, answered_at))


def told(found: Split) -> dict[str, float]:
    """Give what was waited for, without what was not."""
    parts = {cause: getattr(found, cause) for cause in CAUSES}
    return {cause: pytest.approx(seconds) for cause, seconds in parts.items() if seconds > 1e-9}


def looked(s: Script, at: float, step: int, ticket: int, activity: Activity | None = None) -> None:
    """Let somebody look at the one worker, and look closely."""
    s.at(at).perform(ev.LivesSeen((Sight(0, 1, ticket, step),), None))
    if activity is not None:
        s.perform(ev.LifeExamined(0, 1, activity))


def test_a_worker_that_comes_up_is_start_up() -> None:
    s = began()
    s.at(1.0).perform(ASK)
    assert split(s, 6.0) == {"startup": 5.0}


def test_a_fetch_under_way_is_as_fetches_were_so_far() -> None:
    s = began().ready(0)
    s.at(0.0).perform(ASK)
    comes(s, 4.0, 0, 1, begun_at=0.0, fetch_s=4.0, io_s=3.0)
    s.at(6.0).perform(ASK)
    assert split(s, 14.0) == {"fetch_io": 6.0, "fetch_cpu": 2.0}


def test_of_the_first_fetch_nobody_knows_whether_it_waits_until_somebody_looks() -> None:
    limits = Limits(look_s=1.0)
    s = began(limits=limits).ready(0)
    s.at(0.0).perform(ASK)
    assert split(s, 1.0) == {"unknown": 1.0}
    looked(s, 2.0, SAMPLE, 1)
    looked(s, 3.0, SAMPLE, 1, Activity(cpu_s=1.0, runs=False))
    assert split(s, 4.0) == {"fetch_io": 4.0}
    looked(s, 5.0, SAMPLE, 1, Activity(cpu_s=3.0, runs=True))
    assert split(s, 6.0) == {"fetch_io": 3.0, "fetch_cpu": 3.0}  # one look, and another
    looked(s, 7.0, SAMPLE, 1, Activity(cpu_s=5.0, runs=True))
    looked(s, 8.0, SAMPLE, 1, Activity(cpu_s=6.0, runs=True))
    assert split(s, 8.0) == {"fetch_io": 2.0, "fetch_cpu": 6.0}


@pytest.mark.parametrize(("step", "cause"), [(COLLATE, "collate"), (PACK, "transport")])
def test_what_a_worker_was_seen_at_is_what_it_is_for(step: int, cause: str) -> None:
    s = began(limits=Limits(look_s=1.0)).ready(0)
    s.waits.work.add(Timings(fetch_s=1.0, samples=1))
    s.at(0.0).perform(ASK)
    looked(s, 2.0, SAMPLE, 1)
    looked(s, 3.0, step, 1)
    assert split(s, 10.0) == {"fetch_cpu": 3.0, cause: 7.0}


def test_a_call_for_a_ticket_that_was_brought_says_nothing_of_the_next() -> None:
    s = began(seats=1, window=2, limits=Limits(look_s=1.0)).ready(0)
    s.waits.work.add(Timings(fetch_s=1.0, samples=1))
    s.at(0.0).perform(ASK)
    looked(s, 2.0, COLLATE, 1)
    comes(s, 3.0, 0, 1, begun_at=0.0, fetch_s=2.0, collate_s=1.0)
    s.at(3.0).perform(ASK)
    assert split(s, 5.0) == {"fetch_cpu": 2.0}


def test_what_a_lost_worker_had_is_recovery_until_it_is_begun_again() -> None:
    s = began().ready(0)
    s.waits.work.add(Timings(fetch_s=1.0, samples=1))
    s.at(0.0).perform(ASK)
    s.at(4.0).perform(ev.LifeEnded(0, 1, KILLED, 1))
    assert split(s, 5.0) == {"recovery": 5.0}
    s.at(6.0).ready(0, life=2)
    assert split(s, 8.0) == {"recovery": 6.0, "fetch_cpu": 2.0}


def test_a_worker_that_was_let_go_for_its_memory_is_memory() -> None:
    s = began()
    s.sup._seats.all[0].gap = Gap.GROWN  # its present life follows one that had grown
    s.at(0.0).perform(ASK)
    assert split(s, 3.0) == {"memory": 3.0}


def test_it_is_the_order_when_others_are_ready_and_a_worker_is_idle() -> None:
    s = began(seats=2, window=4).ready(0, 1)
    s.at(0.0).perform(ASK)  # tickets 1 and 3 are with worker 0, 2 and 4 with worker 1
    comes(s, 1.0, 1, 2, begun_at=0.0, fetch_s=1.0)
    comes(s, 2.0, 1, 4, begun_at=1.0, fetch_s=1.0)  # now it has nothing to do
    assert split(s, 10.0) == {"fetch_cpu": 2.0, "order": 8.0}


def test_a_batch_without_room_to_load_it_into_waits_for_memory() -> None:
    plan = Plan(seats=1, window=1, longest_bundle=1, tenure=Tenure.LOADER)
    s = Script(plan, MANY).begin().ready(0)
    for number in (1, 2, 3):  # the loop keeps them
        s.perform(ASK)
        s.perform(in_slab(0, number))
    s.begin(1).begin(2)  # and the worker has the rest, for epochs that were left
    s.at(1.0).perform(ASK)
    assert split(s, 6.0) == {"memory": 5.0}
    s.at(6.0).perform(returned(0, 1))
    assert split(s, 7.0)["memory"] == 5.0


def test_a_sampler_that_is_asked_is_the_sampler() -> None:
    s = Script(Plan(seats=1, window=1)).begin().ready(0)
    s.at(0.0).perform(ASK)
    assert split(s, 3.0) == {"sampler": 3.0}
    s.at(3.0).perform(ev.TicketsDrawn(drawn(0).indices, 3.0))
    s.waits.work.add(Timings(fetch_s=1.0, samples=1))
    assert split(s, 5.0)["sampler"] == 3.0


def test_after_the_answer_what_is_left_is_the_opening_of_the_batch() -> None:
    s = began(window=1).ready(0)
    s.at(0.0).perform(ASK)
    comes(s, 2.0, 0, 1, begun_at=0.0, fetch_s=2.0)
    assert split(s, 2.5, answered_at=2.0) == {"transport": 0.5}


def test_asking_changes_nothing() -> None:
    s = began(seats=2, window=4).ready(0, 1)
    s.at(0.0).perform(ASK)
    before = repr(s.sup.snapshot()), repr(s.waits), s.sup._ledger.window._next
    assert split(s, 5.0) == split(s, 5.0)
    assert (repr(s.sup.snapshot()), repr(s.waits), s.sup._ledger.window._next) == before


def test_a_step_of_the_users_own_code_needs_to_be_looked_at() -> None:
    assert told(in_step(SAMPLE, 4.0, 0.75)) == {"fetch_io": 3.0, "fetch_cpu": 1.0}
    assert told(in_step(SAMPLE, 4.0, None)) == {"unknown": 4.0}
    assert told(in_step(COLLATE, 4.0, None)) == {"collate": 4.0}
