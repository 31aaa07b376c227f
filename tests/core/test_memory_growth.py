"""Lives whose memory grows, on virtual time: who is let go, when, and what is not lost by it."""

from __future__ import annotations

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.health.memory_growth import Room
from antifreeze._core.health.stall_detection import Sight
from antifreeze._core.limits import Limits
from antifreeze._core.loader_plan import Plan, Source
from antifreeze._core.worker_slots import LifeState

from .script import ASK, LEFT, Script

MB = 1_000_000
PLENTY = Room(900 * MB, 1_000 * MB)
SHORT = Room(50 * MB, 1_000 * MB)


def _plan(source: Source = Source.INDICES, **limits: object) -> Plan:
    bounds = Limits(look_s=1.0, **limits)
    return Plan(seats=2, window=4, longest_bundle=1, source=source, limits=bounds)


def _at_work(plan: Plan) -> Script:
    """Bring two lives to the point where each has brought a batch and holds another."""
    s = Script(plan, batches=20)
    s.perform(ev.EpochAsked(0, 7))
    for seat in (0, 1):
        s.perform(ev.LifeReady(seat, 1))
        s.perform(ev.EpochBegun(seat, 1, 0))
    s.perform(ASK)
    for seat, number in ((0, 1), (1, 2)):
        s.perform(ev.ParcelsArrived(seat, 1, (number,), ev.Outcome.LOADED))
    return s


def _look(s: Script, held: tuple[int, int], room: Room | None = PLENTY) -> list[do.Command]:
    sights = tuple(Sight(seat, _life(s, seat), 0, 0, bytes_) for seat, bytes_ in enumerate(held))
    return list(s.perform(ev.LivesSeen(sights, room)))


def _life(s: Script, seat: int) -> int:
    return s.sup._seats.all[seat].lives


def _held(s: Script, seat: int) -> list[int]:
    life = s.sup._seats.all[seat].life
    return [] if life is None else list(life.held)


def _told(commands: list[do.Command]) -> list[do.ReportGrowth]:
    return [each for each in commands if isinstance(each, do.ReportGrowth)]


def test_who_holds_more_than_it_may_brings_what_it_has_and_is_replaced() -> None:
    s = _at_work(_plan(life_bytes=300 * MB))
    _look(s, (100 * MB, 100 * MB))
    ((report,), holds) = _told(_look(s, (400 * MB, 110 * MB))), _held(s, 0)
    assert (report.growth.seat, report.growth.grown, report.growth.goes) == (0, 300 * MB, True)
    seat = s.sup._seats.all[0]
    assert seat.life is not None and seat.life.state is LifeState.RETIRING and holds
    done: list[do.Command] = []
    for number in holds:
        assert do.StopLife(0, 1) not in done
        done += s.perform(ev.ParcelsArrived(0, 1, (number,), ev.Outcome.LOADED))
    assert do.StopLife(0, 1) in done
    assert not [each for each in done if isinstance(each, do.SendTickets) and each.seat == 0]
    again = s.perform(ev.LifeEnded(0, 1, LEFT))
    assert do.StartLife(0, 2, 0) in again
    assert s.sup.faults.seen == 0  # nobody did anything wrong


def test_a_life_is_told_of_once() -> None:
    s = _at_work(_plan(life_bytes=300 * MB))
    _look(s, (100 * MB, 100 * MB))
    assert len(_told(_look(s, (400 * MB, 110 * MB)))) == 1
    assert _told(_look(s, (410 * MB, 110 * MB))) == []


def test_when_little_is_left_the_one_that_has_grown_most_goes_and_one_at_a_time() -> None:
    s = _at_work(_plan())
    _look(s, (100 * MB, 100 * MB))
    assert _told(_look(s, (300 * MB, 350 * MB))) == []  # there is plenty
    (report,) = _told(_look(s, (300 * MB, 350 * MB), SHORT))
    assert (report.growth.seat, report.growth.room) == (1, SHORT)
    assert _told(_look(s, (320 * MB, 350 * MB), SHORT)) == []  # that one's memory comes back


def test_who_grows_so_fast_that_nothing_would_be_left_goes_in_time() -> None:
    s = _at_work(_plan())
    room = Room(500 * MB, 1_000 * MB)
    _look(s, (100 * MB, 100 * MB), room)
    assert _told(_look(s, (200 * MB, 200 * MB), room)) == []  # once may be chance
    (report,) = _told(_look(s, (300 * MB, 290 * MB), room))
    assert report.growth.seat == 0


def test_who_has_grown_by_little_is_not_to_blame_for_a_shortage() -> None:
    s = _at_work(_plan())
    _look(s, (100 * MB, 100 * MB))
    assert _told(_look(s, (160 * MB, 150 * MB), SHORT)) == []


def test_what_a_life_held_from_the_beginning_is_what_it_needs() -> None:
    s = _at_work(_plan(life_bytes=300 * MB))
    assert _told(_look(s, (900 * MB, 900 * MB))) == []
    assert _told(_look(s, (910 * MB, 910 * MB))) == []


def test_nobody_goes_if_that_is_not_wanted() -> None:
    s = _at_work(_plan(short_share=0.0))
    _look(s, (100 * MB, 100 * MB))
    assert _told(_look(s, (900 * MB, 900 * MB), SHORT)) == []


def test_a_stream_is_told_of_and_left_to_work() -> None:
    s = _at_work(_plan(Source.STREAMS, life_bytes=300 * MB))
    _look(s, (100 * MB, 100 * MB))
    (report,) = _told(_look(s, (400 * MB, 110 * MB)))
    assert not report.growth.goes
    life = s.sup._seats.all[0].life
    assert life is not None and life.state is LifeState.SERVING


def test_one_that_dies_while_it_brings_its_last_batches_loses_none() -> None:
    s = _at_work(_plan(life_bytes=300 * MB))
    _look(s, (100 * MB, 100 * MB))
    _look(s, (400 * MB, 110 * MB))
    held = [s.sup._seats.all[0].life.held[number].ticket for number in _held(s, 0)]
    done = s.perform(ev.LifeEnded(0, 1, LEFT, 0))
    dealt = [errand.ticket for c in done if isinstance(c, do.SendTickets) for errand in c.errands]
    assert {ticket.position for ticket in held} <= {ticket.position for ticket in dealt}


def test_a_new_epoch_begins_with_new_lives_where_old_ones_were_to_go() -> None:
    s = _at_work(_plan(life_bytes=300 * MB))
    _look(s, (100 * MB, 100 * MB))
    _look(s, (400 * MB, 110 * MB))
    done = s.perform(ev.EpochAsked(1, 8))
    assert do.StopLife(0, 1) in done and do.BeginEpoch(1, 1, 1) in done
    assert do.StartLife(0, 2, 1) in s.perform(ev.LifeEnded(0, 1, LEFT))
