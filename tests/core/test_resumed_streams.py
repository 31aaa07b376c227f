"""Streams that break off and are taken up again, on virtual time."""

from __future__ import annotations

from dataclasses import replace

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.faults import FaultKind
from antifreeze._core.limits import Limits
from antifreeze._core.loader_plan import Plan, Source, Tenure

from .script import ASK, KILLED, Script, loaded

PLAN = Plan(seats=2, window=4, longest_bundle=1, source=Source.STREAMS, resumes=True)


def _begun(plan: Plan = PLAN) -> Script:
    return Script(plan, batches=100).begin().ready(*range(plan.seats))


def _sent(commands: list[do.Command], seat: int) -> list[int]:
    """Give the positions of the tickets that a seat is given."""
    dealt = [each for each in commands if isinstance(each, do.SendTickets) and each.seat == seat]
    return [errand.ticket.position for each in dealt for errand in each.errands]


def _numbers(s: Script, seat: int) -> list[int]:
    life = s.sup._seats.all[seat].life
    assert life is not None
    return list(life.held)


def _dies(s: Script, seat: int) -> list[do.Command]:
    life = s.sup._seats.all[seat].life
    assert life is not None
    return s.perform(ev.LifeEnded(seat, life.number, KILLED))


def test_the_next_life_is_told_how_far_its_stream_was_and_gets_the_same_tickets() -> None:
    s = _begun()
    s.perform(ASK)
    first, _ = _numbers(s, 1)
    s.perform(loaded(1, first))
    done = _dies(s, 1)
    assert do.StartLife(1, 2, 0, past=1) in done
    assert _sent(done, 1) == [3]  # 0 and 2 are the other's, 1 has arrived
    assert _sent(done, 0) == []


def test_no_batch_of_a_stream_goes_to_another_seat() -> None:
    s = _begun()
    s.perform(ASK)
    for _ in range(2):
        _dies(s, 1)
    (fault, *_) = s.sup.faults.latest
    assert fault.verdict == "retry"
    held = [errand.ticket.position for errand in s.sup._seats.all[0].life.held.values()]
    assert all(position % 2 == 0 for position in held)


def test_what_breaks_off_again_at_the_same_place_is_raised_in_turn() -> None:
    s = _begun()
    s.perform(ASK)
    _dies(s, 1)
    s.perform(ev.LifeReady(1, 2))
    s.perform(ev.EpochBegun(1, 2, 0))
    _dies(s, 1)
    assert s.sup.faults.latest[-1].kind is FaultKind.STREAM_LOST
    raised = []
    for number in _numbers(s, 0):
        raised += [c for c in s.perform(loaded(0, number)) if isinstance(c, do.RaiseFault)]
        raised += [c for c in s.perform(ASK) if isinstance(c, do.RaiseFault)]
    (fault,) = [each.fault for each in raised]
    assert fault.ticket is not None and fault.ticket.position == 1


def test_a_life_that_has_brought_something_may_break_off_again_later() -> None:
    s = _begun(Plan(seats=1, window=2, longest_bundle=1, source=Source.STREAMS, resumes=True))
    s.perform(ASK)
    for life in range(1, 6):
        (number, *_) = _numbers(s, 0)
        done = s.perform(ev.ParcelsArrived(0, life, (number,), ev.Outcome.LOADED))
        assert not [each for each in done if isinstance(each, do.RaiseFault)]
        s.perform(ASK)
        assert do.StartLife(0, life + 1, 0, past=life) in _dies(s, 0)
        s.perform(ev.LifeReady(0, life + 1))
        s.perform(ev.EpochBegun(0, life + 1, 0))


def test_a_seat_that_gets_no_further_life_leaves_no_ticket_behind() -> None:
    plan = Plan(
        seats=2,
        window=4,
        longest_bundle=1,
        source=Source.STREAMS,
        resumes=True,
        limits=Limits(attempts=5, failed_starts=2),
    )
    s = Script(plan, batches=100).begin().ready(0)
    s.perform(ASK)
    for _ in range(2):
        _dies(s, 1)  # before it has begun
    assert not s.sup._ledger.pending
    assert s.sup.faults.latest[-1].kind is FaultKind.STREAM_LOST


def test_a_new_epoch_begins_at_the_beginning() -> None:
    s = _begun()
    s.perform(ASK)
    for seat in (0, 1):
        s.perform(loaded(seat, _numbers(s, seat)[0]))
    s.refill(100)
    done = s.perform(ev.EpochAsked(1, 7))
    assert do.BeginEpoch(0, 1, 1) in done
    # Who replaces it must first leave the epoch before as it would have: after two batches.
    assert do.StartLife(1, 2, 1, past=0, before=(2,)) in _dies(s, 1)


def test_a_stream_of_which_nothing_is_taken_yet_is_begun_anew_without_a_state() -> None:
    s = _begun(replace(PLAN, resumes=False, restarts=True, tenure=Tenure.LOADER))
    s.perform(ASK)
    s.perform(loaded(0, _numbers(s, 0)[0]))
    s.refill(100)
    s.perform(ev.EpochAsked(1, 7))
    done = _dies(s, 0)  # before it has begun the new one
    assert do.StartLife(0, 2, 1, past=0, before=(3,)) in done
    assert not any(each.kind is FaultKind.STREAM_LOST for each in s.sup.faults.latest)


def test_a_stream_is_taken_up_again_where_its_worker_said_that_it_can_be() -> None:
    """Nobody knew before: it is the iterator that has a state."""
    plan = Plan(seats=2, window=4, longest_bundle=1, source=Source.STREAMS)
    s = _begun(plan)
    s.perform(ASK)
    s.perform(ev.StreamMarked(1, can_resume=True))
    s.perform(loaded(1, _numbers(s, 1)[0]))
    done = _dies(s, 1)
    assert do.StartLife(1, 2, 0, past=1) in done
    _dies(s, 0)
    assert s.sup.faults.latest[-1].kind is FaultKind.STREAM_LOST  # that one has not said so


def test_a_stream_whose_state_proved_useless_is_given_up() -> None:
    s = _begun()
    s.perform(ASK)
    s.perform(ev.StreamMarked(1, can_resume=True))
    s.perform(loaded(1, _numbers(s, 1)[0]))
    s.perform(ev.StreamMarked(1, can_resume=False))
    _dies(s, 1)
    assert s.sup.faults.latest[-1].kind is FaultKind.STREAM_LOST


def test_by_policy_a_useless_state_is_no_reason_to_give_up() -> None:
    plan = Plan(
        seats=1, window=2, longest_bundle=1, source=Source.STREAMS, resumes=True, spares=True
    )
    s = _begun(plan)
    s.perform(ASK)
    s.perform(ev.StreamMarked(0, can_resume=False))
    assert do.StartLife(0, 2, 0, past=0) in _dies(s, 0)


def test_a_stream_of_which_nothing_was_taken_is_begun_anew_as_often_as_a_sample_is_tried() -> None:
    plan = Plan(seats=1, window=2, longest_bundle=1, source=Source.STREAMS, restarts=True)
    s = Script(plan, batches=100).begin()
    s.perform(ASK)
    assert do.StartLife(0, 2, 0, past=0) in _dies(s, 0)
    _dies(s, 0)
    assert s.sup.faults.latest[-1].kind is FaultKind.STREAM_LOST


def test_a_stream_that_has_begun_is_not_begun_anew() -> None:
    plan = Plan(seats=1, window=2, longest_bundle=1, source=Source.STREAMS, restarts=True)
    s = _begun(plan)
    s.perform(ASK)
    _dies(s, 0)
    assert s.sup.faults.latest[-1].kind is FaultKind.STREAM_LOST
