"""A stall in words: one line for people, and the stack behind it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from .._core.health import worker_phases
from .._core.health.stall_detection import Pulse, StackLine, Stall
from .._core.limits import Limits
from .._core.tickets import Ticket
from .formatting import shown
from .log import logger
from .ranks import who as speaks
from .redaction import redacted

# Called when a stall has been told, in whichever thread tells it: for who has more to say then.
listeners: list[Callable[[], None]] = []


def tell(stall: Stall, ticket: Ticket | None, label: str, limits: Limits, behind: str = "") -> None:
    """Log who keeps the loop waiting; the whole stack for those who want to know more. `behind`: a
    sentence about the sample."""
    logger.warning("%s%s", line(stall, ticket, label, limits), f" {behind}" if behind else "")
    if stall.activity.stack:
        logger.info("antifreeze: worker %s is at\n%s", stall.seat, lines(stall.activity.stack))
    _call_listeners()


def tell_own(stall: Stall, ticket: Ticket, behind: str = "") -> None:
    """Log what keeps a loop waiting in this process. `behind`: more about the sample."""
    logger.warning("%s%s", own_line(stall, ticket), f" {behind}" if behind else "")
    if stall.activity.stack:
        logger.info("antifreeze: this process is at\n%s", lines(stall.activity.stack))
    _call_listeners()


def _call_listeners() -> None:
    for listener in listeners:
        listener()


def own_line(stall: Stall, ticket: Ticket) -> str:
    """Say in one line what keeps a loop waiting in this process, and that it will not be ended."""
    said = f"{speaks()}: waiting {stall.seconds:.0f} s in this process (pid {os.getpid()})"
    outlook = "Nothing can be replaced in the main process, where samplers run"
    if stall.step != worker_phases.SAMPLER:
        outlook = "Nothing can be replaced in the main process; with num_workers=1 it could be"
    return f"{said}: {doing(stall, ticket)} is {state(stall)}. {outlook}."


def line(stall: Stall, ticket: Ticket | None, label: str, limits: Limits) -> str:
    """Say in one line what keeps the loop waiting, and what will be done about it."""
    who = f"worker {stall.seat} ({label})"
    said = f"{speaks()}: waiting {stall.seconds:.0f} s for {who}: {doing(stall, ticket)}"
    unwanted = ticket is None and stall.ticket != 0
    return f"{said} is {state(stall)}.{_cause(stall)} {_outlook(stall, limits, unwanted)}"


def _cause(stall: Stall) -> str:
    """Return a sentence about threads that a fork has left behind, if that may be why it hangs."""
    lacks = stall.activity.left_behind
    if not lacks or stall.pulse in (Pulse.MOVING, Pulse.STOPPED, Pulse.SLOW):
        return ""
    return (
        f" Likely cause: it was forked from a process with threads of {lacks}, which a fork does"
        " not copy."
    )


def doing(stall: Stall, ticket: Ticket | None) -> str:
    """Name the call: which sample, or which other code of the user's."""
    step, indices = stall.step, None if ticket is None else ticket.indices
    batch = "" if ticket is None else f" (batch {ticket.position})"
    if step == worker_phases.INIT:
        return "worker_init_fn"
    if step == worker_phases.ITER:
        return "preparing the dataset"
    if step == worker_phases.OURS:
        return "a worker that takes no work up"
    if step == worker_phases.CLEAN:
        return "a new worker, whose clean process imports libraries or opens the dataset,"
    if ticket is None:
        return "a batch of an epoch that was left"
    if step == worker_phases.SAMPLER:
        return f"the sampler{batch}"
    if step == worker_phases.INDICES:
        return f"reading the indices of batch {ticket.position}"
    if (verb := WITH_BATCH.get(step)) is not None:
        if _is_of_stream(indices):
            return f"{verb} batch {ticket.position} of its stream"
        return f"{verb} {samples(indices)}{batch}"
    if step == worker_phases.WHOLE:
        return f"loading {samples(indices)}{batch}"
    index: Any = worker_phases.index_at(step, indices)
    if index is None:
        return f"the next sample of its stream{batch}"
    return f"sample {shown(index)}{batch}"


def of_samples(ticket: Ticket) -> str:
    """Name the samples of a batch, where they have names."""
    return " of its stream" if _is_of_stream(ticket.indices) else f": {samples(ticket.indices)}"


def samples(indices: Any) -> str:
    """Name the samples of a batch by their indices; or the one, where there are no batches."""
    one = isinstance(indices, int | float | str | bytes) or not hasattr(indices, "__len__")
    return f"{'sample' if one else 'samples'} {shown(indices)}"


def _is_of_stream(indices: Any) -> bool:
    some = isinstance(indices, list) and len(indices) > 0
    return indices is None or (some and indices[0] is None)


def state(stall: Stall) -> str:
    """Return how it stands, where, and by what evidence."""
    seen = stall.activity
    waits_for = seen.waits_for if seen.waits_for != stall.pulse.value else ""
    evidence = [redacted(waits_for)] if waits_for else []
    if stall.pulse in (Pulse.STUCK, Pulse.DEADLOCKED):
        if stall.wakes > 1:
            evidence.append(f"it woke up {stall.wakes} times and went to sleep again at this line")
        evidence.append(f"no CPU, no I/O for {stall.still_s:.2g} s")
    if stall.pulse is Pulse.DEADLOCKED:
        evidence.append("all its threads wait for each other")
    if stall.pulse in (Pulse.RUNNING, Pulse.SPINNING):
        evidence.append(f"{_cpu(stall)}; {_unchanged(stall)} for {stall.unchanged_s:.0f} s")
    told = f" ({'; '.join(evidence)})" if evidence else ""
    return f"{stall.pulse.value}{where(seen.stack)}{told}"


def _cpu(stall: Stall) -> str:
    if not stall.computes:
        return "it uses hardly any CPU"
    waits = stall.activity.waits_for not in ("", "running")
    return "other threads of it use the CPU" if waits else "it uses the CPU"


def _unchanged(stall: Stall) -> str:
    """Return what has not changed while it ran."""
    if not stall.activity.stack:
        return "its stack is not known, and it has read and written nothing"
    if stall.pulse is Pulse.SPINNING:
        return "its stack has not changed, and it has read and written nothing"
    return "it has read and written nothing and has been in the same part of the code"


# What is done with a whole batch when its samples are there.
WITH_BATCH = {
    worker_phases.COLLATE: "collating",
    worker_phases.PACK: "packing",
    worker_phases.HAND_OVER: "handing over",
}


@functools.cache
def _libraries() -> tuple[str, ...]:
    import sysconfig  # 5 ms, which nobody needs before something stalls

    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib")})


def users_frame(stack: tuple[StackLine, ...]) -> StackLine | None:
    """Give the innermost line that is not a library's, or else the innermost."""
    for frame in stack:
        if not frame.file.startswith(_libraries()) and not frame.file.startswith("<"):
            return frame
    return stack[0] if stack else None


def lines(stack: tuple[StackLine, ...]) -> str:
    """Lay out a stack, innermost last, as Python does."""
    return "\n".join(
        f'  File "{frame.file}", line {frame.line}, in {frame.function}'
        for frame in reversed(stack)
    )


def where(stack: tuple[StackLine, ...]) -> str:
    """Say at which line that is; nothing if there is no stack."""
    frame = users_frame(stack)
    if frame is None:
        return ""
    return f" at {PurePath(frame.file).name}:{frame.line}, in {frame.function}"


def _outlook(stall: Stall, limits: Limits, unwanted: bool) -> str:
    if stall.pulse is Pulse.STOPPED:
        return "It was told to go on (SIGCONT)."
    if stall.step == worker_phases.CLEAN and stall.pulse not in (Pulse.STUCK, Pulse.DEADLOCKED):
        return f"It has {limits.start_s:g} s to begin."
    if limits.call_s is not None and worker_phases.is_of_user(stall.step):
        return f"It is replaced after {limits.call_s:g} s (sample_timeout)."
    if limits.still_s is None:
        return "It is never replaced (sample_timeout=None)."
    match stall.pulse:
        case Pulse.MOVING | Pulse.RUNNING:
            return "It is left to work; sample_timeout=SECONDS would set a limit."
        case Pulse.SPINNING:
            after_s = limits.spin_s
        case Pulse.DEADLOCKED:
            after_s = limits.locked_s
        case _:
            ours = stall.step in (worker_phases.OURS, worker_phases.HAND_OVER, worker_phases.CLEAN)
            after_s = limits.dead_s if ours or unwanted else limits.still_s
    return f"It is replaced after {after_s:g} s of that; sample_timeout=SECONDS would set a limit."
