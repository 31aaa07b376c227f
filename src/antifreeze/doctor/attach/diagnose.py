"""From a case to an answer: what is found, in order, or that nothing is stuck. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..._transport import own_frames
from ..findings import Confidence, Finding
from .analyse.library_files import LOADER, QUEUES
from .analyse.lock_waits import wait_of
from .analyse.progress import makes_progress, watched_s
from .analyse.stuck_duration import asleep_s, judged_by_time, long_time_not_run
from .analyse.threads_and_processes import Program, Role, WatchedProcess, WatchedThread, programs
from .analyse.torch_loader import waits_as_before
from .analyse.waits import loop_waits
from .causes import Cause, all_causes
from .facts import Case

_WAITS = re.compile(r"the loop waits for (it|them)\b")
_SIGINT = 1 << (signal.SIGINT - 1)
STORY = 6  # lines of it
# What our loader does every second, whatever happens: nothing of it is news.
_EVENTS = "|".join(each.name for each in own_frames.ROUTINE_EVENTS)
_COMMANDS = "|".join(each.name for each in own_frames.ROUTINE_COMMANDS)
ROUTINE = re.compile(
    rf": (?:{_EVENTS})(?: of worker \d+)?(?: -> (?:{_COMMANDS})(?:, (?:{_COMMANDS}))*)?$"
)
# Of a core. Who computes on a crowded machine may get no more; threads that watch use less.
COMPUTES = 0.05
CHILDREN = 8  # that are shown: programs which the script or its workers have started
STILL = (
    "nobody has moved between two looks, and it is none of the ways to hang that are known here:"
    " the lines below say where each process is"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is to be said of one main process."""

    pid: int
    rank: int
    ranks: int
    sentence: str
    findings: tuple[Finding, ...] = ()
    facts: tuple[str, ...] = ()  # who does what: one line a process
    told: tuple[str, ...] = ()  # by our own loader, in its words
    broken: tuple[str, ...] = ()  # causes that could not look, by a mistake of ours
    still: bool = False  # nobody has moved, and nobody knows why

    @property
    def stuck(self) -> bool:
        return any(not each.harmless for each in self.findings)


def diagnose(case: Case, causes: Iterable[Cause] | None = None) -> list[Answer]:
    """Name the causes, for each main process of the program; those that only wait for another one
    come last."""
    known = all_causes() if causes is None else tuple(causes)
    answers = [_answer(program, known) for program in programs(case)]
    blaming = {each.name for each in known if each.blames_other_rank}

    def order(answer: Answer) -> tuple[bool, bool, int]:
        blames = {each.rule for each in answer.findings}
        return not answer.stuck, bool(blames) and blames <= blaming, answer.rank

    return sorted(answers, key=order)


def _answer(program: Program, causes: tuple[Cause, ...]) -> Answer:
    raw, broken = _found(program, causes)
    by_name = {each.name: each for each in causes}
    if any(by_name[each.rule].hides_wait_of_loop and program.main.pid in each.pids for each in raw):
        raw += _behind(program, causes)
    raw = _not_overruled(raw, by_name)
    timed = sorted(
        (_timed(program, each, by_name[each.rule]) for each in _in_order(raw)), key=_order
    )
    findings = tuple(_with_signals(program, each) for each in timed)
    nothing = "" if findings else _nothing(program)
    sentence = findings[0].sentence if findings else nothing or _still(program)
    return Answer(
        program.main.pid,
        program.main.number,
        len(program.ranks),
        sentence,
        findings,
        tuple(_line(program, each) for each in _worth_a_line(program)),
        _told(program),
        tuple(broken),
        still=not findings and not nothing,
    )


def _found(program: Program, causes: tuple[Cause, ...]) -> tuple[list[Finding], list[str]]:
    """Return what the causes find, and which of them could not look."""
    raw: list[Finding] = []
    broken = []
    for cause in causes:
        try:
            raw += cause.find(program)
        except Exception as error:  # ours: it must not cost the answer of the others
            broken.append(f"{cause.name}: {type(error).__name__}: {error}")
    return raw, broken


def _behind(program: Program, causes: tuple[Cause, ...]) -> list[Finding]:
    """Return what ails workers while the loop stands in a write, and does not wait for them yet: it
    is what it hangs in next."""
    workers = {each.pid for each in program.workers}
    raw, _ = _found(replace(program, held_up=True), causes)
    return [
        replace(each, sentence=_WAITS.sub(r"the loop comes to wait for \1 next", each.sentence))
        for each in raw
        if not each.harmless and each.pids and workers >= {*each.pids}
    ]


def _not_overruled(raw: list[Finding], by_name: dict[str, Cause]) -> list[Finding]:
    """Leave out what is said of processes which another cause explains, unless it is certain."""
    explained = {pid for each in raw if by_name[each.rule].overrules_unsure for pid in each.pids}
    return [
        each
        for each in raw
        if each.harmless or each.confidence is Confidence.CERTAIN or not explained >= {*each.pids}
    ]


def _timed(program: Program, found: Finding, cause: Cause) -> Finding:
    """Return a finding with what time says of it."""
    return judged_by_time(
        program, found, may_be_slow=cause.may_be_slow, proven_by_time=cause.proven_by_time
    )


def _in_order(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Put what is surest first. Where something specific explains a process well, what is no more
    than possible for it is left out, and so is how in general it hangs; that all is well, where
    anything is not."""
    ordered = sorted(found, key=_order)
    sick = [each for each in ordered if not each.harmless]
    explained = {
        pid
        for each in sick
        if each.confidence is not Confidence.POSSIBLE and not each.general
        for pid in each.pids
    }

    def counts(each: Finding) -> bool:
        weak = each.general or each.confidence is Confidence.POSSIBLE
        return not (weak and explained & {*each.pids})

    return tuple(filter(counts, sick)) or tuple(ordered)


def _order(found: Finding) -> tuple[bool, int, bool]:
    return found.harmless, found.confidence.rank, found.general


def _with_signals(program: Program, found: Finding) -> Finding:
    """Name another signal where somebody ignores SIGINT, as programs do that a shell script has
    started with `&`: a command that does nothing is no way out."""
    deaf = [each.pid for each in program.all if each.now.ignores_signals & _SIGINT]
    lines = []
    for line in found.get_out:
        for pid in deaf:
            if re.search(rf"kill -INT {pid}\b", line):
                line = (
                    f"kill {pid}    (it ignores SIGINT, as what a script starts with `&` does: this"
                    " ends it, and what it has not saved is lost)"
                )
        lines.append(line)
    return replace(found, get_out=tuple(dict.fromkeys(lines)))


def _nothing(program: Program) -> str:
    """Return what can be said where no cause is known; nothing if that is all that is known."""
    if not program.seen:
        return "nothing is known to be wrong, but its stacks could not be taken: see below"
    processes = (program.main, *program.living)
    unseen = loop_waits(program) and not any(makes_progress(program, each) for each in processes)
    if any(each.share > COMPUTES for each in program.all):
        if unseen:
            return (
                "nothing is known to be wrong, but no progress was seen: it uses the CPU, and no"
                f" batch came and nothing was read or written in {watched_s(program):.0f} s"
            )
        return "nothing is stuck: it computes"
    moved = any(thread.moved and not _looks_round(thread) for thread in _threads(program))
    if moved and not unseen:
        return "nothing is stuck: it moves"
    if moved:
        return (
            "nothing is known to be wrong, but no progress was seen: some wake up now and then, and"
            f" no batch came and nothing was read or written in {watched_s(program):.0f} s"
        )
    if program.starting:
        count = len(program.starting)
        who = "a process is" if count == 1 else f"{count} processes are"
        return f"nothing is known to be wrong: {who} still being started, and import (see below)"
    return ""


def _still(program: Program) -> str:
    """Whether nobody has moved, and for how long if that is known."""
    processes = (program.main, *program.living)
    slept = max(processes, key=asleep_s)
    if not (since := long_time_not_run(slept)):
        return STILL
    return f"{STILL}; {slept.label} has not run for {since}"


def _threads(program: Program) -> Iterator[WatchedThread]:
    """Return the threads whose moving means that the program gets on: all of the main process that
    run Python, and the main ones of others."""
    for process in program.all:
        if not process.dead:
            everyone = process.threads if process is program.main else (process.main,)
            yield from (each for each in everyone if each is not None and each.frames)


def _looks_round(thread: WatchedThread) -> bool:
    """Whether a thread has only woken up to see that there is nothing: torch's loop and workers
    do every five seconds, other waits with a limit as often as they like."""
    if not waits_as_before(thread):
        return False
    waits = thread.calls("_try_get_data", LOADER) or thread.calls("get", QUEUES)
    return bool(waits) or wait_of(thread) is not None


def _worth_a_line(program: Program) -> tuple[WatchedProcess, ...]:
    children = [each for each in program.others if each.role is Role.CHILD and not each.dead]
    return (program.main, *program.workers, *children[:CHILDREN])


def _told(program: Program) -> tuple[str, ...]:
    """Return what our own loader answered. It comes from another process: nothing of it is sure."""
    try:
        return tuple(_lines_told(program.case.told.get(str(program.main.pid), {})))
    except (AttributeError, KeyError, TypeError, IndexError):
        return ("its loader's answer is not as it should be",)


def _lines_told(said: dict[str, Any]) -> Iterator[str]:
    if "error" in said:
        yield str(said["error"])
    for loader in said.get("loaders", []):
        yield f"{loader.get('name')}: {loader.get('sentence')}"
        for worker in loader.get("workers", []):
            lives = worker.get("lives", 0)
            replaced = f", process number {lives} in this seat" if lives > 1 else ""
            at = worker.get("working_on") or []
            batch = f", at batch {at[0]}" if at else ""
            yield f"worker {worker.get('worker')}: {worker.get('life')}{batch}{replaced}"
        if loader.get("faults"):
            kinds = ", ".join(map(str, loader.get("latest_faults", [])))
            yield f"faults so far: {loader['faults']} (latest: {kinds})"
        event_log = [str(line) for line in loader.get("story", [])]
        yield from [line for line in event_log if not ROUTINE.search(line)][-STORY:]


def _line(program: Program, process: WatchedProcess) -> str:
    thread = process.main
    at = thread.own_line or thread.at if thread is not None else None
    place = f"in {at}" if at is not None else thread.now.waits_in if thread else ""
    work = f"{process.share:.0%} of a core"
    if process in program.workers and program.idle(process):
        place = "waiting for something to do"
    state = {"T": "stopped", "t": "stopped by a debugger", "Z": "dead, not yet buried"}
    doing = state.get(process.now.state, work)
    since = (
        f", not run for {slept}" if doing is work and (slept := long_time_not_run(process)) else ""
    )
    return f"{process.label}: {doing}, {place}".rstrip(", ") + since
