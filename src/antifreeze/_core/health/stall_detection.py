"""Who keeps the loop waiting, for how long, and whether that is stuck or only slow.

1. A life says which call it is in: a ticket, and a step of it (`worker_phases`). Another call is
   progress, and all that was known of the old one is forgotten.
2. A call that lasts is examined, again and again. What changes between two looks says what it is.
   Bytes that were read or written, or that it went on to another part of the code, are progress: it
   moves. Processor time alone is not: it runs, and nobody can tell a long computation from a loop
   without end. To wake up and sleep again at the same line is nothing at all: it is stuck.
3. It is reported at growing intervals. What moves is never ended; what is stuck or spins is, when
   its time is over; who gave a number of seconds wants it ended then, whatever it does.
4. Standing still counts from the first close look on. Nothing is counted as time of a call that
   passed while the life may have waited for the loop, or while the program was stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from ..frozen_values import frozen, message, record
from ..limits import Limits, StallLimits
from ..states import State
from .worker_phases import CLEAN, HAND_OVER, OURS, is_of_user


class Pulse(State):
    SLOW = "slow"  # nobody has looked twice
    MOVING = "slow but moving"
    RUNNING = "running"  # it uses the processor, and no progress is seen
    STUCK = "stuck"
    SPINNING = "running on one line"  # the same, and its stack has not changed for long
    DEADLOCKED = "deadlocked"
    STOPPED = "stopped"


@message
class Sight:
    """What a life says it does."""

    seat: int
    life: int
    ticket: int  # its number; 0: none
    step: int
    own_bytes: int = 0  # of memory that is its own; 0: nobody knows


@frozen
class StackLine:
    """One line of a stack."""

    file: str
    line: int
    function: str


@frozen
class Inherited:
    """What a forked life cannot live with: a lock that nobody in it releases, or threads that are
    not there."""

    words: str
    no_way: str = ""  # why lives cannot be made anew without it; empty: they can
    proven: bool = True  # else it may yet go on: it has its time, as any call


@frozen
class Activity:
    """What can be seen of a life from outside, at one moment."""

    cpu_s: float = 0.0  # all its threads
    cpu_s_of_others: float = 0.0  # the processes it has started
    io_bytes: int = 0  # all of these, with what we had it write
    own_bytes: int = 0  # that we had it write: its stacks
    stack: tuple[StackLine, ...] = ()  # of its main thread, innermost first, seconds old
    waits_for: str = ""  # what the kernel says: "a lock", "reading /data/17.jpg"
    stopped: bool = False  # by a signal
    # The locks, if all its threads wait for each other, and for nobody else.
    deadlock: str = ""
    shared_lock: int = 0  # where the lock is that it waits for, without a limit; not its own
    runs: bool = False  # its main thread does, or would if there were a processor for it
    # Changes when something comes over the network to what its main thread waits for; -1: it waits
    # for no network.
    received: int = -1
    wakes: int = 0  # how often its main thread was woken
    # The native library that it is in, if only the process it was forked from has its threads.
    left_behind: str = ""
    wakeable: bool = False  # it has handlers of signals, which might end that
    own_lock: bool = False  # its main thread waits for a lock that no other process has
    inherited: Inherited | None = None  # what seems to keep it waiting

    @property
    def can_turn(self) -> bool:
        """Whether it seems to wait for what it inherited, and lives can be made anew without
        that."""
        return self.inherited is not None and not self.inherited.no_way

    @property
    def must_turn(self) -> bool:
        """The same, where it is certain that it will never go on."""
        return self.can_turn and self.inherited is not None and self.inherited.proven


@frozen
class Stall:
    """One call that lasts, for reports."""

    seat: int
    life: int
    ticket: int
    step: int
    seconds: float
    still_s: float  # since anything has changed
    pulse: Pulse
    activity: Activity
    is_inherited: bool = False  # it may wait for what it inherited: no sample is to blame
    unchanged_s: float = 0.0  # since bytes were read or written, or it came to another part
    wakes: int = 0  # since anything has changed
    computes: bool = False  # it has used the processor since the last look, or would like to

    @classmethod
    def at_once(cls, sight: Sight, seconds: float, activity: Activity) -> Stall:
        """Tell of a life at which nobody has looked before: nothing is known of how it moves."""
        pulse = Pulse.STOPPED if activity.stopped else Pulse.SLOW
        return cls(sight.seat, sight.life, sight.ticket, sight.step, seconds, 0.0, pulse, activity)


@frozen
class CallSnapshot:
    """One call that a life was last seen in."""

    seat: int
    life: int
    ticket: int
    step: int
    since: float  # of the clock that the supervisor is told
    moves: bool  # it was seen to
    reports: int
    # The share of looks at which its thread ran, or had computed; None: nobody has looked closely.
    runs: float | None = None


@message
class Advice:
    """What to do about a life that was examined."""

    stall: Stall
    report: bool
    resume: bool
    replace: bool
    suspect: bool = False  # it seems to wait for what it inherited; seen for the first time


@record
class _Call:
    ticket: int
    step: int
    since: float
    activity: Activity | None = None
    moved_at: float = 0.0  # it ran, or I/O or the stack changed; or it was first examined
    turned_at: float = 0.0  # the stack changed
    locked_at: float = 0.0  # it was first seen in its present deadlock
    first_at: float = 0.0  # it was first examined
    examined_at: float = 0.0  # it was last examined
    progressed_at: float = 0.0  # bytes, or another part of the code; 0: it never has
    stacks: tuple[tuple[StackLine, ...], ...] = ()  # of the last looks
    part: tuple[StackLine, ...] | None = None  # that those before had in common, innermost first
    rested: int = 0  # how often it had been woken when it last moved
    moves: bool = False  # it was seen to
    spins: bool = False
    reports: int = 0
    resumed: bool = False
    suspected: bool = False  # of waiting for what it inherited
    looks: int = 0  # so far, and at how many of them it ran
    ran: int = 0

    @property
    def runs(self) -> float | None:
        # Not the last look alone: on a busy machine, one that sleeps and is about to wake stands in
        # the queue for a processor as well, now and then.
        return self.ran / self.looks if self.looks else None


class StallDetector:
    """Keep the calls that lives are in."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._stalls = limits, limits.stalls
        self._calls: dict[tuple[int, int], _Call] = {}
        self._looked_at = 0.0
        self._deadlocked = False  # one was ended for that
        self._quiet_s, self._quiet_until = self._stalls.quiet_s, 0.0

    def snapshot(self) -> tuple[CallSnapshot, ...]:
        return tuple(
            CallSnapshot(
                *key, call.ticket, call.step, call.since, call.moves, call.reports, call.runs
            )
            for key, call in self._calls.items()
        )

    def __repr__(self) -> str:
        reported = sum(call.reports > 0 for call in self._calls.values())
        return f"<Stalls {len(self._calls)} calls, {reported} reported>"

    def begin(self, now: float, lives: Collection[tuple[int, int]]) -> None:
        """Begin a look at these lives."""
        paused_s = now - self._looked_at
        self._looked_at = now
        for key in self._calls.keys() - lives:
            del self._calls[key]
        if paused_s > self._stalls.pause_s:
            for call in self._calls.values():
                call.since += paused_s
                call.moved_at += paused_s
                call.turned_at += paused_s
                call.locked_at += paused_s
                call.first_at += paused_s
                call.progressed_at += paused_s if call.progressed_at else 0.0

    def see(self, sight: Sight, now: float, waiting_since: float | None) -> bool:
        """Take note of what a life says. Say whether it should be examined.

        `waiting_since`: when the loop began to wait; None if it does not.
        """
        key = sight.seat, sight.life
        call = self._calls.get(key)
        if call is None or (call.ticket, call.step) != (sight.ticket, sight.step):
            call = self._calls[key] = _Call(sight.ticket, sight.step, since=now)
        if waiting_since is None:
            return False
        if not is_of_user(sight.step):
            call.since = max(call.since, waiting_since)
        enough_s = self._stalls.examined_s
        if self._limits.call_s is not None:
            enough_s = min(enough_s, self._limits.call_s / 2)
        return now - call.since >= enough_s

    def examined(
        self,
        sight: tuple[int, int],
        activity: Activity,
        now: float,
        waiting_since: float,
        *,
        unwanted: bool = False,
    ) -> Advice | None:
        """Judge a life by what was seen of it, now and before. `unwanted`: nobody waits for what it
        does, but for it to be done."""
        call = self._calls.get(sight)
        if call is None:
            return None
        activity = self._compare(call, activity, now, now - call.examined_at)
        call.examined_at = now
        pulse = self._pulse(call, activity, now)
        lasts_s = now - call.since
        resume = pulse is Pulse.STOPPED and lasts_s >= self._stalls.resumed_s and not call.resumed
        if resume:  # and has its time to go on, however long nobody could tell it to
            call.resumed = True
            call.moved_at = max(call.moved_at, now - self._stalls.resumed_s)
        still_s = now - call.moved_at
        unchanged_s = now - (call.progressed_at or call.first_at)
        stall = Stall(
            *(*sight, call.ticket, call.step, lasts_s, still_s, pulse, activity),
            unchanged_s=unchanged_s,
            wakes=activity.wakes - call.rested,
            computes=call.spins or activity.runs,
            is_inherited=activity.can_turn and _waits(call, pulse, self._stalls),
        )
        certain = stall.is_inherited and activity.must_turn
        suspect, call.suspected = certain and not call.suspected, certain
        report = self._is_due(call, pulse, now, now - max(call.since, waiting_since)) or resume
        goes = self._must_go(call, stall, now)
        if unwanted and pulse is Pulse.STUCK and self._limits.still_s is not None:
            goes = goes or still_s >= self._limits.dead_s
        self._deadlocked = self._deadlocked or (goes and pulse is Pulse.DEADLOCKED)
        return Advice(stall, report, resume, goes, suspect)

    def stuck_on(self, seat: int, life: int, now: float) -> int:
        """Say where the shared lock is that a life has waited for, so long that it is no chance."""
        call = self._calls.get((seat, life))
        if call is None or call.activity is None or now - call.moved_at < self._limits.dead_s:
            return 0
        return call.activity.shared_lock

    def ticket_of(self, seat: int, life: int) -> int:
        """Give the number of the ticket that a life was last seen with; 0: none."""
        call = self._calls.get((seat, life))
        return 0 if call is None else call.ticket

    def forget(self, seat: int, life: int) -> None:
        self._calls.pop((seat, life), None)

    def forget_all(self) -> None:
        self._calls.clear()

    def unsound(self, living: Collection[tuple[int, int]]) -> Iterator[str]:
        """Yield what should not be, given who is alive."""
        if gone := sorted(self._calls.keys() - living):
            yield f"calls are kept of lives that are gone: {gone}"
        for key, call in self._calls.items():
            if call.reports > len(self._stalls.reported_s):
                most = len(self._stalls.reported_s)
                yield f"{key} was reported {call.reports} times, at most {most}"
            if call.since > self._looked_at:
                yield f"the call of {key} begins after it was seen"

    def _is_due(self, call: _Call, pulse: Pulse, now: float, waited_s: float) -> bool:
        """Say whether it is time for a report, the first or a further one."""
        due = sum(waited_s >= at for at in self._stalls.reported_s)
        if due == 1 and call.step == CLEAN and pulse not in (Pulse.STUCK, Pulse.DEADLOCKED):
            return False  # imports take their time on a busy machine
        works = pulse in (Pulse.MOVING, Pulse.RUNNING, Pulse.SPINNING)
        if due == 1 and works and waited_s < self._stalls.moving_s:
            return False
        if due <= call.reports:
            return False
        first, call.reports = call.reports == 0, due
        if not first or not works:
            return True
        if now < self._quiet_until:
            return False
        self._quiet_until = now + self._quiet_s
        self._quiet_s *= 2
        return True

    def _compare(self, call: _Call, activity: Activity, now: float, passed_s: float) -> Activity:
        """Note what has changed since the last look. Return what is known now."""
        before = call.activity
        self._note_changes(call, activity, now, passed_s)
        call.looks += 1
        call.ran += call.spins or activity.runs
        if activity.inherited is None and activity.runs and before is not None:
            # Woken for a moment, from a wait with a limit: it is still what it waits for.
            activity = call.activity = replace(activity, inherited=before.inherited)
        return activity

    def _note_changes(self, call: _Call, activity: Activity, now: float, passed_s: float) -> None:
        before, call.activity = call.activity, activity
        if before is None:
            call.moved_at = call.turned_at = call.locked_at = call.first_at = now
            call.stacks, call.rested = (activity.stack,), activity.wakes
            return
        if activity.deadlock != before.deadlock:
            call.locked_at = now
        turned = activity.stack != before.stack and bool(before.stack)
        enough_s = self._stalls.cpu_s * max(1.0, passed_s)
        call.spins = activity.cpu_s - before.cpu_s >= enough_s
        others = activity.cpu_s_of_others - before.cpu_s_of_others >= enough_s
        if turned:
            call.turned_at = now
        # What we had it write may be counted a moment later, or earlier, than we see it.
        same = activity.own_bytes == before.own_bytes
        read = same and activity.io_bytes != before.io_bytes
        came = -1 not in (before.received, activity.received)
        read = read or (came and activity.received != before.received)
        # Who waits for a processor is not still, however long the others keep it.
        if turned or call.spins or others or read or activity.runs:
            call.moved_at, call.moves, call.rested = now, True, activity.wakes
        if read or others:  # who waits for a program that works does not spin
            call.turned_at = now
        if _goes_on(call, activity.stack, self._stalls.stacks) or read or others:
            call.progressed_at = now

    def _pulse(self, call: _Call, activity: Activity, now: float) -> Pulse:
        if activity.stopped:
            return Pulse.STOPPED
        if not call.moves or now - call.moved_at >= self._stalls.moved_s:
            locked = activity.deadlock and now > call.locked_at
            return Pulse.DEADLOCKED if locked else Pulse.STUCK
        # Who spins on a busy machine has no processor at some looks, and would like one.
        busy = call.spins or activity.runs
        if busy and activity.stack and now - call.turned_at >= self._stalls.spun_s:
            return Pulse.SPINNING
        progressed = call.progressed_at and now - call.progressed_at < self._stalls.moved_s
        return Pulse.MOVING if progressed else Pulse.RUNNING

    def _must_go(self, call: _Call, stall: Stall, now: float) -> bool:
        limits = self._limits
        if limits.call_s is not None and is_of_user(call.step) and stall.seconds >= limits.call_s:
            return True
        if limits.still_s is None:
            return False
        if stall.pulse is Pulse.DEADLOCKED:
            locked_s = now - max(call.locked_at, call.moved_at)
            enough_s = self._stalls.again_s if self._deadlocked else limits.locked_s
            if stall.activity.must_turn:
                enough_s = min(enough_s, limits.turn_s)
            # Where it is will be known soon, and people will want to know.
            return locked_s >= (enough_s if stall.activity.stack else limits.dead_s)
        if stall.is_inherited and stall.activity.must_turn:
            return stall.still_s >= limits.dead_s
        if call.step == CLEAN:  # imports take their time, but do something in it
            return stall.pulse is Pulse.STUCK and stall.still_s >= limits.dead_s
        if call.step in (OURS, HAND_OVER):
            return stall.still_s >= limits.dead_s
        if stall.still_s >= limits.still_s:
            return True
        spins = call.spins and stall.pulse is Pulse.SPINNING
        spun_s = now - call.turned_at if spins else 0.0
        return limits.spin_s is not None and spun_s >= limits.spin_s


def _waits(call: _Call, pulse: Pulse, limits: StallLimits) -> bool:
    """Whether a call only waits. Who waits with a limit, again and again, wakes now and then, and
    on a busy machine is seen at it."""
    if pulse is Pulse.RUNNING:
        return bool(call.looks > 1 and call.runs is not None and call.runs <= limits.woken_share)
    return pulse in (Pulse.STUCK, Pulse.DEADLOCKED)


def _goes_on(call: _Call, stack: tuple[StackLine, ...], together: int) -> bool:
    """Note a stack. Return whether the call has gone on to another part of the code."""
    call.stacks = (*call.stacks, stack)
    if len(call.stacks) < together:
        return False
    before, call.part, call.stacks = call.part, _common(call.stacks), ()
    if before is None:
        return False
    shared = _common((before, call.part))
    return len(shared) < min(len(before), len(call.part))


def _common(stacks: tuple[tuple[StackLine, ...], ...]) -> tuple[StackLine, ...]:
    """Return the outer lines that all these stacks have, innermost first."""
    shortest = min(stacks, key=len)
    count = 0
    while count < len(shortest) and all(s[-1 - count] == shortest[-1 - count] for s in stacks):
        count += 1
    return shortest[len(shortest) - count :]
