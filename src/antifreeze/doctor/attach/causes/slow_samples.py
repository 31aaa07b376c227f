"""Nothing is stuck: samples take so long that the loop waits for them."""

from __future__ import annotations

from collections.abc import Iterator

from ...findings import Finding
from ..analyse.progress import in_native_code, makes_progress, watched_s
from ..analyse.threads_and_processes import Program, WatchedProcess
from ..analyse.waits import at_line, in_sample, loads_itself, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import POSSIBLE, Cause, names_of, plural
from .lock_in_turns import locks_in_turns

NAME = "slow-samples"
_COMPUTES = 0.1  # of a core: on a crowded machine one that computes gets no more
_LATE_S = 3.0  # watched without a sign of progress: worth saying


def find(program: Program) -> Iterator[Finding]:
    if locks_in_turns(program):
        return  # a lock is why they are slow, and more workers would not help
    if loads_itself(program):
        at_work = [program.main]
        before = program.main.main.before if program.main.main is not None else None
        if before is None or not any(each.name.endswith("fetch") for each in before.frames):
            return  # it does other things as well
    elif loop_waits(program):
        at_work = [each for each in program.living if in_sample(program, each)]
    else:
        return
    threads = [each.main for each in at_work if each.main is not None]
    if not threads or len(threads) < len(at_work) or len(at_work) < len(program.living):
        return
    computes = [each for each in at_work if each.main and each.main.share > _COMPUTES]
    slow = [each for each in at_work if each not in computes and not _gets_on(program, each)]
    if slow:
        return  # they sleep, or wake up for nothing: that is not to be slow
    unseen = [each for each in computes if not makes_progress(program, each)]
    if unseen and watched_s(program) >= _LATE_S:
        yield _no_progress(program, unseen)
    else:
        yield _slow(program, at_work, computes=len(computes) == len(at_work))


def _no_progress(program: Program, processes: list[WatchedProcess]) -> Finding:
    """Return what is seen of those who compute, where nothing came of it while they were
    watched."""
    first = processes[0].main
    assert first is not None
    again = f"antifreeze attach {program.main.pid}"
    return Finding(
        NAME,
        POSSIBLE,
        f"{names_of(processes)} {plural(processes, 'runs', 'run')} on the CPU, {at_line(first)},"
        f" and {plural(processes, 'has', 'have')} read and written nothing in the"
        f" {watched_s(program):.0f} s of watching: a long computation or a loop without an end,"
        " which look the same from outside"
        + (
            ""
            if processes[0] is program.main
            else and_the_loop_waits(program, processes, _them(processes))
        ),
        evidence=(
            *(_seen(process) for process in processes[:4]),
            *(
                f"{process.label} is in native code: {native}"
                for process in processes[:2]
                if process.main and (native := in_native_code(process.main))
            ),
        ),
        get_out=(
            f"look again, in some minutes: {again}    (if the same line is named, and no batch has"
            " come, it is one sample that does not end)",
        ),
        prevent=(
            "make this line faster, or bound its loop; antifreeze's loader names the sample that"
            " does not return, and goes on without it (sample_timeout)",
        ),
        pids=tuple(each.pid for each in processes),
        harmless=True,
    )


def _them(processes: list[WatchedProcess]) -> str:
    return plural(processes, "it", "them")


def _slow(program: Program, at_work: list[WatchedProcess], *, computes: bool) -> Finding:
    first = at_work[0].main
    assert first is not None
    main = at_work[0] is program.main
    what = "computes" if computes else "reads or waits, and moves"
    if len(at_work) > 1:
        what = "compute" if computes else "read or wait, and move"
    return Finding(
        NAME,
        POSSIBLE,
        f"nothing is stuck, but samples are slow: {names_of(at_work)} {what}, {at_line(first)}"
        + (
            "; without workers the loop does this itself"
            if main
            else f", and the loop waits for {_them(at_work)}"
        ),
        evidence=tuple(_seen(process) for process in at_work[:4]),
        get_out=(
            "nothing is to be done now. If the same line is named in some minutes, and no batch"
            " has come, it is one sample that does not end",
        ),
        prevent=(
            "make this line faster: arrays instead of loops in Python, smaller files, results kept"
            " on disk"
            if computes
            else "read ahead and from nearer: more workers, larger files, a local copy",
            _workers(program, computes=computes),
        ),
        pids=tuple(each.pid for each in at_work),
        harmless=True,
    )


def _workers(program: Program, *, computes: bool) -> str:
    cores = program.main.now.cores or program.machine.cores or 1
    if not program.living:
        return f"num_workers=1 or more: the loop then computes meanwhile; there are {cores} cores"
    if computes and len(program.living) >= cores:
        return (
            f"more workers do not help: {len(program.living)} compute, and there are {cores} cores"
        )
    return f"more workers than {len(program.living)}, while there are cores ({cores}) and memory"


def _gets_on(program: Program, process: WatchedProcess) -> bool:
    """Whether one that hardly computes gets on. To wake up, look and sleep again at the same line
    is not enough: so does one that waits for what never comes."""
    thread = process.main
    return thread is not None and thread.before is not None and makes_progress(program, process)


def _seen(process: WatchedProcess) -> str:
    thread = process.main
    assert thread is not None
    return f"{process.label}: {thread.share:.0%} of a core, {at_line(thread)}"


CAUSE = Cause(NAME, find)
