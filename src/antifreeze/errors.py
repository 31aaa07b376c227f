"""What we raise. Each error says what happened, what we did, the likely cause, what to try.

The first line keeps torch's well-known phrase: people search their logs for it.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import textwrap
import traceback
from pathlib import PurePath
from typing import Any

from ._core.faults import Ending, Fault, FaultKind
from ._core.health.stall_detection import Pulse, Stall
from ._core.health.worker_phases import CLEAN, INIT, index_at
from ._core.tickets import Ticket
from ._linux.available_memory import Available, in_words
from ._reporting import stall_messages
from ._reporting.crash_library import crashed_in
from ._reporting.formatting import shortened, shown

__all__ = [
    "AntifreezeError",
    "BudgetSpent",
    "ConfigurationError",
    "InternalError",
    "LoaderClosed",
    "TransportFailed",
    "WorkerCrashed",
    "WorkerFailed",
    "WorkerHung",
    "WorkerNeverStarted",
]


class AntifreezeError(Exception):
    """Everything antifreeze raises of its own."""


class ConfigurationError(AntifreezeError, ValueError):
    """An argument cannot be kept as things are: a file that is not there, or cannot be written."""


class WorkerFailed(AntifreezeError, RuntimeError):
    """A worker did not do its work."""


class WorkerCrashed(WorkerFailed):
    """A worker ended while it was loading."""


class WorkerHung(WorkerFailed):
    """A worker, or the batch it owed, kept the loop waiting too long."""


class WorkerNeverStarted(WorkerFailed):
    """No worker came up."""


class BudgetSpent(WorkerFailed):
    """Workers were replaced again and again and brought nothing."""


class TransportFailed(AntifreezeError, RuntimeError):
    """A batch could not cross from the worker to the main process."""

    @classmethod
    def cannot_pack(
        cls, path: str, kind: str, why: str, own: BaseException | None = None
    ) -> TransportFailed:
        """`own`: what the object's own pickling raised, if it is not that it cannot be."""
        if own is not None:
            what = type(own).__name__
            return cls(
                report(
                    f"the batch cannot be sent to the main process: {path} is a {kind}, whose own"
                    f" pickling raised {what}",
                    cause=f"{what}: {why}",
                    remedy="look at that sample; have the dataset read all of it (an image's"
                    " load(), say), so that it fails there if it must",
                )
            )
        return cls(
            report(
                f"the batch cannot be sent to the main process: {path} is a {kind} ({why})",
                cause="a batch is pickled in the worker; generators, lambdas, locks, open files and"
                " objects of classes defined inside a function cannot be",
                remedy=f"make {path} plain data in your dataset or collate_fn, or num_workers=0",
            )
        )

    @classmethod
    def cannot_send(cls, path: str, kind: str, why: str, threaded: bool = False) -> TransportFailed:
        """`threaded`: it works by threads, which a fork does not copy either."""
        path, make = shortened(path), "make" if threaded else "open"
        remedy = (
            f"have each worker {make} its own: {path} = antifreeze.per_worker({make}_it), and"
            f" {path}() where it is used; or leave it out of __getstate__"
        )
        if threaded:
            remedy += ", and make it when a worker first needs it"
        else:
            remedy += '; or multiprocessing_context="fork", where workers inherit it'
        return cls(
            report(
                f"the dataset cannot be sent to a worker: {path} is a {kind} ({why})",
                did="no worker was started",
                cause="under spawn and forkserver workers inherit nothing; the dataset is pickled",
                remedy=remedy,
            )
        )

    @classmethod
    def cannot_start(cls, why: str) -> TransportFailed:
        return cls(
            report(
                f"no clean process could be had for the workers: {why}",
                did="no worker was started",
                remedy='multiprocessing_context="fork", where workers inherit everything',
            )
        )

    @classmethod
    def no_memory_to_begin(cls, needed: int, left: Available) -> TransportFailed:
        return cls(
            report(
                f"there is no memory to begin with: {in_words(needed)} of shared memory are needed,"
                f" {in_words(left.bytes)} are {left.source}",
                did="no worker was started",
                remedy=LESS_MEMORY,
            )
        )

    @classmethod
    def no_memory(cls, needed: int, left: Available, slabs: int, held: int) -> TransportFailed:
        return cls(
            report(
                f"there is no memory to hand over a batch: it needs {in_words(needed)} of shared"
                f" memory, {in_words(left.bytes)} are {left.source}",
                did=f"nothing was written; this worker already holds {slabs} slabs,"
                f" {in_words(held)}",
                remedy="a smaller batch_size, fewer workers or a smaller prefetch_factor: memory in"
                " flight is about the size of a batch x (prefetch_factor + 2) x workers",
            )
        )

    @classmethod
    def cannot_unpack(cls, error: BaseException, which: str) -> TransportFailed:
        if isinstance(error, OSError) and error.errno not in SHORT:
            return cls(
                report(
                    f"{which}, arrived, but its memory could not be mapped: {error}",
                    remedy="more address space (ulimit -v) or more mappings (vm.max_map_count)",
                )
            )
        if isinstance(error, OSError):
            return cls(
                report(
                    "Too many open files. Communication with the workers is no longer possible."
                    " Please increase the limit using `ulimit -n` in the shell or change the"
                    " sharing strategy by calling"
                    " `torch.multiprocessing.set_sharing_strategy('file_system')`"
                    " at the beginning of your code",
                    did=f"gave up {which} ({error})",
                    remedy="close files you no longer need; antifreeze itself needs four"
                    " descriptors a worker, whatever you keep of the batches",
                )
            )
        return cls(
            report(
                f"{which}, could not be rebuilt in the main process:"
                f" {type(error).__name__}: {error}",
                cause="an object in the batch pickles in the worker and fails to unpickle here"
                + _rebuilding(error),
                remedy="plain data in its place, from your dataset or collate_fn",
            )
        )


def _rebuilding(error: BaseException) -> str:
    """Say which code of the user's or a library's was to rebuild an object, if any was."""
    ours = str(PurePath(__file__).parent)
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if not code.co_filename.startswith((ours, "<frozen")):
            return f", in {code.co_qualname} ({PurePath(code.co_filename).name}:{line})"
    return ""


class LoaderClosed(AntifreezeError, RuntimeError):
    """This iterator is over and cannot go on."""


class InternalError(AntifreezeError):
    """Our own mistake. Please report it, with the text."""


FEWER = (
    "fewer workers, or more processes for this user or container (ulimit -u, the pids limit);"
    " with num_workers=0 none are needed"
)


SHORT = (errno.EMFILE, errno.ENFILE)  # of descriptors


def report(what: str, *, did: str = "", cause: str = "", stack: str = "", remedy: str = "") -> str:
    """Lay out a message in our shape; leave out what is not known."""
    lines = [what]
    if stack:
        lines.append(f"  where it was\n{textwrap.indent(stack, '  ')}")
    if did:
        lines.append(f"  what we did   {did}")
    if cause:
        lines.append(f"  likely cause  {cause}")
    if remedy:
        lines.append(f"  to try        {remedy}")
    return "\n".join(lines)


def explain_start(error: Exception, num_workers: int) -> None:
    """Add what a bare error does not say, if workers could not be started for want of descriptors:
    which number is too large, and which too small."""
    causes = (error, error.__cause__)
    if num_workers and any(getattr(each, "errno", None) in SHORT for each in causes):
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        error.add_note(
            report(
                f"antifreeze: no descriptor was left to start num_workers={num_workers}: this"
                f" process may have {most} open at once",
                remedy="a higher limit (ulimit -n), fewer workers (each needs four descriptors"
                " here), or files closed that are no longer needed",
            )
        )


def error_for(fault: Fault, label: str) -> Exception:
    """Turn a fault into the exception the loop receives. `label` names the worker: "pid 41207"."""
    match fault.kind:
        case FaultKind.CRASH:
            return WorkerCrashed(_crash(fault, label, f"started a new worker and {_tried(fault)}"))
        case FaultKind.STREAM_LOST:
            did = (
                f"gave up this worker's stream after {fault.delivered} batches of the epoch; the"
                " streams of the other workers go on if you call next() again"
            )
            if fault.stall is not None:
                return WorkerHung(_hung(fault, label, did))
            return WorkerCrashed(_crash(fault, label, did))
        case FaultKind.HANG:
            return WorkerHung(_hung(fault, label, f"replaced it and {_tried(fault)}"))
        case FaultKind.TIMEOUT:
            return timed_out(fault, label, fault.seconds)
        case FaultKind.REFUSED:
            what = f"DataLoader worker {fault.seat} could not be started: {_words(fault)}."
            return WorkerNeverStarted(report(what, remedy=_when_refused(fault.ending)))
        case FaultKind.NEVER_STARTED | FaultKind.BUDGET_SPENT if fault.stall is not None:
            did = "replaced it several times, then stopped: nothing was brought in between"
            return WorkerHung(_hung(fault, label, did))
        case FaultKind.NEVER_STARTED:
            return WorkerNeverStarted(_never_started(fault, label))
        case FaultKind.BUDGET_SPENT:
            did = "replaced workers until several in a row had brought nothing, then stopped"
            return BudgetSpent(_crash(fault, label, did))
        case FaultKind.SAMPLER | FaultKind.EXCEPTION:
            return InternalError(f"{fault.kind} has an exception of its own")


def _tried(fault: Fault) -> str:
    attempts = 1 if fault.ticket is None else fault.ticket.attempt
    return f"tried the batch {attempts} times" if attempts > 2 else "tried once more"


def _hung(fault: Fault, label: str, did: str) -> str:
    stall = fault.stall
    if stall is None:  # it did not even begin
        return report(f"DataLoader worker ({label}) hung. {_was_loading(fault)}", did=did)
    doing, state = stall_messages.doing(stall, fault.ticket), stall_messages.state(stall)
    who = f"DataLoader worker {stall.seat} ({label})"
    return report(
        f"{who} hung for {stall.seconds:.3g} s: {doing} was {state}.",
        did=did,
        stack=stall_messages.lines(stall.activity.stack),
        cause=_cause_of_deadlock(stall),
        remedy=_remedy_for(stall, fault),
    )


def _cause_of_deadlock(stall: Stall) -> str:
    if stall.activity.left_behind:
        return (
            f"it uses {stall.activity.left_behind}, whose threads run in the process that it was"
            " forked from alone: a fork does not copy threads"
        )
    if stall.pulse is not Pulse.DEADLOCKED:
        return ""
    inherited = stall.activity.inherited
    if inherited is not None and inherited.no_way:
        return (
            f"it {inherited.words}. It could not be started in a clean process: {inherited.no_way}"
        )
    return (
        "another thread of the main process held the lock when the worker was made; or it waits for"
        " threads (of a pool, of an event loop) that only the main process has"
    )


def _remedy_for(stall: Stall, fault: Fault) -> str:
    if stall.step == CLEAN:
        return "look at that line: it runs in every new process, before any sample"
    if stall.activity.left_behind:
        remedy = "use that library in the workers only, not in the main process before the loop"
        inherited = stall.activity.inherited
        if inherited is not None and inherited.no_way:  # it was tried
            return f"{remedy} begins"
        way = 'multiprocessing_context="spawn", with a dataset that can be pickled'
        return f"{remedy} begins; or {way}"
    if stall.pulse is not Pulse.DEADLOCKED:
        remedy = "a larger sample_timeout, if your code can be this slow; else look at that line"
        is_sample = fault.kind is FaultKind.HANG and fault.place is not None
        return f"{remedy}, or {SPARE}" if is_sample else remedy
    return (
        "have each worker make its own lock, pool or event loop: self.pool ="
        " antifreeze.per_worker(make_it), and self.pool() where it is used"
    )


def _crash(fault: Fault, label: str, did: str) -> str:
    ending = fault.ending or Ending()
    return report(
        f"DataLoader worker ({label}) {_how(ending)} {_was_loading(fault)}",
        stack=stall_messages.lines(ending.stack),
        did=did,
        cause=_why(ending),
        remedy=_after_crash(fault, ending),
    )


SPARE = 'on_error="skip" or "replace" to continue without the sample'
LESS_MEMORY = (
    "fewer workers (at least 1), a smaller batch_size or prefetch_factor, or more memory for this"
    " program"
)


def _after_crash(fault: Fault, ending: Ending) -> str:
    if ending.out_of_memory or ending.signal == signal.SIGKILL:
        return _when_killed(ending)
    if ending.called_exit:
        return "raise an exception there: it reaches the loop, and on_error= applies to it"
    debug = "num_workers=0 runs the same code in the main process, where a debugger sees it"
    if fault.kind is FaultKind.CRASH and fault.place is not None and ending.signal in NATIVE:
        return f"{SPARE}; {debug}"
    return debug


def _when_killed(ending: Ending) -> str:
    if ending.out_of_memory:
        return LESS_MEMORY
    return f"if memory is short, {LESS_MEMORY}; else find what sends SIGKILL (a job scheduler)"


# Signals by which native code ends its process.
NATIVE = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


def _how(ending: Ending) -> str:
    if ending.signal is not None:
        return f"is killed by signal: {_signal_name(ending.signal)}."
    if ending.exit_code is not None:
        return f"exited unexpectedly with exit code {ending.exit_code}."
    return f"ended: {ending.words}." if ending.words else "exited unexpectedly."


def _words(fault: Fault) -> str:
    return fault.ending.words if fault.ending is not None else "nobody knows why"


def _signal_name(number: int) -> str:
    try:
        return signal.strsignal(number) or f"signal {number}"
    except ValueError:
        return f"signal {number}"


def _why(ending: Ending) -> str:
    if ending.words:  # where there is nothing else, `_how` says it
        return "" if ending.signal is None and ending.exit_code is None else ending.words
    match ending.signal:
        case signal.SIGKILL:
            return "someone sent SIGKILL, or the kernel, because memory ran out (see dmesg)"
        case number if number in NATIVE:
            if library := crashed_in(ending.stack):
                return f"native code crashed: {library}"
            return "native code called by the dataset crashed"
        case _:
            return ""


def _was_loading(fault: Fault) -> str:
    worker = f"Worker {fault.seat}, life {fault.life},"
    if fault.step == INIT:
        return f"{worker} was in worker_init_fn."
    if fault.step == CLEAN:
        return f"{worker} was opening the dataset."
    if fault.ticket is None:
        return f"{worker} held no batch."
    indices: Any = fault.ticket.indices
    batch = f"batch {fault.ticket.position}: {stall_messages.samples(indices)}"
    if isinstance(indices, list | tuple) and indices and indices[0] is None:
        what = f"batch {fault.ticket.position} of the epoch, from its stream"
    elif indices is None:
        what = "the next sample of its stream"
    elif (index := index_at(fault.step, indices)) is not None:
        what = f"sample {shown(index)} ({batch})"
    elif (doing := stall_messages.WITH_BATCH.get(fault.step)) is not None:
        return f"{worker} was {doing} {batch}."
    else:
        what = batch
    return f"{worker} was loading {what}."


def timed_out(
    fault: Fault,
    label: str,
    timeout_s: float,
    seen: Stall | None = None,
    busy_with: Ticket | None = None,
) -> WorkerHung:
    """Say that the loop's own `timeout` is over, and what it waited for, as it is `seen` now."""
    stack = ""
    if fault.ticket is None:
        awaited = "no worker had begun the batch that was due."
    elif seen is None:
        awaited = f"waited for worker {fault.seat} ({label}). {_was_loading(fault)}"
    else:
        doing, state = stall_messages.doing(seen, busy_with), stall_messages.state(seen)
        if busy_with is not None and busy_with.epoch != fault.ticket.epoch:
            doing += ", of an earlier epoch,"
        stack = stall_messages.lines(seen.activity.stack)
        batch = f"batch {fault.ticket.position}{stall_messages.of_samples(fault.ticket)}"
        awaited = f"waited for worker {fault.seat} ({label}), {batch}; {doing} is {state}."
    return WorkerHung(
        report(
            f"DataLoader timed out after {timeout_s:g} seconds",
            stack=stack,
            did=f"{awaited} The worker goes on; next() waits for the same batch again",
            remedy="a larger timeout, if samples can be this slow; else look at that sample",
        )
    )


def _never_started(fault: Fault, label: str) -> str:
    ending = fault.ending or Ending()
    where = {INIT: "It was in worker_init_fn. ", CLEAN: "It was opening the dataset. "}
    how = "did not begin in time." if fault.ending is None else _how(ending)
    return report(
        f"DataLoader worker ({label}) {how} {where.get(fault.step, '')}No worker came up, so "
        "nothing was loaded.",
        did="tried several times for every worker",
        cause=_why(ending),
        remedy=_when_refused(ending) if ending.refused else _when_none_starts(ending),
    )


def _when_refused(ending: Ending | None) -> str:
    words = "" if ending is None else ending.words
    return LESS_MEMORY if os.strerror(errno.ENOMEM) in words else FEWER


_GUARD = "__name__ =="  # in the advice of whoever noticed that there is none


def _when_none_starts(ending: Ending) -> str:
    if ending.out_of_memory or ending.signal == signal.SIGKILL:
        return _when_killed(ending)
    if "Traceback (most recent call last)" in ending.words and _GUARD not in ending.words:
        return "see the error above"
    return (
        "the first error above, if there is one; under spawn, a script without"
        ' `if __name__ == "__main__":` starts itself again in every worker; with num_workers=0 a'
        " dataset that fails is seen to fail"
    )
