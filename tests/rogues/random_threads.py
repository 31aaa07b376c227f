"""Random programs with threads: python -m tests.rogues.random_threads FIRST COUNT

Each has threads that are parked, that come and go or that run, perhaps one that holds a lock for
good, where the search finds it or where it does not; a dataset that needs that lock from some
sample on; and loops of some shape. What comes must be what the dataset says, in order, each sample
once, and nothing may hang. Each program runs in a process of its own, forked from this one, and
prints what differs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import os
import queue
import random
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from antifreeze import DataLoader

from .parked import wait_until_parked

SAMPLES = 30
BOUND_S = 200  # for a program; a machine may stand still for a minute
HIDDEN: dict[int, Any] = dict.fromkeys(range(60))  # so long that the search does not reach its end
FOUND: list[Any] = []


def waits_for_an_event() -> None:
    threading.Event().wait()


def waits_for_a_queue() -> None:
    tasks: queue.Queue[int] = queue.Queue()
    tasks.get()


def waits_for_a_simple_queue() -> None:
    tasks: queue.SimpleQueue[int] = queue.SimpleQueue()
    tasks.get()


def waits_in_a_condition() -> None:
    condition = threading.Condition()
    with condition:
        condition.wait()


def waits_for_a_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.recv(1)


def waits_in_select() -> None:
    select.select([], [], [], 1000)


def sleeps() -> None:
    time.sleep(1000)


def loops_over_events() -> None:
    asyncio.run(asyncio.sleep(1000))


def wakes_now_and_then() -> None:
    lock = threading.Lock()
    while True:
        with lock:
            sum(range(1000))
        time.sleep(0.003)


def logs_now_and_then() -> None:
    log = logging.getLogger("random_threads")
    log.addHandler(logging.NullHandler())
    while True:
        log.warning("still here")
        time.sleep(0.002)


def runs() -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        sum(range(1000))


PARKED: tuple[Callable[[], None], ...] = (
    waits_for_an_event,
    waits_for_a_queue,
    waits_for_a_simple_queue,
    waits_in_a_condition,
    waits_for_a_socket,
    waits_in_select,
    sleeps,
    loops_over_events,
)
MOVING: tuple[Callable[[], None], ...] = (wakes_now_and_then, logs_now_and_then, runs)


class ByQueue:
    """The lock inside a queue, as `with` finds it."""

    def __init__(self) -> None:
        self.queue: queue.Queue[int] = queue.Queue()

    def acquire(self) -> bool:
        return self.queue.mutex.acquire()

    def release(self) -> None:
        self.queue.mutex.release()


LOCKS: tuple[Callable[[], Any], ...] = (
    threading.Semaphore,
    threading.Lock,
    threading.RLock,
    threading.Condition,
    threading.BoundedSemaphore,
    ByQueue,
)
PLACES = ("attribute", "module", "hidden", "closure", "default", "partial", "slot")
LOOPS = ("whole", "twice", "left", "two at once", "in a thread")
KINDS = ("plain", "batched", "stream", "collated")


@dataclass(frozen=True)
class Program:
    """What a number stands for."""

    threads: tuple[Callable[[], None], ...]
    pool: bool  # an executor that was used once
    lock: Callable[[], Any]
    place: str
    held: bool
    first: int  # sample that needs the lock; none if there are fewer
    kind: str
    loop: str
    workers: int
    persistent: bool

    @classmethod
    def of(cls, number: int) -> Program:
        dice = random.Random(number)
        threads = dice.choices(PARKED, k=dice.randrange(4))
        if dice.random() < 0.3:
            threads.append(dice.choice(MOVING))
        kind = dice.choice(KINDS)
        held = dice.random() < 0.5
        # What a semaphore without a bound began with is not known: its value is data, and is kept.
        lock = dice.choice(LOCKS[1:] if held else LOCKS)
        # Of a stream that has given something nothing can be made anew.
        firsts = (0, SAMPLES) if held and kind == "stream" else (0, 1, 17, SAMPLES - 1, SAMPLES)
        return cls(
            threads=tuple(threads),
            pool=dice.random() < 0.3,
            lock=lock,
            place=dice.choice(PLACES),
            held=held,
            first=dice.choice(firsts),
            kind=kind,
            loop=dice.choice(LOOPS),
            workers=dice.randint(1, 3),
            persistent=dice.random() < 0.4,
        )


class Slotted:
    __slots__ = ("lock",)

    def __init__(self, lock: Any) -> None:
        self.lock = lock


def use(lock: Any) -> None:
    lock.acquire()
    lock.release()


def user_of(lock: Any, place: str) -> Callable[[], None]:
    """Return what takes the lock and lets go of it, and reaches it from some place."""
    if place == "attribute":
        return Attribute(lock)
    if place == "module":
        FOUND[:] = [lock]
        return lambda: use(FOUND[0])
    if place == "hidden":
        HIDDEN[59] = [lock]
        return lambda: use(HIDDEN[59][0])
    if place == "closure":
        return lambda: use(lock)
    if place == "default":

        def by_default(it: Any = lock) -> None:
            use(it)

        return by_default
    if place == "partial":
        return functools.partial(use, lock)
    slotted = Slotted(lock)
    return lambda: use(slotted.lock)


class Attribute:
    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __call__(self) -> None:
        use(self.lock)


class Plain:
    def __init__(self, take: Callable[[], None], first: int) -> None:
        self.take, self.first = take, first

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        if index >= self.first:
            self.take()
        return 3 * index


class Batched(Plain):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


class Streamed(IterableDataset[int]):
    def __init__(self, take: Callable[[], None], first: int) -> None:
        self.take, self.first = take, first

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        for index in range(info.id, SAMPLES, info.num_workers):
            if index >= self.first:
                self.take()
            yield 3 * index


class Collate:
    def __init__(self, take: Callable[[], None], first: int) -> None:
        self.take, self.first = take, first

    def __call__(self, samples: list[int]) -> list[int]:
        if samples[-1] >= 3 * self.first:
            self.take()
        return samples


def loader_of(program: Program, take: Callable[[], None]) -> DataLoader[Any]:
    options: dict[str, Any] = {
        "batch_size": 2,
        "num_workers": program.workers,
        "persistent_workers": program.persistent,
        "collate_fn": list,
    }
    if program.kind == "stream":
        return DataLoader(Streamed(take, program.first), **options)
    if program.kind == "collated":
        options["collate_fn"] = Collate(take, program.first)
        return DataLoader(range(0, 3 * SAMPLES, 3), **options)
    kind = Plain if program.kind == "plain" else Batched
    return DataLoader(kind(take, program.first), **options)


def expected() -> list[int]:
    return [3 * index for index in range(SAMPLES)]


def epoch(program: Program, loader: Any, what: str) -> None:
    got = list(itertools.chain.from_iterable(loader))
    if program.kind == "stream":
        got.sort()  # workers deliver in turns, and of pairs
    if got != expected():
        print(f"{what}: {got}")


def loops(program: Program, loader: DataLoader[Any], take: Callable[[], None]) -> None:
    if program.loop == "left":
        for _ in zip(range(3), loader, strict=False):
            pass
    if program.loop == "two at once":
        other = loader_of(program, take)
        outer = list(
            itertools.chain.from_iterable(
                itertools.chain.from_iterable(zip(loader, other, strict=True))
            )
        )
        if sorted(outer) != sorted(2 * expected()):
            print(f"two at once: {outer}")
    epoch(program, loader, "an epoch")
    if program.loop == "twice":
        epoch(program, loader, "the second epoch")


def perform(program: Program) -> None:
    for act in program.threads:
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        if act in PARKED:
            wait_until_parked(thread)
    lock = program.lock()
    if program.held:
        taken = threading.Event()

        def hold() -> None:
            lock.acquire()
            taken.set()
            threading.Event().wait()

        holder = threading.Thread(target=hold, name="holder", daemon=True)
        holder.start()
        taken.wait()
        wait_until_parked(holder)
    take = user_of(lock, program.place)
    with ThreadPoolExecutor(2) if program.pool else contextlib.nullcontext() as pool:
        if pool is not None:
            pool.submit(int).result()
        loader = loader_of(program, take)
        if program.loop == "in a thread":
            thread = threading.Thread(target=loops, args=(program, loader, take))
            thread.start()
            thread.join()
        else:
            loops(program, loader, take)
        if loader.faults:
            print(f"faults: {loader.faults}")


def run(number: int) -> None:
    """Run one program in a child, within bounds."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            perform(Program.of(number))
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        finally:
            sys.stdout.flush()
            os._exit(code)
    give_up = time.monotonic() + BOUND_S
    while time.monotonic() < give_up:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            if status:
                print(f"{number}: {Program.of(number)}: status {status}")
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    print(f"{number}: {Program.of(number)}: it hangs")


def main(first: int, count: int) -> None:
    for number in range(first, first + count):
        began = time.monotonic()
        run(number)
        print(f"{number} {time.monotonic() - began:.1f} s", file=sys.stderr)
        sys.stdout.flush()
    print(f"ran {count}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
