"""A case understood: who is who, who works, who waits for what. Pure; what causes look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...._linux.syscalls import READ_OR_WRITE, Syscall
from ...._transport.own_frames import PACKAGE, WORKER_WAITS, OwnFrame
from ..facts import Case, Frame, Machine, Process, Thread
from .frames import called_by_worker, is_order, starts_process
from .frames import is_file as is_file
from .frames import is_library as is_library
from .library_files import LOADER, PROCESS
from .process_roles import GROUP_THREADS as GROUP_THREADS
from .process_roles import Role as Role
from .process_roles import is_starting, number_of, role_of

IDLE_SHARE = 0.02  # of a core: who uses less does nothing but wait
BUSY_SHARE = 0.5


def _share(before: Thread | Process | None, now: Thread | Process, seconds: float) -> float:
    if before is None or seconds <= 0:
        return 0.0
    return (now.cpu_s - before.cpu_s) / seconds


@dataclass(frozen=True)
class WatchedThread:
    """One thread over both looks."""

    process: Process
    before: Thread | None
    now: Thread
    seconds: float

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Return Python's frames, the innermost first."""
        return tuple(each for each in self.now.frames if not each.native)

    @property
    def frames_before(self) -> tuple[Frame, ...]:
        """Return Python's frames in the first look."""
        before = () if self.before is None else self.before.frames
        return tuple(each for each in before if not each.native)

    @property
    def at_same_lines(self) -> bool:
        """Whether it was at the same lines in both looks, whether it computes or not."""
        return self.frames_before == self.frames

    @property
    def wakeups(self) -> int:
        """Return how often it went to sleep anew between the looks."""
        return 0 if self.before is None else self.now.gave_way - self.before.gave_way

    @property
    def native(self) -> tuple[Frame, ...]:
        """Return the C code below the innermost line of Python."""
        found = []
        for each in self.now.frames:
            if not each.native:
                break
            found.append(each)
        return tuple(found)

    @property
    def share(self) -> float:
        """Return how much of a core it has used between the looks."""
        return _share(self.before, self.now, self.seconds)

    @property
    def moved(self) -> bool:
        """Whether it was at another line the second time, or went to sleep anew meanwhile."""
        if self.before is None:
            return True
        return not self.at_same_lines or self.wakeups != 0

    @property
    def stuck(self) -> bool:
        """Whether it has done nothing at all between the looks."""
        return not self.moved and self.share < IDLE_SHARE

    @property
    def asleep_s(self) -> float:
        """Return for how long it has not run; 0 if it has between the looks, -1 if it is not
        known."""
        if self.before is None or self.before.asleep_s < 0:
            return -1.0
        return self.before.asleep_s + self.seconds if self.stuck else 0.0

    @property
    def at(self) -> Frame | None:
        """Return the innermost line of Python."""
        return self.frames[0] if self.frames else None

    @property
    def own_frames(self) -> tuple[Frame, ...]:
        """Return Python's frames without those of the process that has forked this one."""
        first = next((at for at, each in enumerate(self.frames) if starts_process(each)), None)
        return self.frames[:first]

    @property
    def own_line(self) -> Frame | None:
        """Return the innermost line that is neither Python's own nor torch's."""
        return next((each for each in self.own_frames if not is_library(each)), None)

    def calls(self, name: str, file: str = "") -> Frame | None:
        """Return the frame of a function that is under way, by its name or the end of it, and the
        end of its file's path."""
        for each in self.frames:
            last = each.name.rpartition(".")[2]
            if (each.name == name or last == name) and is_file(each, file):
                return each
        return None

    def calls_own(self, own: OwnFrame) -> Frame | None:
        """Return the frame of a function of ours that is under way."""
        return self.calls(own.function, own.file)

    def in_native(self, *parts: str) -> Frame | None:
        """Return the C function that is under way and whose name has one of these in it."""
        for each in self.native:
            if any(part in each.name for part in parts):
                return each
        return None

    def descriptor(self) -> str:
        """Return what its system call reads from or writes to; nothing if it is no such call."""
        call = self.now.call
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
class WatchedProcess:
    """One process over both looks."""

    now: Process
    before: Process | None
    role: Role
    seconds: float
    number: int = 0  # of a worker, as they were started; of a rank

    @property
    def pid(self) -> int:
        return self.now.pid

    @cached_property
    def threads(self) -> tuple[WatchedThread, ...]:
        then = {each.tid: each for each in self.before.threads} if self.before else {}
        return tuple(
            WatchedThread(self.now, then.get(each.tid), each, self.seconds)
            for each in self.now.threads
        )

    @property
    def main(self) -> WatchedThread | None:
        return next((each for each in self.threads if each.now.tid == self.pid), None)

    def named(self, name: str) -> list[WatchedThread]:
        """Return the threads whose name begins so."""
        return [each for each in self.threads if each.now.name.startswith(name)]

    @property
    def share(self) -> float:
        """Return how many cores it has used between the looks."""
        return _share(self.before, self.now, self.seconds)

    @property
    def stopped(self) -> bool:
        return self.now.state in "Tt"

    @property
    def dead(self) -> bool:
        return self.now.state in "ZX"

    @property
    def label(self) -> str:
        match self.role:
            case Role.WORKER | Role.OUR_WORKER:
                return f"worker {self.number} (pid {self.pid})"
            case Role.MAIN:
                return f"the main process (pid {self.pid})"
            case Role.CHILD:
                return f"its child {self.now.name!r} (pid {self.pid})"
            case _:
                return f"{self.role.value} (pid {self.pid})"


@dataclass(frozen=True)
class Program:
    """One program: a main process (one rank) with its workers, and what it shares with others."""

    case: Case
    main: WatchedProcess
    workers: tuple[WatchedProcess, ...]
    others: tuple[WatchedProcess, ...]  # helpers, children, our clean process
    launcher: WatchedProcess | None = None
    ranks: tuple[WatchedProcess, ...] = ()  # the main processes of all ranks, this one included
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
    def all(self) -> tuple[WatchedProcess, ...]:
        return (self.main, *self.workers, *self.others)

    @property
    def seen(self) -> bool:
        """Whether there are stacks of the main process."""
        return bool(self.main.main and self.main.main.now.frames)

    @property
    def ours(self) -> bool:
        """Whether its loader is ours."""
        thread = self.main.main
        by_worker = any(each.role is Role.OUR_WORKER for each in self.workers)
        return by_worker or bool(thread and any(PACKAGE in f.file for f in thread.frames))

    @cached_property
    def loop(self) -> WatchedThread | None:
        """Return the thread that iterates over torch's loader, where it is in it; else the main
        one. Notebooks, servers and prefetchers iterate in threads of their own."""
        inside = [each for each in self.main.threads if each.calls("_next_data", LOADER)]
        return next(
            (each for each in inside if each is self.main.main), (*inside, self.main.main)[0]
        )

    @cached_property
    def waits_for_batch(self) -> Frame | None:
        """Return the line of the user's at which the loop waits for torch's workers."""
        thread = self.loop
        if thread is None or not thread.calls("_next_data", LOADER):
            return None
        if thread.calls("_next_index", LOADER):
            return None  # it asks the sampler, and waits for nobody else
        return thread.own_line or thread.at

    @cached_property
    def at_prompt(self) -> bool:
        """Whether the main process stands at a prompt, Python's, IPython's or a notebook's, and
        runs nothing of the user's."""
        thread = self.main.main
        if thread is None or self.main.now.blind:
            return False
        if not thread.frames:  # Python's own prompt is no Python code (until 3.13)
            typed = next((d.target for d in self.main.now.descriptors if d.number == 0), "")
            polls = "poll" in thread.now.waits_in or "select" in thread.now.waits_in
            return thread.now.call[:2] == (Syscall.READ, 0) or (
                polls and typed.startswith(_TERMINALS)
            )
        if any(thread.calls(*each) for each in _RUN):
            return False
        return any(thread.calls(*each) for each in _PROMPTS)

    @property
    def living(self) -> tuple[WatchedProcess, ...]:
        return tuple(each for each in self.workers if not each.dead)

    @cached_property
    def starting(self) -> tuple[WatchedProcess, ...]:
        """Return the processes of multiprocessing that have not come to their own code yet: they
        import, and may become workers."""
        helpers = {each.pid for each in self.others if each.role is Role.HELPER}
        workers = tuple(each for each in self.living if is_starting(each.now))
        return workers + tuple(
            each
            for each in self.others
            if each.role is Role.CHILD
            and not each.dead
            and (
                "multiprocessing.spawn" in " ".join(each.now.command) or each.now.parent in helpers
            )
            and not (each.main and each.main.calls("run", PROCESS))
        )

    def has_children(self, process: WatchedProcess) -> bool:
        """Whether a process has started a program, which lives."""
        return any(
            each.now.parent == process.pid and not each.dead and each.role is Role.CHILD
            for each in self.others
        )

    def idle(self, worker: WatchedProcess) -> bool:
        """Whether a worker waits for something to do."""
        thread = worker.main
        if worker.role is Role.OUR_WORKER:
            return thread is not None and thread.calls_own(WORKER_WAITS) is not None
        called = called_by_worker(thread.frames) if thread is not None else None
        return called is not None and is_order(called)


def programs(case: Case) -> list[Program]:
    """Return one program a main process."""
    last, first = case.looks[-1], case.looks[-2:][0]
    seconds = last.at - first.at
    # By their begin too: the number of one that has ended is given to another.
    then = {(each.pid, each.started_at): each for each in first.processes}
    still = {(each.pid, each.started_at) for each in last.processes}
    now = {each.pid: each for each in last.processes}
    roles = {pid: role_of(each, now) for pid, each in now.items()}
    processes = {
        pid: WatchedProcess(
            each, then.get((pid, each.started_at)), roles[pid], seconds, number_of(each, now, roles)
        )
        for pid, each in now.items()
    }
    mains = [each for each in processes.values() if each.role is Role.MAIN]
    ranks = {each.pid for each in mains}
    if not mains:
        return _of_orphans(case, processes)
    launcher = next((each for each in processes.values() if each.role is Role.LAUNCHER), None)
    made = []
    for main in sorted(mains, key=lambda each: (each.number, each.pid)):
        below = _below(main.pid, now, ranks)
        mine = [processes[pid] for pid in below]
        workers = [each for each in mine if each.role in (Role.WORKER, Role.OUR_WORKER)]
        left = [each for key, each in then.items() if key not in still]
        gone = [each.pid for each in left if each.parent == main.pid]
        made.append(
            Program(
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
    """Return the processes that descend from one, without those of other ranks."""
    found: list[int] = []
    todo = [top]
    while todo:
        parent = todo.pop(0)
        children = [pid for pid, each in now.items() if each.parent == parent and pid not in ranks]
        found += children
        todo += children
    return found


def _of_orphans(case: Case, processes: dict[int, WatchedProcess]) -> list[Program]:
    """Return a program of workers whose main process is gone: the one that was asked about stands
    for it, and the others are beside it."""
    orphans = [each for each in processes.values() if each.role is Role.WORKER]
    if not orphans:
        return []
    asked = next((each for each in orphans if each.pid == case.asked), orphans[0])
    return [
        Program(case, asked, (), tuple(each for each in processes.values() if each is not asked))
    ]
