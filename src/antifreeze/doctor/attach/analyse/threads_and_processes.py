"""A case understood: who is who, who works, who waits for what. Pure; what causes look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...._linux.syscalls import READ_OR_WRITE, Syscall
from ...._transport.own_frames import PACKAGE, WORKER_WAITS, OwnFrame
from ..facts import Case, Frame, Machine, Process, Thread
from .frames import LOADER, PROCESS, begins, called_by_worker, is_order
from .frames import is_file as is_file
from .frames import is_library as is_library
from .process_roles import GROUP_THREADS as GROUP_THREADS
from .process_roles import Role as Role
from .process_roles import is_starting, number_of, role_of

IDLE_SHARE = 0.02  # of a core: who uses less does nothing but wait
BUSY_SHARE = 0.5


@dataclass(frozen=True)
class Strand:
    """One thread over both looks."""

    process: Process
    before: Thread | None
    thread: Thread
    seconds: float

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Give Python's frames, the innermost first."""
        return tuple(each for each in self.thread.frames if not each.native)

    @property
    def native(self) -> tuple[Frame, ...]:
        """Give the C code below the innermost line of Python."""
        found = []
        for each in self.thread.frames:
            if not each.native:
                break
            found.append(each)
        return tuple(found)

    @property
    def share(self) -> float:
        """Say how much of a core it has used between the looks."""
        if self.before is None or self.seconds <= 0:
            return 0.0
        return (self.thread.cpu_s - self.before.cpu_s) / self.seconds

    @property
    def moved(self) -> bool:
        """Say whether it was at another line the second time, or went to sleep anew meanwhile."""
        if self.before is None:
            return True
        then = tuple(each for each in self.before.frames if not each.native)
        return then != self.frames or self.before.gave_way != self.thread.gave_way

    @property
    def stuck(self) -> bool:
        """Say that it has done nothing at all between the looks."""
        return not self.moved and self.share < IDLE_SHARE

    @property
    def asleep_s(self) -> float:
        """Say for how long it has not run; 0 if it has between the looks, -1 if it is not known."""
        if self.before is None or self.before.asleep_s < 0:
            return -1.0
        return self.before.asleep_s + self.seconds if self.stuck else 0.0

    @property
    def at(self) -> Frame | None:
        """Give the innermost line of Python."""
        return self.frames[0] if self.frames else None

    @property
    def own_frames(self) -> tuple[Frame, ...]:
        """Give Python's frames without those of the process that has forked this one."""
        first = next((at for at, each in enumerate(self.frames) if begins(each)), None)
        return self.frames[:first]

    @property
    def own_line(self) -> Frame | None:
        """Give the innermost line that is neither Python's own nor torch's."""
        return next((each for each in self.own_frames if not is_library(each)), None)

    def calls(self, name: str, file: str = "") -> Frame | None:
        """Give the frame of a function that is under way, by its name or the end of it, and the end
        of its file's path."""
        for each in self.frames:
            last = each.name.rpartition(".")[2]
            if (each.name == name or last == name) and is_file(each, file):
                return each
        return None

    def calls_own(self, own: OwnFrame) -> Frame | None:
        """Return the frame of a function of ours that is under way."""
        return self.calls(own.function, own.file)

    def in_native(self, *parts: str) -> Frame | None:
        """Give the C function that is under way and whose name has one of these in it."""
        for each in self.native:
            if any(part in each.name for part in parts):
                return each
        return None

    def descriptor(self) -> str:
        """Give what its system call reads from or writes to; nothing if it is no such call."""
        call = self.thread.call
        if not call or call[0] not in READ_OR_WRITE:
            return ""
        return next((d.target for d in self.process.descriptors if d.number == call[1]), "")


_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")
# Where a prompt waits, and where it runs what was typed.
_PROMPTS = (
    ("start", "ipykernel/kernelapp.py"),
    ("mainloop", "IPython/terminal/interactiveshell.py"),
    ("interactive_console", "_pyrepl/main.py"),
    ("mainloop", "tkinter/__init__.py"),
)
_RUN = (
    ("run_code", "IPython/core/interactiveshell.py"),
    ("runcode", "code.py"),
    ("show", "matplotlib/pyplot.py"),  # a window in the middle of a script
    ("__call__", "tkinter/__init__.py"),  # what a button does
)


@dataclass(frozen=True)
class Actor:
    """One process over both looks."""

    process: Process
    before: Process | None
    role: Role
    seconds: float
    number: int = 0  # of a worker, as they were started; of a rank

    @property
    def pid(self) -> int:
        return self.process.pid

    @cached_property
    def strands(self) -> tuple[Strand, ...]:
        then = {each.tid: each for each in self.before.threads} if self.before else {}
        return tuple(
            Strand(self.process, then.get(each.tid), each, self.seconds)
            for each in self.process.threads
        )

    @property
    def main(self) -> Strand | None:
        return next((each for each in self.strands if each.thread.tid == self.pid), None)

    def named(self, name: str) -> list[Strand]:
        """Give the threads whose name begins so."""
        return [each for each in self.strands if each.thread.name.startswith(name)]

    @property
    def share(self) -> float:
        """Say how many cores it has used between the looks."""
        if self.before is None or self.seconds <= 0:
            return 0.0
        return (self.process.cpu_s - self.before.cpu_s) / self.seconds

    @property
    def stopped(self) -> bool:
        return self.process.state in "Tt"

    @property
    def dead(self) -> bool:
        return self.process.state in "ZX"

    @property
    def label(self) -> str:
        match self.role:
            case Role.WORKER | Role.OUR_WORKER:
                return f"worker {self.number} (pid {self.pid})"
            case Role.MAIN:
                return f"the main process (pid {self.pid})"
            case Role.CHILD:
                return f"its child {self.process.name!r} (pid {self.pid})"
            case _:
                return f"{self.role.value} (pid {self.pid})"


@dataclass(frozen=True)
class Scene:
    """One program: a main process (one rank) with its workers, and what it shares with others."""

    case: Case
    main: Actor
    workers: tuple[Actor, ...]
    others: tuple[Actor, ...]  # helpers, children, our nursery
    launcher: Actor | None = None
    ranks: tuple[Actor, ...] = ()  # the main processes of all ranks, this one included
    missing: tuple[int, ...] = ()  # workers that were there at the first look, and are not any more
    held_up: bool = False  # look at it as if the loop waited for a batch: it will, when it goes on

    @property
    def machine(self) -> Machine:
        return self.case.looks[-1].machine

    @property
    def machine_before(self) -> Machine:
        return self.case.looks[-2:][0].machine

    @property
    def seconds(self) -> float:
        return self.case.looks[-1].at - self.case.looks[-2:][0].at

    @property
    def all(self) -> tuple[Actor, ...]:
        return (self.main, *self.workers, *self.others)

    @property
    def seen(self) -> bool:
        """Say whether there are stacks of the main process."""
        return bool(self.main.main and self.main.main.thread.frames)

    @property
    def ours(self) -> bool:
        """Say whether its loader is ours."""
        strand = self.main.main
        by_worker = any(each.role is Role.OUR_WORKER for each in self.workers)
        return by_worker or bool(strand and any(PACKAGE in f.file for f in strand.frames))

    @cached_property
    def loop(self) -> Strand | None:
        """Give the thread that iterates over torch's loader, where it is in it; else the main one.
        Notebooks, servers and prefetchers iterate in threads of their own."""
        inside = [each for each in self.main.strands if each.calls("_next_data", LOADER)]
        return next(
            (each for each in inside if each is self.main.main), (*inside, self.main.main)[0]
        )

    @cached_property
    def waits_for_batch(self) -> Frame | None:
        """Give the line of the user's at which the loop waits for torch's workers."""
        strand = self.loop
        if strand is None or not strand.calls("_next_data", LOADER):
            return None
        if strand.calls("_next_index", "torch/utils/data/dataloader.py"):
            return None  # it asks the sampler, and waits for nobody else
        return strand.own_line or strand.at

    @cached_property
    def at_prompt(self) -> bool:
        """Say that the main process stands at a prompt, Python's, IPython's or a notebook's, and
        runs nothing of the user's."""
        strand = self.main.main
        if strand is None or self.main.process.blind:
            return False
        if not strand.frames:  # Python's own prompt is no Python code (until 3.13)
            typed = next((d.target for d in self.main.process.descriptors if d.number == 0), "")
            polls = "poll" in strand.thread.waits_in or "select" in strand.thread.waits_in
            return strand.thread.call[:2] == (Syscall.READ, 0) or (
                polls and typed.startswith(_TERMINALS)
            )
        if any(strand.calls(*each) for each in _RUN):
            return False
        return any(strand.calls(*each) for each in _PROMPTS)

    @property
    def living(self) -> tuple[Actor, ...]:
        return tuple(each for each in self.workers if not each.dead)

    @cached_property
    def starting(self) -> tuple[Actor, ...]:
        """Give the processes of multiprocessing that have not come to their own code yet: they
        import, and may become workers."""
        helpers = {each.pid for each in self.others if each.role is Role.HELPER}
        workers = tuple(each for each in self.living if is_starting(each.process))
        return workers + tuple(
            each
            for each in self.others
            if each.role is Role.CHILD
            and not each.dead
            and (
                "multiprocessing.spawn" in " ".join(each.process.command)
                or each.process.parent in helpers
            )
            and not (each.main and each.main.calls("run", PROCESS))
        )

    def idle(self, worker: Actor) -> bool:
        """Say that a worker waits for something to do."""
        strand = worker.main
        if worker.role is Role.OUR_WORKER:
            return strand is not None and strand.calls_own(WORKER_WAITS) is not None
        called = called_by_worker(strand.frames) if strand is not None else None
        return called is not None and is_order(called)


def scenes(case: Case) -> list[Scene]:
    """Give one scene a main process."""
    last, first = case.looks[-1], case.looks[-2:][0]
    seconds = last.at - first.at
    # By their begin too: the number of one that has ended is given to another.
    then = {(each.pid, each.started_at): each for each in first.processes}
    still = {(each.pid, each.started_at) for each in last.processes}
    now = {each.pid: each for each in last.processes}
    roles = {pid: role_of(each, now) for pid, each in now.items()}
    actors = {
        pid: Actor(
            each, then.get((pid, each.started_at)), roles[pid], seconds, number_of(each, now, roles)
        )
        for pid, each in now.items()
    }
    mains = [each for each in actors.values() if each.role is Role.MAIN]
    ranks = {each.pid for each in mains}
    if not mains:
        return _of_orphans(case, actors)
    launcher = next((each for each in actors.values() if each.role is Role.LAUNCHER), None)
    made = []
    for main in sorted(mains, key=lambda each: (each.number, each.pid)):
        below = _below(main.pid, now, ranks)
        mine = [actors[pid] for pid in below]
        workers = [each for each in mine if each.role in (Role.WORKER, Role.OUR_WORKER)]
        left = [each for key, each in then.items() if key not in still]
        gone = [each.pid for each in left if each.parent == main.pid]
        made.append(
            Scene(
                case,
                main,
                tuple(sorted(workers, key=lambda each: each.number)),
                tuple(each for each in mine if each not in workers),
                launcher,
                tuple(mains),
                tuple(gone),
            )
        )
    return made


def _below(top: int, now: dict[int, Process], ranks: set[int]) -> list[int]:
    """Give the processes that descend from one, without those of other ranks."""
    found: list[int] = []
    todo = [top]
    while todo:
        parent = todo.pop(0)
        children = [pid for pid, each in now.items() if each.parent == parent and pid not in ranks]
        found += children
        todo += children
    return found


def _of_orphans(case: Case, actors: dict[int, Actor]) -> list[Scene]:
    """Give a scene of workers whose main process is gone: the one that was asked about stands for
    it, and the others are beside it."""
    orphans = [each for each in actors.values() if each.role is Role.WORKER]
    if not orphans:
        return []
    asked = next((each for each in orphans if each.pid == case.asked), orphans[0])
    return [Scene(case, asked, (), tuple(each for each in actors.values() if each is not asked))]
