"""The real loader, simulated workers, virtual time: order, recovery, deadlines, no process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

from antifreeze._core.tickets import Ticket
from antifreeze.errors import BudgetSpent, WorkerCrashed, WorkerHung
from antifreeze.testing import SimulatedLoader, World
from antifreeze.testing.sim import FrozenWorld, SimulatedBackend


def samples(loader: SimulatedLoader[Any]) -> list[int]:
    return [int(i) for batch in loader for i in batch]


def test_an_epoch_is_delivered_in_order_whatever_the_speeds() -> None:
    dice = random.Random(1)
    world = World(load_s=lambda seat, ticket: dice.uniform(0.001, 1.0))
    loader = SimulatedLoader(range(200), batch_size=3, num_workers=3, world=world)
    assert samples(loader) == list(range(200))


def test_out_of_order_delivers_the_quick_ones_first_and_every_one_once() -> None:
    world = World(load_s=lambda seat, ticket: 1.0 if ticket.position == 0 else 0.01)
    loader = SimulatedLoader(range(20), num_workers=2, in_order=False, world=world)
    got = samples(loader)
    assert got[-2:] == [0, 2]  # the slow one, and the one that waited behind it
    assert sorted(got) == list(range(20))


def test_four_workers_take_a_quarter_of_the_time() -> None:
    took = {}
    for workers in (1, 4):
        world = World(load_s=lambda seat, ticket: 1.0, start_s=0.0, stop_s=0.0)
        samples(SimulatedLoader(range(40), num_workers=workers, world=world))
        took[workers] = world.clock.now()
    assert took[1] == pytest.approx(40.0)
    assert took[4] == pytest.approx(10.0)


def test_workers_that_crash_cost_their_work_and_nothing_else() -> None:
    world = World(crashes=lambda seat, ticket: ticket.attempt == 1 and ticket.position % 5 == 2)
    loader = SimulatedLoader(range(300), batch_size=4, num_workers=4, world=world)
    iterator = iter(loader)
    got = [int(i) for batch in iterator for i in batch]
    assert got == list(range(300))
    assert iterator.snapshot().supervisor.restarts == 15


def test_a_batch_that_ends_two_workers_is_raised_in_its_turn_and_the_rest_goes_on() -> None:
    world = World(crashes=lambda seat, ticket: ticket.position == 6)
    loader = SimulatedLoader(range(40), batch_size=4, num_workers=2, world=world)
    iterator, got, errors = iter(loader), [], []
    while True:
        try:
            got.append(next(iterator)[0].item())
        except StopIteration:
            break
        except WorkerCrashed as error:
            errors.append((len(got), str(error)))
    assert got == [0, 4, 8, 12, 16, 20, 28, 32, 36]
    assert len(errors) == 1
    turn, text = errors[0]
    assert turn == 6
    assert text.startswith("DataLoader worker (simulated, life ")
    assert "is killed by signal: Killed." in text
    assert "samples [24, 25, 26, 27]" in text


def test_a_dataset_on_which_every_worker_dies_ends_the_run_within_bounds() -> None:
    world = World(crashes=lambda seat, ticket: True)
    loader = SimulatedLoader(range(1000), num_workers=2, world=world)
    iterator, errors = iter(loader), []
    for _ in range(1000):
        try:
            next(iterator)
        except BudgetSpent:
            break
        except WorkerCrashed as error:
            errors.append(error)
    else:
        raise AssertionError("it went on for ever")
    assert iterator.snapshot().supervisor.restarts <= 2 * 8
    with pytest.raises(BudgetSpent):
        next(iterator)


def test_the_loops_own_timeout_names_what_it_waited_for_and_the_work_goes_on() -> None:
    world = World(load_s=lambda seat, ticket: 7.0 if ticket.position == 1 else 0.1)
    loader = SimulatedLoader(range(6), batch_size=2, num_workers=2, timeout=5, world=world)
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1]
    with pytest.raises(WorkerHung, match="DataLoader timed out after 5 seconds") as caught:
        next(iterator)
    assert "samples [2, 3]" in str(caught.value)
    assert next(iterator).tolist() == [2, 3]
    assert next(iterator).tolist() == [4, 5]


def test_a_ticket_that_is_kept_for_ever_is_taken_back_twice_and_raised() -> None:
    world = World(hangs=lambda seat, ticket: ticket.position == 3)
    iterator = iter(SimulatedLoader(range(20), num_workers=2, world=world))
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(WorkerHung, match="sample 3"):
        next(iterator)
    assert 600.0 <= world.clock.now() < 700.0
    assert [int(batch) for batch in iterator] == list(range(4, 20))


def test_a_sample_that_hangs_once_costs_its_time_and_nothing_else() -> None:
    world = World(hangs=lambda seat, ticket: ticket.position == 3 and ticket.attempt == 1)
    loader = SimulatedLoader(range(20), num_workers=2, world=world, sample_timeout=5)
    assert samples(loader) == list(range(20))
    assert 5.0 <= world.clock.now() < 7.0


def test_a_wait_without_a_bound_is_noticed() -> None:
    job: Any = None
    with pytest.raises(FrozenWorld):
        SimulatedBackend(job, World()).wait(None)


class Shards(IterableDataset[int]):
    """A stream of its own length in each simulated life."""

    lengths = [5, 1, 3]
    made = 0

    def __iter__(self) -> Iterator[int]:
        shard = Shards.made
        Shards.made += 1
        return iter(range(100 * shard, 100 * shard + self.lengths[shard]))


def test_streams_of_unequal_length_are_woven_in_turn() -> None:
    Shards.made = 0
    loader = SimulatedLoader(Shards(), num_workers=3, batch_size=None, world=World(start_s=0.0))
    assert list(loader) == [0, 100, 200, 1, 201, 2, 202, 3, 4]


def test_persistent_workers_serve_a_second_epoch_after_an_early_break() -> None:
    world = World()
    loader = SimulatedLoader(
        range(40), batch_size=2, num_workers=2, persistent_workers=True, world=world
    )
    for batch in loader:
        if batch[0] == 6:
            break
    assert samples(loader) == list(range(40))
    iterator = loader._iterator
    assert iterator is not None
    assert [seat.lives for seat in iterator.snapshot().supervisor.seats] == [1, 1]


def test_the_loops_time_is_split_into_waiting_and_working() -> None:
    world = World(load_s=lambda seat, ticket: 1.0, start_s=0.0)
    loader = SimulatedLoader(range(4), num_workers=1, world=world)
    iterator = iter(loader)
    for _ in iterator:
        world.clock.move_to(world.clock.now() + 0.25)
    snapshot = iterator.snapshot()
    assert snapshot.away_s == pytest.approx(4 * 0.25)
    assert snapshot.waited_s == pytest.approx(1.0 + 3 * 0.75 + world.stop_s)


def test_ten_thousand_batches_with_crashes_take_no_time_at_all() -> None:
    dice = random.Random(7)

    def unlucky(seat: int, ticket: Ticket) -> bool:
        return ticket.attempt == 1 and dice.random() < 0.01

    loader = SimulatedLoader(range(10_000), num_workers=4, world=World(crashes=unlucky))
    assert torch.cat(list(loader)).tolist() == list(range(10_000))
