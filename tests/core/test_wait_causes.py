"""What a wait of the loop was for, second by second, on a clock that only moves when told."""

from __future__ import annotations

import pytest

from antifreeze._core import events as ev
from antifreeze._core.batch_timings import Timings
from antifreeze._core.loader_plan import Plan, Tenure
from antifreeze._core.worker_slots import Gap
from antifreeze._reporting.wait_totals import CAUSES, Accounts

from .script import ASK, KILLED, Script, drawn, in_slab, returned

MANY = 1_000


def began(seats: int = 2, window: int = 4, **plan: object) -> Script:
    return Script(Plan(seats=seats, window=window, **plan), MANY).begin()


def accounts(s: Script) -> Accounts:
    return s.waits._accounts


def split(s: Script) -> dict[str, float]:
    """Give what was waited for, without what was not."""
    wait = accounts(s).wait
    return {
        cause: pytest.approx(getattr(wait, cause))
        for cause in CAUSES
        if getattr(wait, cause) > 1e-9
    }


def comes(
    s: Script, at: float, seat: int, *numbers: int, life: int = 1, **timings: float
) -> list[object]:
    """Let parcels arrive."""
    told = Timings(**{"sealed_at": at, **timings})
    event = ev.ParcelsArrived(seat, life, numbers, ev.Outcome.LOADED, told.work_s, timings=told)
    return list(s.at(at).perform(event))


def test_a_wait_is_laid_over_what_the_worker_did_meanwhile() -> None:
    s = began().ready(0, 1)
    s.at(0.0).perform(ASK)
    s.sup._seats.all[0].life.last = Timings(begun_at=-2.0, sealed_at=-1.0)
    comes(s, 10.5, 0, 1, begun_at=1.0, fetch_s=6.0, io_s=4.5, collate_s=2.0, sealed_at=10.0)
    # 1.0 on its way; 1.0 to 7.0 fetched, to 9.0 collated, to 10.0 packed, to 10.5 on its way.
    assert split(s) == {"fetch_io": 4.5, "fetch_cpu": 1.5, "collate": 2.0, "transport": 2.5}


def test_only_what_the_loop_was_there_for_counts() -> None:
    s = began().ready(0, 1)
    s.at(8.0).perform(ASK)
    comes(s, 10.0, 0, 1, begun_at=1.0, fetch_s=6.0, collate_s=2.0, sealed_at=10.0)
    assert split(s) == {"collate": 1.0, "transport": 1.0}
    s.at(20.0).perform(ASK)  # for the next, which is not there yet
    comes(s, 20.5, 1, 2, begun_at=2.0, fetch_s=18.0, sealed_at=20.0)
    assert split(s) == {"collate": 1.0, "transport": 1.5}


def test_what_was_ready_before_the_loop_came_was_not_waited_for() -> None:
    s = began().ready(0, 1)
    comes(s, 1.0, 0, 1, begun_at=0.0, fetch_s=1.0)
    s.at(5.0).perform(ASK)
    assert split(s) == {}


def test_a_life_that_comes_up_is_start_up() -> None:
    s = began()
    s.at(0.0).perform(ASK)
    s.at(2.0).ready(0, 1)
    comes(s, 5.0, 0, 1, begun_at=3.0, fetch_s=2.0)
    assert split(s) == {"startup": 3.0, "fetch_cpu": 2.0}


def test_a_worker_that_was_busy_with_an_earlier_batch_is_told_by_that() -> None:
    s = began(seats=1, window=2).ready(0)
    comes(s, 4.0, 0, 1, begun_at=0.0, fetch_s=4.0, io_s=4.0)
    s.at(4.0).perform(ASK)
    assert split(s) == {}
    s.at(4.0).perform(ASK)
    comes(s, 10.0, 0, 2, begun_at=5.0, fetch_s=5.0)
    assert split(s) == {"transport": 1.0, "fetch_cpu": 5.0}


def test_the_sampler_is_waited_for_where_it_takes_its_time() -> None:
    s = Script(Plan(seats=1, window=1)).begin().ready(0)
    s.at(0.0).perform(ASK)
    s.at(3.0).perform(ev.TicketsDrawn(drawn(0).indices, 3.0))
    comes(s, 5.0, 0, 1, begun_at=3.0, fetch_s=2.0)
    assert split(s) == {"sampler": 3.0, "fetch_cpu": 2.0}


def test_it_is_the_order_when_others_are_ready_and_a_worker_is_idle() -> None:
    s = began().ready(0, 1)
    s.at(0.0).perform(ASK)  # tickets 1 and 3 are with worker 0, 2 and 4 with worker 1
    comes(s, 1.0, 1, 2, begun_at=0.0, fetch_s=1.0)
    assert split(s) == {}
    comes(s, 2.0, 1, 4, begun_at=1.0, fetch_s=1.0)  # now it has nothing to do
    comes(s, 10.0, 0, 1, begun_at=0.0, fetch_s=9.0, sealed_at=9.0)
    assert split(s) == {"fetch_cpu": 2.0, "order": 7.0, "transport": 1.0}


def test_it_is_not_the_order_while_every_worker_has_something_to_do() -> None:
    s = began().ready(0, 1)
    s.at(0.0).perform(ASK)
    comes(s, 1.0, 1, 2, begun_at=0.0, fetch_s=1.0)
    comes(s, 10.0, 0, 1, begun_at=0.0, fetch_s=10.0)
    assert split(s) == {"fetch_cpu": 10.0}


def test_it_is_not_the_order_at_the_end_of_an_epoch() -> None:
    s = Script(Plan(seats=2, window=4), 2).begin().ready(0, 1)
    s.at(0.0).perform(ASK)
    comes(s, 1.0, 1, 2, begun_at=0.0, fetch_s=1.0)
    comes(s, 10.0, 0, 1, begun_at=0.0, fetch_s=10.0)
    assert split(s) == {"fetch_cpu": 10.0}


def test_what_a_lost_worker_had_is_recovery_until_it_is_begun_again() -> None:
    s = began(seats=1, window=1).ready(0)
    s.at(0.0).perform(ASK)
    s.at(4.0).perform(ev.LifeEnded(0, 1, KILLED, 1))
    s.at(5.0).ready(0, life=2)
    comes(s, 8.0, 0, 2, life=2, begun_at=6.0, fetch_s=2.0)
    assert split(s) == {"recovery": 6.0, "fetch_cpu": 2.0}


def test_a_worker_that_was_let_go_for_its_memory_is_memory() -> None:
    s = began(seats=1, window=1).ready(0)
    s.sup._seats.all[0].gap = Gap.GROWN  # its present life follows one that had grown
    s.at(0.0).perform(ASK)
    comes(s, 8.0, 0, 1, begun_at=6.0, fetch_s=2.0)
    assert split(s) == {"memory": 6.0, "fetch_cpu": 2.0}


def test_a_batch_without_room_to_load_it_into_waits_for_memory() -> None:
    plan = Plan(seats=1, window=1, longest_bundle=1, tenure=Tenure.LOADER)
    s = Script(plan, MANY).begin().ready(0)
    for number in (1, 2, 3):  # the loop keeps them
        s.perform(ASK)
        s.perform(in_slab(0, number))
    s.begin(1).begin(2)  # and the worker has the rest, for epochs that were left
    s.at(1.0).perform(ASK)
    s.at(6.0).perform(returned(0, 1))
    comes(s, 9.0, 0, 6, begun_at=6.0, fetch_s=3.0)
    assert split(s) == {"memory": 5.0, "fetch_cpu": 3.0}


def test_tickets_that_travel_together_are_as_all_of_them_are() -> None:
    s = Script(Plan(seats=1, window=1, longest_bundle=4), MANY).taught(2).begin()
    s.ready(0)
    s.at(0.0).perform(ASK)
    comes(s, 11.0, 0, 1, 2, begun_at=1.0, fetch_s=5.0, collate_s=2.5)
    assert split(s) == {"startup": 1.0, "fetch_cpu": 5.0, "collate": 2.5, "transport": 2.5}


def test_the_end_of_an_epoch_is_waited_for_as_such() -> None:
    s = Script(Plan(seats=1, window=2), 1).begin().ready(0)
    s.at(0.0).perform(ASK)
    comes(s, 1.0, 0, 1, begun_at=0.0, fetch_s=1.0)
    s.at(2.0).perform(ASK)
    assert split(s) == {"fetch_cpu": 1.0}  # it was over already


def test_long_waits_are_kept_with_what_they_were_for() -> None:
    s = began().ready(0, 1)
    s.at(0.0).perform(ASK)
    comes(s, 10.0, 0, 1, begun_at=0.0, fetch_s=8.0, io_s=8.0, collate_s=2.0)
    (wait,) = accounts(s).latest
    assert (wait.seconds, wait.position, wait.cause) == (10.0, 0, "fetch_io")


def test_a_slow_sample_is_kept_by_its_index() -> None:
    s = began().ready(0, 1)
    s.at(0.0).perform(ASK)
    comes(s, 10.0, 0, 1, begun_at=0.0, fetch_s=8.0, slowest_s=7.0, slowest=0)
    (sample,) = accounts(s).slowest
    assert (sample.seconds, sample.index, sample.worker) == (7.0, 0, 0)
