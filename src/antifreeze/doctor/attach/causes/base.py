"""What a cause is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...findings import Confidence, Finding
from ..analyse.threads_and_processes import Program, Role, WatchedProcess, WatchedThread
from .page import Page, read_page

CERTAIN, LIKELY, POSSIBLE = Confidence.CERTAIN, Confidence.LIKELY, Confidence.POSSIBLE
Find = Callable[[Program], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Cause:
    """One known cause: `find` names it in a program."""

    name: str
    find: Find
    # What a finding of it means for others. Whatever else is said of its processes is left out,
    # unless that is certain: this one explains it.
    overrules_unsure: bool = False
    hides_wait_of_loop: bool = False  # the loop hangs in it, before it comes to wait for workers
    blames_other_rank: bool = False  # the answer for that rank is shown first
    # What time says of it. It ends by itself if somebody else is only slow: a server, a disk, a
    # lock's holder. Where nobody is left who could answer, or nobody reads, time says nothing.
    may_be_slow: bool = False
    proven_by_time: bool = False  # slowness is the only doubt: who lasts for long enough is stuck

    @property
    def page(self) -> Page:
        """Return what a person reads about it. Reads the file beside the module each time: nobody
        does who only looks for causes."""
        return read_page(Path(__file__).with_name(f"{self.name.replace('-', '_')}.md"))

    @property
    def title(self) -> str:
        return self.page.title


def where(thread: WatchedThread) -> str:
    """Return at which line of the user's a thread is, or at whatever line it is."""
    frame = thread.own_line or thread.at
    return "at an unknown line" if frame is None else f"in {frame}"


def names_of(processes: list[WatchedProcess]) -> str:
    """Name several processes: "worker 0 (pid 17)", "workers 0, 1 and 3"."""
    if len(processes) == 1:
        return processes[0].label
    numbers = [str(each.number) for each in processes]
    return f"workers {', '.join(numbers[:-1])} and {numbers[-1]}"


def plural(things: Sequence[object], one: str, several: str) -> str:
    return one if len(things) == 1 else several


def interrupt_at_line(main: WatchedProcess) -> str:
    """Return the command that interrupts the script where it runs."""
    return (
        f"kill -INT {main.pid}    (a KeyboardInterrupt at this line: what the script does not save"
        " then is lost)"
    )


def interrupt_wait(main: WatchedProcess) -> str:
    """Return the command that interrupts the script where it waits."""
    return (
        f"kill -INT {main.pid}    (KeyboardInterrupt at that line: the script can save; what it"
        " does not save is lost)"
    )


def kill_worker(processes: list[WatchedProcess]) -> str:
    """Return the command that ends a worker: torch's loop then raises an error, ours goes on."""
    pids = " ".join(str(each.pid) for each in processes)
    if all(each.role is Role.OUR_WORKER for each in processes):
        it = plural(processes, "it", "them")
        return (
            f"kill -9 {pids}    (antifreeze replaces {it} and loads the batches again: nothing is"
            " lost)"
        )
    return (
        f"kill -9 {pids}    (the loop raises 'DataLoader worker is killed': the script can save,"
        " and what it has not saved is lost if it does not)"
    )
