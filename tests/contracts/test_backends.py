"""One suite, every backend: what the driver may rely on."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from antifreeze._core.commands import Force
from antifreeze._core.events import LifeEnded, LifeReady, Outcome, ParcelsArrived
from antifreeze._core.slab_leases import Lease
from antifreeze._core.tickets import Errand, Ticket
from antifreeze._engine.pin_memory import PinnedBackend
from antifreeze._loading.job import Job
from antifreeze._processes.backend_protocol import Backend, Notice
from antifreeze._processes.process_backend import ProcessBackend
from antifreeze._worker.worker_spec import EpochBrief
from antifreeze.testing.sim import SimulatedBackend, World

from ..patience import PATIENCE_S


class Squares:
    def __getitem__(self, index: int) -> int:
        if index < 0:
            raise ValueError(f"no square of {index}")
        return index * index


def job(dataset: Any = None, *, streams: bool = False) -> Job:
    return Job(
        dataset=Squares() if dataset is None else dataset,
        streams=streams,
        auto_collation=not streams,
        collate_fn=list if not streams else lambda sample: sample,
        drop_last=False,
        num_workers=1,
        base_seed=0,
        init_fn=None,
    )


class NoDevice:
    """A device that pins by leaving everything as it is."""

    device = "fake"

    def enter_thread(self) -> None:
        pass

    def pin(self, batch: Any) -> Any:
        return batch


def processes(work: Job) -> Backend:
    return ProcessBackend(work, multiprocessing.get_context("fork"))


BACKENDS: dict[str, Callable[[Job], Backend]] = {
    "processes": processes,
    "pinned": lambda work: PinnedBackend(processes(work), NoDevice()),
    "simulated": lambda work: SimulatedBackend(work, World()),
}
KILLABLE = ["processes", "pinned", "simulated"]


class Client:
    """Talks to a backend like the driver does, with bounded patience."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._numbers = 0
        self.notices: list[Notice] = []

    def start(self, life: int = 1) -> None:
        self.backend.start(0, life, EpochBrief(0))
        self.until(LifeReady)

    def send(self, indices: Any, life: int = 1) -> int:
        self._numbers += 1
        ticket = Ticket(self._numbers, 0, self._numbers - 1, indices)
        self.backend.send(0, life, (Errand(ticket, Lease(0, self._numbers), 0, life),))
        return self._numbers

    def until(self, kind: type) -> Notice:
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            for place, notice in enumerate(self.notices):
                if isinstance(notice.event, kind):
                    return self.notices.pop(place)
            self.backend.wait(1.0)
            self.notices.extend(self.backend.collect())
        raise AssertionError(f"no {kind.__name__} within {PATIENCE_S} s")

    def end(self) -> None:
        self.backend.stop(0, 1)
        self.until(LifeEnded)


@pytest.fixture(params=BACKENDS)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    backend = BACKENDS[request.param](job())
    yield Client(backend)
    backend.close()


def test_a_life_says_that_it_is_ready_and_brings_what_it_is_sent(client: Client) -> None:
    client.start()
    number = client.send([2, 3])
    notice = client.until(ParcelsArrived)
    assert isinstance(notice.event, ParcelsArrived)
    assert (notice.event.numbers, notice.event.outcome) == ((number,), Outcome.LOADED)
    assert [parcel.open() for parcel in notice.parcels] == [[4, 9]]
    client.end()


def test_parcels_carry_the_time_the_work_took(client: Client) -> None:
    client.start()
    client.send([1])
    arrived = client.until(ParcelsArrived).event
    assert isinstance(arrived, ParcelsArrived)
    timings = arrived.timings
    assert timings is not None
    assert timings.begun_at <= timings.sealed_at
    assert timings.fetch_s + timings.collate_s + timings.pack_s <= (
        timings.sealed_at - timings.begun_at + 1e-6
    )
    client.end()


def test_what_the_dataset_raises_is_in_the_parcel_and_the_life_goes_on(client: Client) -> None:
    client.start()
    client.send([1, -7])
    notice = client.until(ParcelsArrived)
    assert isinstance(notice.event, ParcelsArrived)
    assert notice.event.outcome is Outcome.FAILED
    (failed,) = notice.parcels
    with pytest.raises(ValueError, match="no square of -7"):
        failed.open()
    client.send([5])
    assert [parcel.open() for parcel in client.until(ParcelsArrived).parcels] == [[25]]
    client.end()


def test_a_life_that_is_stopped_ends_with_exit_code_zero(client: Client) -> None:
    client.start()
    client.backend.stop(0, 1)
    ended = client.until(LifeEnded).event
    assert isinstance(ended, LifeEnded)
    assert (ended.seat, ended.life, ended.ending.exit_code) == (0, 1, 0)


def test_nothing_is_told_of_a_life_after_its_end(client: Client) -> None:
    client.start()
    client.backend.stop(0, 1)
    client.until(LifeEnded)
    client.send([1])  # to nobody
    client.backend.wait(0.0)
    assert list(client.backend.collect()) == []


def test_waiting_takes_no_longer_than_allowed(client: Client) -> None:
    client.start()
    before = time.monotonic()
    client.backend.wait(0.05)
    assert time.monotonic() - before < 5.0
    client.end()


@pytest.mark.parametrize("name", KILLABLE)
def test_a_killed_life_is_told_with_its_signal_and_a_new_one_can_take_its_seat(name: str) -> None:
    backend = BACKENDS[name](job())
    client = Client(backend)
    client.start()
    backend.kill(0, 1, Force.KILL)
    ended = client.until(LifeEnded).event
    assert isinstance(ended, LifeEnded)
    assert ended.ending.signal == 9
    client.start(life=2)
    client.send([3], life=2)
    assert [parcel.open() for parcel in client.until(ParcelsArrived).parcels] == [[9]]
    backend.stop(0, 2)
    client.until(LifeEnded)
    backend.close()


@pytest.mark.parametrize("name", ["processes", "pinned"])
def test_a_wait_in_another_thread_can_be_woken(name: str) -> None:
    import threading

    backend = BACKENDS[name](job())
    woken = threading.Event()

    def wait() -> None:
        backend.wait(PATIENCE_S)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    backend.wake()
    assert woken.wait(PATIENCE_S / 2)
    thread.join(PATIENCE_S)
    backend.close()
