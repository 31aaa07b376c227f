"""Many seeds on all cores: each block of them runs in a process of a pool."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from types import FrameType

from antifreeze._core.supervisor import Supervisor

from .epochs import TICKETS, Account
from .replay import simulate
from .trouble import FAULTS

CHECKED = 200  # one seed of so many is checked after every event, all of them after every epoch
BLOCK_S = 100  # a block takes seven seconds; one that takes so long is stuck, in a seed it names
# Epochs make little garbage that is in a cycle; to look for it often takes a fifth of the time.
OBJECTS = 20_000


@contextmanager
def little_tidying() -> Iterator[None]:
    """Look for cycles seldom, and never among what was there before."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)  # what was there stays out of it: so is what was imported


def counts(account: Account) -> bool:
    return account.tickets >= TICKETS and len(account.faults) >= FAULTS[0]


class Blocks:
    """Blocks of so many epochs, each with seeds of its own."""

    def __init__(self, epochs: int, make: Callable[..., Supervisor] = Supervisor) -> None:
        self.epochs = epochs
        self.make = make

    def run(self, first: int) -> int:
        """Run epochs of seeds from `first` on, until enough of them count. Gives how many did."""
        done = told = 0
        for seed in count(first):  # bounded: most of them count
            accounts = simulate(seed, self.make, checked=seed % CHECKED == 0)
            told += len(accounts)
            done += sum(map(counts, accounts))
            if done >= self.epochs:
                return done
            assert told < 2 * self.epochs, "too many of these epochs are too easy"
        raise AssertionError("seeds have no end")

    def run_bounded(self, first: int) -> int:
        """Run a block in a process of the pool. What is stuck there is told, with its seed."""
        signal.signal(signal.SIGALRM, _out_of_time)
        signal.alarm(BLOCK_S)
        try:
            with little_tidying():
                return self.run(first)
        finally:
            signal.alarm(0)

    def run_all(self, firsts: Sequence[int]) -> int:
        """Run blocks on all cores. The first that fails ends the others."""
        cores = min(len(os.sched_getaffinity(0)), len(firsts))
        with multiprocessing.get_context("fork").Pool(cores) as pool:
            blocks = pool.imap_unordered(self.run_bounded, firsts)
            # The pool would wait for ever for a process that was killed.
            return sum(blocks.next(timeout=2 * BLOCK_S) for _ in firsts)


def _out_of_time(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"no end after {BLOCK_S} s of this block")
