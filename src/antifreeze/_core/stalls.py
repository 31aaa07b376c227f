"""Who keeps the loop waiting, for how long, and whether that is stuck or only slow.

1. A life says which call it is in: a ticket, and a step of it (`steps`). Another call is progress,
   and all that was known of the old one is forgotten.
2. A call that lasts is examined, again and again. What changes between two looks says what it is:
   nothing at all is stuck, processor time on one unchanged stack is spinning, anything else moves.
3. It is reported at growing intervals. What moves is never ended; what is stuck or spins is, when
   its time is over; who gave a number of seconds wants it ended then, whatever it does.
4. Nothing is counted as time of a call that passed while the loop was away and the life may have
   waited for the loop.
"""

from __future__ import annotations

from .messages import frozen, message, record
from .plan import Limits
from .states import State
from .steps import OURS, is_of_user

EXAMINED_S = 3.0  # a call that lasts longer is looked at closely
# When it is reported. The first comes early enough to be seen within ten seconds of the hang.
REPORTED_S = (7.0, 60.0, 300.0, 1800.0)
CPU_S = 0.02  # a thread that sleeps and looks, as our own do, uses less between two looks
MOVED_S = 5.0  # what moves does something in this time; stacks come every two seconds


class Pulse(State):
    MOVING = "slow but moving"
    STUCK = "stuck"
    SPINNING = "spinning"
    DEADLOCKED = "deadlocked"
    STOPPED = "stopped"


@message
class Sight:
    """What a life says it does."""

    seat: int
    life: int
    ticket: int  # its number; 0: none
    step: int


@frozen
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str


@frozen
class Activity:
    """What can be seen of a life from outside, at one moment."""

    cpu_s: float = 0.0  # all its threads, and the processes it has started
    io_bytes: int = 0  # likewise
    stack: tuple[Frame, ...] = ()  # of its main thread, innermost first; may be some seconds old
    waits_for: str = ""  # what the kernel says: "a lock", "reading /data/17.jpg"
    stopped: bool = False  # by a signal
    deadlocked: bool = False  # all its threads wait for each other, and for nobody else


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


@message
class Advice:
    """What to do about a life that was examined."""

    stall: Stall
    report: bool
    resume: bool
    replace: bool


@record
class _Call:
    ticket: int
    step: int
    since: float
    activity: Activity | None = None
    moved_at: float = 0.0  # processor time, I/O or the stack changed
    turned_at: float = 0.0  # the stack changed
    spins: bool = False
    reports: int = 0
    resumed: bool = False


class Stalls:
    """Keep the calls that lives are in."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._calls: dict[tuple[int, int], _Call] = {}

    def see(self, sight: Sight, now: float, waiting_since: float | None) -> bool:
        """Take note of what a life says. Say whether it should be examined.

        `waiting_since`: when the loop began to wait; None if it does not.
        """
        key = sight.seat, sight.life
        call = self._calls.get(key)
        if call is None or (call.ticket, call.step) != (sight.ticket, sight.step):
            call = self._calls[key] = _Call(sight.ticket, sight.step, now, None, now, now)
        if waiting_since is None:
            return False
        if not is_of_user(sight.step) and call.since < waiting_since:
            call.since = call.moved_at = call.turned_at = waiting_since
        return now - call.since >= min(EXAMINED_S, self._limits.call_s or EXAMINED_S)

    def examined(self, seat: int, life: int, activity: Activity, now: float) -> Advice | None:
        """Judge by what was seen, and by what was seen before."""
        call = self._calls.get((seat, life))
        if call is None:
            return None
        self._compare(call, activity, now)
        pulse = self._pulse(call, activity, now)
        lasts_s, still_s = now - call.since, now - call.moved_at
        stall = Stall(seat, life, call.ticket, call.step, lasts_s, still_s, pulse, activity)
        due = sum(lasts_s >= at for at in REPORTED_S)
        report, call.reports = due > call.reports, max(due, call.reports)
        resume = pulse is Pulse.STOPPED and report and not call.resumed
        call.resumed = call.resumed or resume
        return Advice(stall, report, resume, self._must_go(call, stall, now))

    def forget(self, seat: int, life: int) -> None:
        self._calls.pop((seat, life), None)

    def _compare(self, call: _Call, activity: Activity, now: float) -> None:
        before, call.activity = call.activity, activity
        if before is None:
            return
        turned = activity.stack != before.stack and bool(before.stack)
        call.spins = activity.cpu_s - before.cpu_s >= CPU_S
        if turned:
            call.turned_at = now
        if turned or call.spins or activity.io_bytes != before.io_bytes:
            call.moved_at = now
        if activity.io_bytes != before.io_bytes:
            call.turned_at = now

    def _pulse(self, call: _Call, activity: Activity, now: float) -> Pulse:
        if activity.stopped:
            return Pulse.STOPPED
        if call.moved_at == call.since or now - call.moved_at >= MOVED_S:
            return Pulse.DEADLOCKED if activity.deadlocked else Pulse.STUCK
        if call.spins and activity.stack and now - call.turned_at >= MOVED_S:
            return Pulse.SPINNING
        return Pulse.MOVING

    def _must_go(self, call: _Call, stall: Stall, now: float) -> bool:
        limits = self._limits
        if limits.call_s is not None and stall.seconds >= limits.call_s:
            return True
        if limits.still_s is None:
            return False
        if call.step == OURS or stall.pulse is Pulse.DEADLOCKED:
            return stall.still_s >= limits.dead_s
        if stall.still_s >= limits.still_s:
            return True
        spun_s = now - call.turned_at if stall.pulse is Pulse.SPINNING else 0.0
        return limits.spin_s is not None and spun_s >= limits.spin_s
