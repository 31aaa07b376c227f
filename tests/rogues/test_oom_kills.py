"""Deaths for want of memory: each end that the kernel has counted explains one of them."""

from __future__ import annotations

import signal

from antifreeze._core.faults import Ending
from antifreeze._linux.oom_kills import WAITS_S, OomKills
from antifreeze._reporting.out_of_memory import explain_kill

KILLED = Ending(signal=signal.SIGKILL)


class Machine:
    """A kernel that counts whom it ends, and a clock."""

    ended: int | None = 7
    time = 100.0

    def __init__(self) -> None:
        self.shortage = OomKills(lambda: self.ended, lambda: self.time)

    def verdict(self) -> str:
        return (
            explain_kill(self.shortage, KILLED, 1 << 30).words.partition(":")[0].partition(";")[0]
        )


def test_workers_that_are_ended_together_are_all_said_to_be() -> None:
    machine = Machine()
    machine.ended = 10
    told = [machine.verdict() for _ in range(4)]
    assert told == [*["out of memory"] * 3, "someone sent SIGKILL"]


def test_an_end_explains_a_death_that_is_told_a_little_later_but_not_much_later() -> None:
    machine = Machine()
    machine.ended = 10
    assert machine.verdict() == "out of memory"
    machine.time += 0.9 * WAITS_S
    assert machine.verdict() == "out of memory"
    machine.time += 0.2 * WAITS_S
    assert machine.verdict() == "someone sent SIGKILL"
    machine.ended = 11
    assert machine.verdict() == "out of memory"


def test_where_nobody_counts_nothing_is_said() -> None:
    machine = Machine()
    machine.ended = None
    assert machine.verdict() == ""
    machine.ended = 12  # who knows of when that is
    assert machine.verdict() == ""
    assert machine.verdict() == "someone sent SIGKILL"


def test_other_deaths_use_up_no_end() -> None:
    machine = Machine()
    machine.ended = 8
    ending = Ending(signal=signal.SIGSEGV)
    assert explain_kill(machine.shortage, ending, 0) == ending
    assert machine.verdict() == "out of memory"
