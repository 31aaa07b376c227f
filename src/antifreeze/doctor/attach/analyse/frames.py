"""What a stack shows by the names in it: whose a line is, and what a worker is at. Pure."""

from __future__ import annotations

from ...._transport import own_frames
from ..facts import Frame, Process
from .library_files import FETCH, LOADER, PROCESS, QUEUES, WORKER_LOOP

_FIRST = ("run", "_bootstrap")  # of its functions; `join` and `start` are the parent's


def called_by_worker(frames: tuple[Frame, ...]) -> Frame | None:
    """Return what torch's worker is in: to ask for an order, to fetch samples, or `worker_init_fn`,
    which is the one that is not torch's."""
    for at, each in enumerate(frames):
        if each.name == "_worker_loop" and is_file(each, WORKER_LOOP):
            return frames[at - 1] if at else each
    return None


def is_order(frame: Frame) -> bool:
    return frame.name.rpartition(".")[2] == "get" and is_file(frame, QUEUES)


def in_init_fn(frames: tuple[Frame, ...]) -> bool:
    """Whether a worker, torch's or ours, is in the user's `worker_init_fn`."""
    called = called_by_worker(frames)
    if called is not None:
        return not is_library(called)
    for at, each in enumerate(frames):
        if at and is_file(each, own_frames.WORKER_LOOP):
            return not is_library(frames[at - 1])
    return False


def is_at_work(process: Process, asked: int) -> bool:
    """Whether a process is a worker and in the user's code; or that it loads samples itself; or
    that it is the one that was asked about, and does not wait for its loader. Without stacks it is
    not known, and not said."""
    main = process.main_thread
    frames = tuple(each for each in main.frames if not each.native) if main is not None else ()
    if (called := called_by_worker(frames)) is not None:
        return not is_order(called)
    if any(is_file(each, file) for each in frames for file in (FETCH, own_frames.FETCHER)):
        return True
    if any(is_file(each, own_frames.WORKER_LOOP) for each in frames):
        return in_init_fn(frames)
    waits = any(is_file(each, file) for each in frames for file in (LOADER, own_frames.DRIVER))
    return bool(frames) and process.pid == asked and not waits


def waits_for_loader(process: Process) -> bool:
    """Whether a thread of a process waits for a batch, of torch's loader or of ours."""
    return any(
        (each.name.rpartition(".")[2] == "_next_data" and is_file(each, LOADER))
        or is_own(each, own_frames.LOOP_WAITS)
        for thread in process.threads
        for each in thread.frames
    )


def is_file(frame: Frame, end: str) -> bool:
    """Whether a frame's path ends so, in whole names: "pdb.py" is not the end of "my_pdb.py".
    An end that begins with a dot is one of the name."""
    if not end or frame.file == end:
        return True
    return frame.file.endswith(end if end.startswith(".") else f"/{end}")


def is_own(frame: Frame, own: own_frames.OwnFrame) -> bool:
    """Whether a frame is of this function of ours."""
    return frame.name.rpartition(".")[2] == own.function and is_file(frame, own.file)


def is_library(frame: Frame) -> bool:
    """Whether a line is the interpreter's, torch's or ours, and not the user's."""
    file = frame.file
    libraries = ("<frozen", "torch/", own_frames.PACKAGE, "multiprocessing/", "concurrent/")
    if file.startswith(libraries):
        return True
    return not file.startswith(("/", "<", ".")) and "/" not in file  # a file of the library itself


def starts_process(frame: Frame) -> bool:
    """Whether a forked process begins here."""
    if frame.file == PROCESS:
        return frame.name.rpartition(".")[2] in _FIRST
    return frame.file.startswith(own_frames.FORKED) or frame.name == "_worker_loop"
