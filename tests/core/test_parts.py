"""Each part of the core by itself, against a simple model or by all of its table."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import random
from collections.abc import Sequence
from types import ModuleType
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antifreeze._core import commands, events, faults, tickets
from antifreeze._core import slab_leases as leases_module
from antifreeze._core import worker_slots as seats_module
from antifreeze._core.deadlines import DeadlineKind, Deadlines, Key
from antifreeze._core.fault_verdicts import VERDICTS, Verdict, judge
from antifreeze._core.faults import Ending, Fault, FaultKind
from antifreeze._core.inspection import state_snapshots
from antifreeze._core.inspection.event_log import EventLog
from antifreeze._core.limits import LIMITS, Limits
from antifreeze._core.loader_plan import Plan
from antifreeze._core.reorder import Order, ReorderWindow
from antifreeze._core.slab_leases import Lease, LeaseCue, LeaseState, LeaseTable
from antifreeze._core.states import Loop, Run, Sampling, State
from antifreeze._core.tickets import Progress, Ticket
from antifreeze._core.worker_slots import LifeCue, LifeState, SeatCue, Seats, SeatState
from antifreeze._reporting import wait_totals

from .script import ASK, RING
from .walk import Walk

quick = settings(max_examples=150, derandomize=True, deadline=None)

# ---- deadlines ------------------------------------------------------------------------------

keys = st.builds(
    lambda kind, seat: (kind, seat, 1), st.sampled_from(DeadlineKind), st.integers(0, 3)
)
times = st.floats(0, 100, allow_nan=False)


@quick
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), keys, times),
            st.tuples(st.just("clear"), keys, st.none()),
            st.tuples(st.just("due"), st.none(), times),
        ),
        max_size=300,
    )
)
def test_deadlines_are_a_sorted_list(steps: list[tuple[str, Any, Any]]) -> None:
    deadlines = Deadlines()
    model: list[tuple[float, int, Key]] = []  # earliest first; among equals, set first
    serial = 0
    for what, key, at in steps:
        if what == "due":
            due = model.pop(0)[2] if model and model[0][0] <= at else None
            assert deadlines.pop_due(at) == due
        else:
            model = [entry for entry in model if entry[2] != key]
            if what == "set":
                serial += 1
                model = sorted([*model, (at, serial, key)], key=lambda entry: entry[:2])
                deadlines.set(key, at)
            else:
                deadlines.clear(key)
        assert len(deadlines) == len(model)
        assert deadlines.next() == (model[0][0] if model else None)


def test_a_deadline_that_is_moved_for_ever_takes_no_more_room() -> None:
    deadlines = Deadlines()
    key: Key = (DeadlineKind.START, 0, 1)
    for at in range(10_000):
        deadlines.set(key, float(at))
    assert len(deadlines) == 1
    assert len(deadlines._heap) < 100
    assert deadlines.next() == 9_999.0
    assert deadlines.pop_due(1e9) == key
    assert deadlines.next() is None


# ---- the reorder window ---------------------------------------------------------------------


@quick
@given(st.sampled_from(Order), st.integers(0, 10**6), st.integers(1, 60))
def test_each_position_leaves_the_window_once_and_in_order(
    order: Order, seed: int, count: int
) -> None:
    rng = random.Random(seed)
    window = ReorderWindow(order)
    waiting: list[int] = []
    arrived: list[int] = []
    void: set[int] = set()
    released: list[int] = []
    drawn = 0
    while drawn < count or waiting or arrived:
        step = rng.choice(["draw", "arrive", "void", "release", "release"])
        if step == "draw" and drawn < count:
            assert window.draw() == drawn
            waiting.append(drawn)
            drawn += 1
        elif step == "arrive" and waiting:
            position = waiting.pop(rng.randrange(len(waiting)))
            window.arrive(position, 100 + position)
            arrived.append(position)
            assert window.has_arrivals
        elif step == "void" and waiting and rng.random() < 0.2:
            position = waiting.pop(rng.randrange(len(waiting)))
            window.void(position)
            void.add(position)
        elif step == "release":
            if order is Order.OVERTAKE:
                due = arrived[0] if arrived else None
            else:
                first = min([*waiting, *arrived], default=None)
                due = first if first in arrived else None
            assert window.ready() == (None if due is None else 100 + due)
            assert window.release() == (None if due is None else 100 + due)
            if due is not None:
                arrived.remove(due)
                released.append(due)
        assert window.count == len(waiting) + len(arrived)
        assert list(window.unsound()) == []
    assert sorted([*released, *void]) == list(range(count))
    if order is Order.STRICT:
        assert released == sorted(released)


def test_a_cleared_window_gives_back_what_had_arrived_and_begins_at_zero() -> None:
    window = ReorderWindow(Order.OVERTAKE)
    for _ in range(3):
        window.draw()
    window.arrive(2, 12)
    window.arrive(0, 10)
    assert window.due() == 2
    assert sorted(window.clear()) == [10, 12]
    assert window.due() is None
    assert window.ready() is None
    assert window.release() is None
    assert window.draw() == 0


@quick
@given(st.sampled_from(Order), st.integers(0, 10**6))
def test_what_is_ready_is_what_is_released_also_among_those_that_do_not_overtake(
    order: Order, seed: int
) -> None:
    rng = random.Random(seed)
    window = ReorderWindow(order)
    waiting: set[int] = set()
    released: list[int] = []
    for _ in range(60):
        match rng.choice(["draw", "arrive", "fail", "void", "release"]):
            case "draw":
                waiting.add(window.draw())
            case "arrive" if waiting:
                window.arrive(position := rng.choice(sorted(waiting)), position)
                waiting.remove(position)
            case "fail":  # as a sampler does: at a position of its own
                window.arrive(position := window.draw(), position, in_turn=True)
            case "void" if waiting:
                window.void(position := rng.choice(sorted(waiting)))
                waiting.remove(position)
            case "release":
                ready = window.ready()
                assert window.ready() == ready, "a look changes nothing"
                assert window.release() == ready
                released += [] if ready is None else [ready]
        assert list(window.unsound()) == []
    assert len(set(released)) == len(released)
    if order is Order.STRICT:
        assert released == sorted(released)


def test_a_position_cannot_arrive_twice_or_without_being_drawn() -> None:
    window = ReorderWindow(Order.STRICT)
    window.draw()
    window.arrive(0, 1)
    with pytest.raises(KeyError):
        window.arrive(0, 2)
    with pytest.raises(KeyError):
        window.void(5)


# ---- seats ----------------------------------------------------------------------------------


def _life(state: LifeState) -> seats_module.Life:
    return seats_module.Life(1, LeaseTable(1), state=state)


def _served(seats: Seats, *numbers: int) -> Seats:
    for number in numbers:
        seats.all[number].life = _life(LifeState.SERVING)
    return seats


def test_the_least_loaded_seat_is_next_and_equals_take_turns() -> None:
    seats = _served(Seats(3), 0, 1, 2)
    turns = []
    for _ in range(6):
        seat = seats.least_loaded()
        assert seat is not None
        seat.undelivered += 1
        turns.append(seat.number)
    assert turns == [0, 1, 2, 0, 1, 2]
    seats.all[1].undelivered = 0
    chosen = seats.least_loaded()
    assert chosen is seats.all[1]


def test_in_turn_means_in_turn_whatever_a_seat_owes() -> None:
    seats = _served(Seats(3), 0, 2)
    seats.all[0].undelivered = 100
    numbers = [seat.number for seat in (seats.next_in_turn() for _ in range(4)) if seat]
    assert numbers == [0, 2, 0, 2]
    seats.rewind()
    assert seats.next_in_turn() is seats.all[0]


@pytest.mark.parametrize("state", list(SeatState))
@pytest.mark.parametrize("life", [None, *LifeState])
def test_only_an_open_seat_with_a_life_that_stays_takes_tickets(
    state: SeatState, life: LifeState | None
) -> None:
    seats = Seats(1)
    (seat,) = seats.all
    seat.state = state
    seat.life = None if life is None else _life(life)
    expected = state is SeatState.OPEN and life in (LifeState.STARTING, LifeState.SERVING)
    assert seat.takes_tickets is expected
    assert (seats.least_loaded() is seat) is expected
    assert (seats.next_in_turn() is seat) is expected


# ---- the transition tables ------------------------------------------------------------------

TABLES: dict[str, tuple[ModuleType, str, State, set[State]]] = {
    # name: where it is, its first state, and the states that are meant to be final
    "life": (seats_module, "LIFE_TRANSITIONS", LifeState.STARTING, {LifeState.GONE}),
    "seat": (seats_module, "SEAT_TRANSITIONS", SeatState.OPEN, {SeatState.CLOSED}),
    "lease": (leases_module, "TRANSITIONS", LeaseState.FREE, set()),
}
CUES: dict[str, type[State]] = {"life": LifeCue, "seat": SeatCue, "lease": LeaseCue}


def _table(name: str) -> dict[tuple[State, State], State]:
    module, attribute, _, _ = TABLES[name]
    table: dict[tuple[State, State], State] = getattr(module, attribute)
    return table


@pytest.mark.parametrize("name", TABLES)
def test_every_state_can_be_reached_and_only_the_final_ones_cannot_be_left(name: str) -> None:
    _, _, first, final = TABLES[name]
    table = _table(name)
    reached = {first}
    while new := {to for (state, _), to in table.items() if state in reached} - reached:
        reached |= new
    assert reached == set(type(first))
    left = {state for (state, _), to in table.items() if to is not state}
    assert reached - left == final
    assert {cue for _, cue in table} == set(CUES[name])


class Recorded(dict[Any, Any]):
    """A transition table that remembers which of its entries were used."""

    def __init__(self, table: dict[Any, Any]) -> None:
        super().__init__(table)
        self.used: set[Any] = set()

    def __getitem__(self, key: Any) -> Any:
        self.used.add(key)
        return super().__getitem__(key)


def test_every_entry_of_every_table_is_used_by_some_run(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = {name: Recorded(_table(name)) for name in TABLES}
    for name, (module, attribute, _, _) in TABLES.items():
        monkeypatch.setattr(module, attribute, recorded[name])
    dead = {}
    for seed in range(1000):  # about a hundred are enough
        walk = Walk(seed)
        walk.go(60)
        walk.arrive()
        dead = {name: set(table) - table.used for name, table in recorded.items()}
        if not any(dead.values()):
            break
    assert dead == {"life": set(), "seat": set(), "lease": set()}


@pytest.mark.parametrize("states", [*State.__subclasses__()], ids=lambda states: states.__name__)
def test_states_are_hashed_by_identity_and_stay_themselves(states: type[State]) -> None:
    for state in states:
        assert pickle.loads(pickle.dumps(state)) is state
        assert copy.deepcopy(state) is state
        assert hash(state) == object.__hash__(state)


def test_the_states_without_a_table_are_few() -> None:
    """Three small machines are moved by hand in the supervisor; a new state belongs here too."""
    assert [state.value for state in Run] == ["idle", "running", "finished", "broken", "closed"]
    assert [state.value for state in Loop] == ["away", "left", "waiting"]
    assert [state.value for state in Sampling] == ["more", "asked", "ended"]


# ---- verdicts -------------------------------------------------------------------------------


JUDGED = [FaultKind.CRASH, FaultKind.HANG]


def test_every_way_a_life_can_fail_a_ticket_has_a_verdict() -> None:
    both = (True, False)
    assert set(VERDICTS) == {(k, left, spares) for k in JUDGED for left in both for spares in both}
    assert set(VERDICTS.values()) == set(Verdict)


@pytest.mark.parametrize("kind", JUDGED)
def test_what_ended_a_life_is_tried_again_and_never_beyond_its_attempts(kind: FaultKind) -> None:
    for spares in (True, False):
        assert judge(kind, left=True, spares=spares) is Verdict.RETRY
    assert judge(kind, left=False, spares=True) is Verdict.SPARE
    assert judge(kind, left=False, spares=False) is Verdict.RAISE


# ---- story, accounts, plan ------------------------------------------------------------------


def test_a_story_keeps_the_last_entries_and_no_more() -> None:
    event_log = EventLog(limit=3)
    for at in range(10):
        event_log.record((float(at), RING, []))
    assert len(event_log) == 3
    assert [entry.at for entry in event_log] == [7.0, 8.0, 9.0]
    entry = list(event_log)[-1]
    assert (entry.event, entry.commands) == (RING, ())
    assert "ClockRang() -> nothing" in str(entry)


def test_a_story_for_replay_keeps_everything() -> None:
    event_log, most = EventLog(limit=None), LIMITS.records.event_log_entries
    assert most is not None
    for at in range(2 * most):
        event_log.record((float(at), ASK, [commands.DropParcel(at)]))
    assert len(event_log) == 2 * most
    assert "DropParcel(number=0)" in str(next(iter(event_log)))


def test_a_plan_needs_a_seat_and_a_window() -> None:
    for seats, window in ((0, 1), (1, 0), (-1, 5)):
        with pytest.raises(ValueError, match=f"{seats}, {window}"):
            Plan(seats=seats, window=window)


def test_a_life_has_slots_for_all_it_may_hold_and_the_loop_may_keep() -> None:
    plan = Plan(seats=2, window=4)
    assert plan.kept == 6
    assert plan.leases_a_life == 2 * 4 * LIMITS.bundles.tickets + 6
    assert Plan(seats=2, window=4, longest_bundle=1).leases_a_life == 2 * 4 + 6


# ---- messages -------------------------------------------------------------------------------

EXAMPLES: dict[type, Any] = {
    int: 3,
    float: 1.5,
    str: "words",
    bool: True,
    Any: (1, 2),
    events.Outcome: events.Outcome.FAILED,
    commands.Force: commands.Force.KILL,
    Ending: Ending(signal=9),
    Ticket: Ticket(1, 2, 3, (4, 5), (1,)),
    Lease: Lease(1, 2),
    tuple[int, ...]: (3, 4),
    tuple[Any, ...]: ((1, 2), (3,)),
    tuple[tickets.Errand, ...]: (tickets.Errand(Ticket(1, 2, 3, (4, 5), (1,)), Lease(1, 2), 0, 1),),
    Fault: Fault(FaultKind.CRASH, 1, 2, Ticket(1, 2, 3, (4,), (1,)), Ending(signal=11), 5, 0.5),
    FaultKind: FaultKind.HANG,
    Progress: Progress(1, 2, 3),
    SeatState: SeatState.RESTING,
    LifeState: LifeState.SERVING,
}
VALUES = [
    *(tickets.Progress, tickets.Ticket, tickets.Errand, leases_module.Lease),
    *(faults.Ending, faults.Fault, wait_totals.Timings),
]
MESSAGES = [*get_args(events.Event), *get_args(commands.Command), *VALUES]
SNAPSHOTS = [state_snapshots.SeatSnapshot, state_snapshots.SupervisorSnapshot]


def _example(cls: type) -> Any:
    hints = inspect.get_annotations(cls, eval_str=True)
    values = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        kinds = [kind for kind in get_args(hint) if kind in EXAMPLES]
        values.append(EXAMPLES[kinds[0]] if kinds else EXAMPLES.get(hint, ()))
    return cls(*values)


def test_the_unions_name_every_event_and_every_command() -> None:
    for module, union in ((events, events.Event), (commands, commands.Command)):
        made_here = {
            cls
            for _, cls in inspect.getmembers(module, dataclasses.is_dataclass)
            if cls.__module__ == module.__name__
        }
        assert made_here == set(get_args(union))


@pytest.mark.parametrize("cls", [*MESSAGES, *SNAPSHOTS], ids=lambda cls: cls.__name__)
def test_a_message_is_a_slotted_value_that_survives_pickling(cls: type) -> None:
    assert dataclasses.is_dataclass(cls)
    example = _example(cls)
    assert not hasattr(example, "__dict__"), "it has no slots"
    again = pickle.loads(pickle.dumps(example))
    assert again == example and again is not example
    assert type(again) is cls
    assert copy.deepcopy(example) == example
    assert hash(again) == hash(example)
    for field in dataclasses.fields(cls):
        changed = copy.copy(example)
        object.__setattr__(changed, field.name, object())
        assert changed != example, f"{field.name} does not count"


def test_the_indices_of_a_ticket_need_not_be_hashable() -> None:
    event = events.TicketsDrawn(([1, 2], [3]))
    assert event == events.TicketsDrawn(([1, 2], [3]))
    assert pickle.loads(pickle.dumps(event)) == event
    with pytest.raises(TypeError, match="unhashable"):
        hash(event)


def test_the_supervisor_changes_no_event_it_is_told() -> None:
    """Events are not frozen at run time, for speed; nobody may change one all the same."""
    walk = Walk(5, Plan(seats=2, window=3, limits=Limits(look_s=1.0)))
    told: list[tuple[events.Event, bytes]] = []
    handle = walk.world.sup.handle

    def watched(event: events.Event, now: float) -> Sequence[commands.Command]:
        told.append((event, pickle.dumps(event)))
        return handle(event, now)

    walk.world.sup.handle = watched
    walk.go(100)
    assert len(told) > 40
    for event, before in told:
        assert event == pickle.loads(before)
