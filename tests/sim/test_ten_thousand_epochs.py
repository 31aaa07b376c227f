"""Ten thousand epochs of faults: nothing is lost, nothing comes twice, nothing waits for ever."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.fault_verdicts import Verdict
from antifreeze._core.faults import Fault
from antifreeze._core.health.stall_detection import Pulse
from antifreeze._core.loader_plan import Plan
from antifreeze._core.recovery import Recovery
from antifreeze._core.restarts import RestartBudget
from antifreeze._core.supervisor import Supervisor
from antifreeze._core.tickets import Ticket

from ..repetition import some_of
from . import blocks, replay
from .blocks import Blocks
from .books import Broken
from .epochs import Simulation
from .replay import simulate
from .trouble import DEADLY, MILD, POISON, STARTS, TURNS, WATCHED

EPOCHS = 10_000
SHARE = 1_250  # in one test
BLOCK = 625  # in one process
SEEDS = 1_000_000  # between the first seeds of two blocks
FORKS = "ignore:This process .* is multi-threaded:DeprecationWarning"  # the pool needs no thread


@pytest.fixture(autouse=True)
def little_tidying() -> Iterator[None]:
    with blocks.little_tidying():
        yield


@pytest.mark.timeout(300)  # a quarter of a minute on two processors that have nothing else to do
@pytest.mark.filterwarnings(FORKS)
@pytest.mark.parametrize("first", some_of(range(0, EPOCHS, SHARE), 1))
def test_every_epoch_of_ten_thousand_ends_and_all_of_it_is_accounted_for(first: int) -> None:
    blocks = range(first // BLOCK, (first + SHARE) // BLOCK)
    assert Blocks(BLOCK).run_all([block * SEEDS for block in blocks]) >= SHARE


def test_every_kind_of_fault_happens_and_most_epochs_are_whole() -> None:
    accounts = [account for seed in range(150) for account in simulate(seed)]
    happened = {fault for account in accounts for fault in account.faults}
    assert happened == {*MILD, *DEADLY, *POISON, *STARTS, *WATCHED, *TURNS, "broken off"}
    assert sum(account.whole for account in accounts) > 0.9 * len(accounts)


def test_the_supervisor_is_driven_to_all_it_can_do() -> None:
    """An epoch in which nobody is ever spared, abandoned or resumed would prove little."""
    seen: set[object] = set()

    class Watching(Supervisor):
        def handle(self, event: ev.Event, now: float) -> Sequence[do.Command]:
            commands = super().handle(event, now)
            seen.add(type(event))
            for command in commands:
                seen.add(type(command))
                if isinstance(command, do.RaiseFault):
                    seen.add(command.fault.kind.value)
                elif isinstance(command, do.KillLife) and command.unfit:
                    seen.add(f"all {self.plan.source.value} anew")
                elif isinstance(command, do.ReportStall):
                    seen.add(command.stall.pulse)
                elif isinstance(command, do.SendTickets):
                    seen.update(f"spared {len(e.ticket.spared)}" for e in command.errands)
                elif isinstance(command, do.Deliver):
                    seen.add("copied" if command.copied else "kept")
            return commands

    for seed in range(200):
        simulate(seed, Watching)
    raised = {"crash", "hang", "sampler", "stream lost", "timeout"}
    spared = {"spared 0", "spared 1", "spared 2"}
    pulses = set(Pulse) - {Pulse.SLOW}  # that is for who looks once
    turns = {"all indices anew", "all streams anew"}
    assert raised | spared | pulses | turns | {"copied", "kept"} <= seen
    assert set(ev.Event.__args__) <= seen
    assert set(do.Command.__args__) <= seen


# ---- the simulation itself ------------------------------------------------------------------


def event_log(seed: int) -> list[str]:
    simulation = Simulation(seed, whole_log=True)
    list(simulation.epochs())
    return [str(entry) for entry in simulation.sup.event_log]


def test_a_seed_takes_the_same_way_again() -> None:
    assert event_log(7) == event_log(7)
    assert event_log(7) != event_log(8)


class LosesATicket(Supervisor):
    """Forgets what the sampler gave last, now and then."""

    def handle(self, event: ev.Event, now: float) -> Sequence[do.Command]:
        if isinstance(event, ev.TicketsDrawn) and len(event.indices) > 1:
            event = ev.TicketsDrawn(event.indices[:-1])
        return super().handle(event, now)


class DeliversTwice(Supervisor):
    """Gives the loop what it has had."""

    _last: do.Command | None = None

    def handle(self, event: ev.Event, now: float) -> Sequence[do.Command]:
        commands = list(super().handle(event, now))
        for place, command in enumerate(commands):
            if isinstance(command, do.Deliver):
                if self.progress.delivered == 20 and self._last is not None:
                    commands[place] = self._last
                self._last = command
        return commands


class KeepsQuiet(Supervisor):
    """Does not hear of the end of a life."""

    def handle(self, event: ev.Event, now: float) -> Sequence[do.Command]:
        return [] if isinstance(event, ev.LifeEnded) else super().handle(event, now)


class NeverRings(Supervisor):
    """Has no deadlines."""

    def next_wakeup(self) -> float | None:
        return None


class BlamesTheInnocent(Supervisor):
    """Raises at the first loss what deserves a second try."""

    class Hasty(Recovery):
        def _judge(self, fault: Fault, ticket: Ticket) -> Verdict:
            self._ledger.fail(ticket, fault)
            return Verdict.RAISE

    def __init__(self, plan: Plan, **named: Any) -> None:
        super().__init__(plan, **named)
        self._recovery = self.Hasty(plan, self._seats, self._ledger, self._bundles, self.faults)
        self._restarts = RestartBudget(plan.limits, self._lifecycle, self._recovery, self.faults)


class LendsTwice(Supervisor):
    """Has a slab filled that the loop looks at."""

    def handle(self, event: ev.Event, now: float) -> Sequence[do.Command]:
        commands = super().handle(event, now)
        for key, (life, lease) in list(self._ledger.kept.items()):
            life.leases.free(lease)
            del self._ledger.kept[key]
        return commands


class OutOfOrder(Supervisor):
    """Gives a bundle in the wrong order."""

    def handle(self, event: ev.Event, now: float) -> Sequence[do.Command]:
        return [
            do.Deliver(command.errands[::-1], command.copied)
            if isinstance(command, do.Deliver)
            else command
            for command in super().handle(event, now)
        ]


class EndsTheWell(Supervisor):
    """Replaces whoever says that it is at work."""

    def handle(self, event: ev.Event, now: float) -> Sequence[do.Command]:
        commands = super().handle(event, now)
        if isinstance(event, ev.LivesSeen):
            out = list(commands)
            for sight in event.sights:
                self._replace(self._seats.all[sight.seat], now, out)
            return out
        return commands


class Spins(Supervisor):
    """Never comes back, at the first draw."""

    def handle(self, event: ev.Event, now: float) -> Sequence[do.Command]:
        while isinstance(event, ev.TicketsDrawn):
            pass
        return super().handle(event, now)


DEFECTS = (
    LosesATicket,
    DeliversTwice,
    KeepsQuiet,
    NeverRings,
    BlamesTheInnocent,
    LendsTwice,
    OutOfOrder,
    EndsTheWell,
)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_supervisor_is_found_out_that(defect: type[Supervisor]) -> None:
    """Without a look at its own idea of soundness: `check` may share its mistake."""
    for seed in range(30):
        try:
            simulate(seed, defect)
        except Broken as error:
            assert f"--seed {seed}" in str(error)
            return
    raise AssertionError("nobody noticed")


@pytest.mark.filterwarnings(FORKS)
def test_what_fails_in_another_process_names_its_seed_and_what_is_stuck_there_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(Broken, match=r"again: python -m tests.sim.replay --seed \d+") as told:
        Blocks(100, DeliversTwice).run_all([500, 700_000])
    (seed,) = map(int, re.findall(r"--seed (\d+)", str(told.value)))
    assert seed in range(500, 600) or seed in range(700_000, 700_100)  # whichever fails first
    with pytest.raises(Broken) as again:
        simulate(seed, DeliversTwice)
    assert str(again.value) in str(told.value)
    monkeypatch.setattr(blocks, "BLOCK_S", 1)
    with pytest.raises(Broken, match="seed 500: TimeoutError: no end after 1 s"):
        Blocks(100, Spins).run_all([500])


def test_a_failure_names_its_seed_and_the_seed_tells_its_story(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert replay.main(["--seed", "3"]) == 0
    whole = capsys.readouterr().out
    assert "EpochAsked(epoch=1" in whole and "fault: " in whole and "CloseAsked()" in whole
    assert replay.main(["--seed", "3", "--epoch", "0"]) == 0
    first = capsys.readouterr().out
    assert "EpochAsked(epoch=0" in first and "EpochAsked(epoch=1" not in first


def test_a_story_that_ends_badly_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **named: Any) -> Simulation:
        return Simulation(*args, DeliversTwice, **named)

    monkeypatch.setattr(replay, "Simulation", broken)
    assert replay.main(["--seed", "3"]) == 1
    assert "BROKEN: Broken: Deliver" in capsys.readouterr().out
