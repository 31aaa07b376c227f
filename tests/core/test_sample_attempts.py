"""How often a batch is tried: a sample twice, and the whole of it not much more often."""

from __future__ import annotations

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.faults import Ending
from antifreeze._core.health.worker_phases import SAMPLE
from antifreeze._core.limits import Limits
from antifreeze._core.loader_plan import Plan
from antifreeze._core.tickets import Ticket

from .script import ASK, RING, Script, send, start


def with_samples(limits: Limits) -> Script:
    """One seat, and a batch of eight samples in its hands."""
    s = Script(Plan(seats=1, window=1, limits=limits)).begin()
    s.tell(ev.TicketsDrawn((list(range(8)),)), send(0, Ticket(1, 0, 0, list(range(8)))))
    return s.ready(0)


def test_lives_that_are_lost_with_other_samples_each_time_are_no_reason_to_give_a_batch_up() -> (
    None
):
    s = with_samples(Limits(barren_lives=99, rest_s=0.0, tries=4))
    samples, blamed = list(range(8)), []
    for life, place in enumerate((3, 5, 6), start=1):
        blamed.append(SAMPLE + place)
        again = Ticket(life + 1, 0, 0, samples, tuple(blamed))
        commands = s.perform(died(0, life, on=life, step=SAMPLE + place))
        if life > 1:  # it brought nothing: there is a rest before the next one
            commands = s.at(s.now + 1.0).perform(RING)
        assert commands == [start(0, life=life + 1), send(0, again, life=life + 1)]
        s.ready(0, life=life + 1)
    s.perform(died(0, 4, on=4, step=SAMPLE + 7))  # one too many, whoever it was
    assert [c.fault.ticket for c in s.perform(ASK) if isinstance(c, do.RaiseFault)] == [again]


def test_the_same_sample_a_second_time_is_the_one() -> None:
    s = with_samples(Limits(barren_lives=99, rest_s=0.0))
    for life, place in enumerate((3, 5, 3), start=1):
        s.perform(died(0, life, on=life, step=SAMPLE + place))
        s.at(s.now + 1.0).perform(RING)
        s.perform(ev.LifeReady(0, life + 1))
        s.perform(ev.EpochBegun(0, life + 1, 0))
    (raised_now,) = [c for c in s.perform(ASK) if isinstance(c, do.RaiseFault)]
    assert raised_now.fault.place == 3
    assert raised_now.fault.ticket is not None and raised_now.fault.ticket.attempt == 3


def died(seat: int, life: int, *, on: int, step: int) -> ev.LifeEnded:
    return ev.LifeEnded(seat, life, Ending(signal=9, step=step), on)


def test_lives_that_never_came_up_are_explained_by_the_last_one_that_says_how() -> None:
    s = Script(Plan(seats=1, window=1, limits=Limits(start_s=10.0, rest_s=0.0))).begin()
    s.perform(ev.LifeEnded(0, 1, Ending(words="its library is missing")))
    s.perform(ev.LifeEnded(0, 2, Ending(exit_code=3)))
    s.at(1.0).perform(RING)  # its rest is over
    s.at(11.0).perform(RING)  # the third one does not even end
    (raised_now,) = [c for c in s.perform(ASK) if isinstance(c, do.RaiseFault)]
    assert raised_now.fault.ending == Ending(exit_code=3)


def test_a_seat_of_which_nothing_is_known_is_explained_by_another() -> None:
    limits = Limits(start_s=10.0, failed_starts=1)
    s = Script(Plan(seats=2, window=2, limits=limits)).begin()
    s.perform(ev.LifeEnded(0, 1, Ending(words="its library is missing")))
    s.at(10.0).perform(RING)
    (raised_now,) = [c for c in s.perform(ASK) if isinstance(c, do.RaiseFault)]
    assert raised_now.fault.ending == Ending(words="its library is missing")
