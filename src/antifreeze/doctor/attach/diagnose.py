"""From a case to an answer: what is found, in order, or that nothing is stuck. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..._transport import own_frames
from ..findings import Confidence, Finding
from .analyse.lock_waits import wait_of
from .analyse.progress import gets_on, watched_s
from .analyse.stuck_duration import asleep_s, by_time, lasts
from .analyse.threads_and_processes import Actor, Role, Scene, Strand, scenes
from .analyse.torch_loader import LOADER, QUEUES, waits_as_before
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
    answers = [_answer(scene, known) for scene in scenes(case)]
    blaming = {each.name for each in known if each.blames_other_rank}

    def order(answer: Answer) -> tuple[bool, bool, int]:
        blames = {each.rule for each in answer.findings}
        return not answer.stuck, bool(blames) and blames <= blaming, answer.rank

    return sorted(answers, key=order)


def _answer(scene: Scene, causes: tuple[Cause, ...]) -> Answer:
    raw, broken = _found(scene, causes)
    by_name = {each.name: each for each in causes}
    if any(by_name[each.rule].hides_wait_of_loop and scene.main.pid in each.pids for each in raw):
        raw += _behind(scene, causes)
    raw = _not_overruled(raw, by_name)
    timed = sorted((_timed(scene, each, by_name[each.rule]) for each in _in_order(raw)), key=_order)
    findings = tuple(_with_signals(scene, each) for each in timed)
    nothing = "" if findings else _nothing(scene)
    sentence = findings[0].sentence if findings else nothing or _still(scene)
    return Answer(
        scene.main.pid,
        scene.main.number,
        len(scene.ranks),
        sentence,
        findings,
        tuple(_line(scene, each) for each in _worth_a_line(scene)),
        _told(scene),
        tuple(broken),
        still=not findings and not nothing,
    )


def _found(scene: Scene, causes: tuple[Cause, ...]) -> tuple[list[Finding], list[str]]:
    """Give what the causes find, and which of them could not look."""
    raw: list[Finding] = []
    broken = []
    for cause in causes:
        try:
            raw += cause.find(scene)
        except Exception as error:  # ours: it must not cost the answer of the others
            broken.append(f"{cause.name}: {type(error).__name__}: {error}")
    return raw, broken


def _behind(scene: Scene, causes: tuple[Cause, ...]) -> list[Finding]:
    """Give what ails workers while the loop stands in a write, and does not wait for them yet: it
    is what it hangs in next."""
    workers = {each.pid for each in scene.workers}
    raw, _ = _found(replace(scene, held_up=True), causes)
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


def _timed(scene: Scene, found: Finding, cause: Cause) -> Finding:
    """Return a finding with what time says of it."""
    return by_time(scene, found, may_be_slow=cause.may_be_slow, proven_by_time=cause.proven_by_time)


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


def _with_signals(scene: Scene, found: Finding) -> Finding:
    """Name another signal where somebody ignores SIGINT, as programs do that a shell script has
    started with `&`: a command that does nothing is no way out."""
    deaf = [each.pid for each in scene.all if each.process.ignores_signals & _SIGINT]
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


def _nothing(scene: Scene) -> str:
    """Say what can be said where no cause is known; nothing if that is all that is known."""
    if not scene.seen:
        return "nothing is known to be wrong, but its stacks could not be taken: see below"
    actors = (scene.main, *scene.living)
    unseen = loop_waits(scene) and not any(gets_on(scene, each) for each in actors)
    if any(each.share > COMPUTES for each in scene.all):
        if unseen:
            return (
                "nothing is known to be wrong, but no progress was seen: it uses the CPU, and no"
                f" batch came and nothing was read or written in {watched_s(scene):.0f} s"
            )
        return "nothing is stuck: it computes"
    moved = any(strand.moved and not _looks_round(strand) for strand in _threads(scene))
    if moved and not unseen:
        return "nothing is stuck: it moves"
    if moved:
        return (
            "nothing is known to be wrong, but no progress was seen: some wake up now and then, and"
            f" no batch came and nothing was read or written in {watched_s(scene):.0f} s"
        )
    if scene.starting:
        count = len(scene.starting)
        who = "a process is" if count == 1 else f"{count} processes are"
        return f"nothing is known to be wrong: {who} still being started, and import (see below)"
    return ""


def _still(scene: Scene) -> str:
    """Say that nobody has moved, and for how long if that is known."""
    actors = (scene.main, *scene.living)
    slept = max(actors, key=asleep_s)
    if not (since := lasts(slept)):
        return STILL
    return f"{STILL}; {slept.label} has not run for {since}"


def _threads(scene: Scene) -> Iterator[Strand]:
    """Give the threads whose moving means that the program gets on: all of the main process that
    run Python, and the main ones of others."""
    for actor in scene.all:
        if not actor.dead:
            everyone = actor.strands if actor is scene.main else (actor.main,)
            yield from (each for each in everyone if each is not None and each.frames)


def _looks_round(strand: Strand) -> bool:
    """Say that a thread has only woken up to see that there is nothing: torch's loop and workers
    do every five seconds, other waits with a limit as often as they like."""
    if not waits_as_before(strand):
        return False
    waits = strand.calls("_try_get_data", LOADER) or strand.calls("get", QUEUES)
    return bool(waits) or wait_of(strand) is not None


def _worth_a_line(scene: Scene) -> tuple[Actor, ...]:
    children = [each for each in scene.others if each.role is Role.CHILD and not each.dead]
    return (scene.main, *scene.workers, *children[:CHILDREN])


def _told(scene: Scene) -> tuple[str, ...]:
    """Say what our own loader answered. It comes from another process: nothing of it is sure."""
    try:
        return tuple(_lines_told(scene.case.told.get(str(scene.main.pid), {})))
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
        story = [str(line) for line in loader.get("story", [])]
        yield from [line for line in story if not ROUTINE.search(line)][-STORY:]


def _line(scene: Scene, actor: Actor) -> str:
    strand = actor.main
    at = strand.own_line or strand.at if strand is not None else None
    place = f"in {at}" if at is not None else strand.thread.waits_in if strand else ""
    work = f"{actor.share:.0%} of a core"
    if actor in scene.workers and scene.idle(actor):
        place = "waiting for something to do"
    state = {"T": "stopped", "t": "stopped by a debugger", "Z": "dead, not yet buried"}
    doing = state.get(actor.process.state, work)
    since = f", not run for {slept}" if doing is work and (slept := lasts(actor)) else ""
    return f"{actor.label}: {doing}, {place}".rstrip(", ") + since
