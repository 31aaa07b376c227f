"""What goes wrong in a simulated epoch, and when.

Each fault waits for a certain number of tickets to be taken up; it then strikes whoever takes up
the next one. Only what has really happened is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from antifreeze._core import commands as do
from antifreeze._core import events as ev
from antifreeze._core.faults import Ending
from antifreeze._core.health.worker_phases import OURS, SAMPLE
from antifreeze._core.limits import LIMITS
from antifreeze._core.loader_plan import Source, Tenure

from .books import BATCH, place_of
from .lives import Mood, Worker

if TYPE_CHECKING:
    from .epochs import Simulation

FAULTS = (5, 8)  # an epoch, from and to
LATEST = 44  # tickets taken up, of fifty at least
SPARED = 2  # samples of a batch that may be left to the policy
MOST_BYTES = 1000  # a life may hold, where there is a limit
PAUSE_S = 4000.0  # the whole program is stopped

# What may strike a worker that takes up a ticket.
MILD = (
    "fails",
    "twice",
    "of another",
    "ghost",
    "lease twice",
    "slow",
    "grows",
    "sampler fails",
    "fork",
    "loop away",
    "loop left alone",
    "pause",
    "resumed",
)
DEADLY = ("crash named", "crash unnamed", "crash idle", "crash lying", "silent", "silent and gone")
POISON = ("poison", "poison unnamed")
STARTS = ("refused", "dies young", "starts never", "dies before its epoch")
WATCHED = ("stuck", "spinning", "stopped", "deadlocked", "late", "immortal", "poison hang")
# The fork itself is to blame: all lives are made anew, if nothing is lost by it.
TURNS = ("inherited", "unfit fork")
ONCE_WATCHED = ("slow", "grows", "resumed")  # else nobody would notice


class Trouble:
    """The faults of one loader."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._dice = world.dice
        self._watched = world.plan.limits.look_s is not None
        self.streams = world.plan.source is Source.STREAMS
        self.log: list[tuple[float, str]] = []
        self.happened: list[str] = []
        self.paused_s = 0.0
        self._cursed: list[str] = []  # what becomes of the next starts
        self.plan_epoch()

    def plan_epoch(self) -> None:
        dice = self._dice
        self.happened = []
        self.broken_off = False
        self.paused_s = 0.0
        self.stream_length = dice.randint(18, 20)
        self.batches = 10**6 if self.streams else dice.randint(51, 55)
        self._taken = 0
        self._poison: dict[tuple[int, int], tuple[str, int]] = {}  # place, sample -> how, how often
        self._sampler_fails = self._twice = False
        self._away_s = 0.0
        self._left_alone = False
        self._reports: Counter[tuple[int, int, int, int]] = Counter()
        self._break_at = LATEST + 4 if dice.random() < 0.05 else 10**9
        resumes = self._world.plan.resumes
        first = 26 if self.streams and not resumes else 1  # a lost stream is not made up for
        kinds = [self._kind() for _ in range(dice.randint(*FAULTS))]
        at = sorted(dice.sample(range(first, LATEST), len(kinds)))
        self._due = list(zip(at, kinds, strict=True))[::-1]
        if self.streams and self._watched and dice.random() < 0.5:
            # Before anything was taken of it, a stream can be begun anew.
            self._due.append((dice.randint(1, 6), dice.choice(TURNS)))
        self._cursed = dice.choices(STARTS, k=dice.choice((0, 0, 0, 1 if self.streams else 2)))

    def _kind(self) -> str:
        roll = self._dice.random()
        if self._watched and self._dice.random() < 0.05:
            return self._dice.choice(TURNS)
        if roll < (0.6 if self.streams else 0.35):
            mild = [m for m in MILD if self._watched or m not in ONCE_WATCHED]
            return self._dice.choice(mild)
        if roll < 0.75 and self._watched:
            return self._dice.choice(WATCHED)
        if roll < 0.85 and not self.streams:
            return self._dice.choice(POISON)
        return self._dice.choice(DEADLY)

    def patience_s(self) -> float:
        """Bound the time of an epoch: each fault may keep the loop for as long as it takes."""
        limits = self._world.plan.limits
        longest_s = max(limits.still_s or 0.0, limits.spin_s or 0.0, limits.start_s) + 20.0
        tries = limits.attempts * (limits.spared + 1)
        return 100.0 + (len(self._due) + len(self._cursed)) * tries * longest_s

    def _note(self, what: str, worker: Worker | None = None) -> None:
        where = "" if worker is None else f" (seat {worker.seat}, life {worker.life})"
        self.log.append((self._world.now, what + where))
        self.happened.append(what)

    # ---- at a ticket ------------------------------------------------------------------------

    def strikes(self, worker: Worker) -> bool:
        """Let what is due happen to a worker that takes something up. True: it does not load."""
        self._taken += len(worker.busy)
        ticket = worker.busy[0].ticket
        if ticket.epoch != self._world.books.epoch:
            return False
        if self._poison and self._is_poisoned(worker):
            return True
        if self._due and self._taken >= self._due[-1][0]:
            _, kind = self._due.pop()
            if self._dice.random() < 0.25 and kind in (*DEADLY, *POISON):
                self._cursed.append(self._dice.choice(STARTS))  # and so does its successor
            return self._strike(kind, worker)
        return False

    def _strike(self, kind: str, worker: Worker) -> bool:
        self._note(kind, worker)
        sample = SAMPLE + self._dice.randrange(BATCH)
        if kind in WATCHED or kind in ONCE_WATCHED:
            return self._hang(kind, worker, sample)
        if kind in DEADLY:
            return self._die(kind, worker, sample)
        if kind in POISON:
            often = self._dice.choice((1, 1, SPARED + 1))  # what takes its place may be as bad
            self._poison[place_of(worker.busy[0].ticket), sample - SAMPLE] = kind, often
            return self._is_poisoned(worker)
        if kind in TURNS:
            return self._cannot_live_with_its_fork(kind, worker)
        if kind == "fails":
            self._world.later(0.01, lambda: self._world.finish(worker, failed=True))
            return True
        others: dict[str, Callable[[Worker], None]] = {
            "of another": self._brings_of_another,
            "ghost": self._ghost,
            "lease twice": self._returns_twice,
            "fork": self._fork,
            "pause": self._pause,
        }
        if kind in others:
            others[kind](worker)
        elif kind == "twice":
            self._twice = True
        elif kind == "sampler fails":
            self._sampler_fails = not self.streams
        else:
            self._away_s, self._left_alone = self._dice.uniform(1.0, 30.0), "alone" in kind
        return False

    def _is_poisoned(self, worker: Worker) -> bool:
        """Let a bad sample do what it does, each time it is loaded."""
        for errand in worker.busy[:1]:
            place, spared = place_of(errand.ticket), errand.ticket.spared
            for sample in range(BATCH):
                kind, often = self._poison.get((place, sample), ("", 0))
                if spared.count(sample) >= often:
                    continue
                if kind == "poison hang":
                    return self._hang("stuck", worker, SAMPLE + sample)
                named = "crash named" if kind == "poison" else "crash unnamed"
                return self._die(named, worker, SAMPLE + sample)
        return False

    def _die(self, kind: str, worker: Worker, step: int) -> bool:
        world, ticket = self._world, worker.busy[0].ticket
        worker.mood, worker.step, worker.doomed = Mood.MOVING, step, True
        if kind.startswith("silent"):
            worker.mood = Mood.STUCK
            world.books.blame(ticket, step)
            world.later(0.002, self._fall_silent, worker)
            if kind == "silent and gone":
                world.later(0.05, world.end, worker, Ending(signal=11, step=step), ticket.number)
            return True
        said: int | None = ticket.number
        if kind == "crash unnamed":
            said, step = None, OURS
        elif kind == "crash idle":
            said, step = 0, OURS
        elif kind == "crash lying":
            ticket = self._dice.choice(worker.held()).ticket
            said = ticket.number
        world.books.blame(ticket, step)
        world.later(0.005, world.end, worker, Ending(signal=11, step=step), said)
        return True

    def _cannot_live_with_its_fork(self, kind: str, worker: Worker) -> bool:
        if kind == "inherited":
            worker.doomed, worker.mood = True, Mood.INHERITED
        else:
            worker.mood = Mood.MOVING
            self._world.later(0.002, self._says_unfit, worker)
        return True

    def _says_unfit(self, worker: Worker) -> None:
        if not worker.gone:
            worker.unfit = True
            self._world.tell(ev.ForkUnfit(*worker.key, "needs an accelerator"))
            self._world.later(0.001, self._fails, worker)

    def _fails(self, worker: Worker) -> None:
        """Let a worker that was not made anew bring its error, and go on."""
        if not worker.gone and worker.killed is None:
            worker.mood = Mood.WELL
            self._world.finish(worker, failed=True)

    def _fall_silent(self, worker: Worker) -> None:
        if not worker.gone:
            self._world.tell(ev.LifeSilent(*worker.key))

    def _hang(self, kind: str, worker: Worker, step: int) -> bool:
        world, dice = self._world, self._dice
        worker.step, worker.doomed = step, True
        world.books.blame(worker.busy[0].ticket, step)
        if kind == "poison hang":
            self._poison[place_of(worker.busy[0].ticket), step - SAMPLE] = kind, 1
        if kind in ("slow", "grows"):
            worker.mood = Mood.MOVING
            call_s, slow_s = world.plan.limits.call_s, dice.uniform(3.0, 25.0)
            worker.doomed = call_s is not None
            world.later(slow_s, self._recovers, worker)
            if kind == "grows":  # after a look, and before another
                world.later(2.5, self._grows, worker)
        elif kind == "resumed":
            worker.mood, worker.cured_by_resuming = Mood.STOPPED, True
        else:
            moods = {
                "spinning": Mood.SPINNING,
                "stopped": Mood.STOPPED,
                "deadlocked": Mood.LOCKED,
                "late": dice.choice((Mood.STUCK, Mood.LOCKED)),
            }
            worker.mood = moods.get(kind, Mood.STUCK)
            worker.brings_late, worker.immortal = kind == "late", kind == "immortal"
        return True

    def _grows(self, worker: Worker) -> None:
        worker.own_bytes = 5 * MOST_BYTES

    def _recovers(self, worker: Worker) -> None:
        if not worker.gone and worker.killed is None:
            worker.mood, worker.doomed = Mood.WELL, False
            self._world.finish(worker)

    # ---- lies -------------------------------------------------------------------------------

    def _brings_of_another(self, worker: Worker) -> None:
        """Let a worker bring what it no longer holds, or never did."""
        own = {errand.ticket.number for errand in worker.held()}
        numbers = [n for n in list(self._world.books.sent)[-20:] if n not in own]
        if numbers:
            self._lie(worker, self._dice.choice(numbers))

    def _ghost(self, worker: Worker) -> None:
        """Let somebody who is gone bring what he was sent."""
        gone = self._world.departed[-5:]
        if gone:
            ghost = self._dice.choice(gone)
            sent = self._world.books.sent
            numbers = [n for n in list(sent)[-60:] if sent[n].worker is ghost]
            if ghost.end_told:
                self._lie(ghost, self._dice.choice(numbers or [1]))

    def _lie(self, worker: Worker, number: int) -> None:
        event = ev.ParcelsArrived(*worker.key, (number,), ev.Outcome.LOADED, 0.01)
        self._world.later(0.001, self._world.tell, event)

    def _returns_twice(self, worker: Worker) -> None:
        for key in self._world.books.returned[-3:]:
            if key not in self._world.books.kept:
                self._world.later(0.001, self._world.tell, ev.LeasesReturned((key,)))

    def sends_twice(self) -> bool:
        twice, self._twice = self._twice, False
        return twice

    # ---- the program ------------------------------------------------------------------------

    def _fork(self, worker: Worker) -> None:
        self._world.later(0.0, self._forks)

    def _forks(self) -> None:
        self._world.books.fork()
        self._world.feed(ev.ProgramForked())

    def _pause(self, worker: Worker) -> None:
        self._world.later(0.01, self._pauses)

    def _pauses(self) -> None:
        self._world.now += PAUSE_S
        self.paused_s += PAUSE_S

    def sampler_fails(self) -> bool:
        fails, self._sampler_fails = self._sampler_fails, False
        return fails

    def away_s(self) -> float:
        """Say how long the loop stays away, beyond its work on a batch."""
        world, away_s = self._world, self._away_s
        self._away_s = 0.0
        if self._taken >= self._break_at and world.books.drawn >= 50:
            self._note("broken off")
            world.running, self.broken_off = False, True
            self._break_at = 10**9
        if away_s and self._left_alone:
            world.later(away_s / 2, world.leave_alone)
        return away_s

    def reported(self, command: do.ReportStall) -> None:
        """Count what is said of one call: it must not become a flood."""
        stall = command.stall
        key = stall.seat, stall.life, stall.ticket, stall.step
        self._reports[key] += 1
        # One more for a worker that was told to go on.
        assert self._reports[key] <= len(LIMITS.stalls.reported_s) + 1, (
            f"{stall} is reported again and again"
        )

    # ---- starts -----------------------------------------------------------------------------

    def spoils_start(self, worker: Worker) -> bool:
        if not self._cursed or self._cursed[0] == STARTS[3]:
            return False
        kind = self._cursed.pop(0)
        self._note(kind, worker)
        worker.doomed = True
        world = self._world
        if kind == "starts never":
            worker.mood = Mood.STUCK
        else:
            ending = Ending(words="no process", refused=kind == "refused")
            world.later(0.001 if ending.refused else 0.05, world.end, worker, ending)
        return True

    def spoils_epoch(self, worker: Worker) -> bool:
        if not self._cursed or self._cursed[0] != STARTS[3]:
            return False
        self._note(self._cursed.pop(0), worker)
        self._world.later(0.001, self._world.end, worker, Ending(exit_code=1))
        return True

    # ---- between epochs ---------------------------------------------------------------------

    def between(self, seconds: float) -> None:
        """Let lives end while there is nothing to do."""
        if self._world.plan.tenure is Tenure.EPOCH:
            return
        for worker in list(self._world.workers.values()):
            if self._dice.random() < 0.3:
                self._world.later(seconds / 2, self._ends_idle, worker)

    def _ends_idle(self, worker: Worker) -> None:
        if worker.mood is Mood.WELL and not worker.busy:
            self.log.append((self._world.now, f"seat {worker.seat} ends between epochs"))
            self._world.end(worker, Ending(signal=9), 0)
