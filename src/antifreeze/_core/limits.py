"""Every bound that antifreeze keeps: its unit, its default, and the reason for it."""

from __future__ import annotations

from .messages import frozen


@frozen
class Limits:
    """Every bound has a name, a default and a reason. Seconds and counts."""

    # A sample whose worker dies is tried once more: an out-of-memory kill or a cosmic ray does
    # not come back, a poisonous sample does, and a third try would only cost another worker.
    attempts: int = 2
    # Tries of a whole ticket, if each of them ends with another of its samples: who kills workers
    # now and then hits a long batch more than once. Where every sample kills, nobody gets far.
    tries: int = 6
    # Samples of one batch that may so be left to the policy. Where more fail, all will.
    spared: int = 16
    # Lives of a seat, in a row, that end before they have begun an epoch. Twice can be bad luck.
    failed_starts: int = 3
    # Lives of a seat, in a row, that bring no batch. Stops a restart loop that makes no progress.
    barren_lives: int = 8
    # Until a life listens. A spawned one imports the whole program first.
    start_s: float = 120.0
    # A process that ends closes its channel a moment before its end can be seen.
    silent_s: float = 1.0
    # How often to look at what lives do, while the loop waits. None: never.
    look_s: float | None = None
    # How long one call of the user's code may take, whatever it does. None: as long as it moves.
    call_s: float | None = None
    # ... without processor time, I/O or a change of its stack. None: as long as it likes. A slow
    # server, or a disk that has to spin up, is back by then.
    still_s: float | None = 300.0
    # ... using the processor on one unchanged stack. There is code that computes for minutes.
    spin_s: float | None = 1800.0
    # A life that holds tickets and takes none up: it will not get better. Long enough for a machine
    # that swaps.
    dead_s: float = 5.0
    # A life whose threads all wait for each other, with no limit: that is proven, at every look.
    locked_s: float = 3.0
    # ... if lives can be made anew without what they wait for: then nothing is lost by it. Two
    # looks, and a bit.
    turn_s: float = 1.5
    # Memory of its own that a life may hold. None: what the machine has.
    life_bytes: int | None = None
    # When less than this share of the memory there is is left, who has grown most is let go, if by
    # this much at least. 0: nobody is.
    short: float = 0.1
    grown_bytes: int = 64 * 1024 * 1024
    # Rest after the second barren life in a row; doubles up to `rest_max_s`.
    rest_s: float = 0.05
    rest_max_s: float = 2.0
    # A busy worker is not waited for: leaving a loop early takes less than half a second in all.
    stop_s: float = 0.25
    # An idle one leaves in a few milliseconds by itself; on a crowded machine it may take a while.
    stop_idle_s: float = 5.0
    terminate_s: float = 0.1
    # SIGKILL needs 130 ms to take 4 GiB apart; what still lives then sits in the kernel.
    kill_s: float = 5.0
