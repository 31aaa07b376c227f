"""The program has asked a question, or stopped at a breakpoint, and nobody answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...._linux.syscalls import READS
from ...findings import Confidence, Finding
from ..analyse.threads_and_processes import (
    Program,
    WatchedProcess,
    WatchedThread,
    is_file,
    is_library,
)
from ..analyse.waits import at_line, did_nothing
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import CERTAIN, LIKELY, POSSIBLE, Cause

NAME = "waits-for-a-person"
_DEBUGGERS = (
    "pdb.py",
    "cmd.py",
    "IPython/core/debugger.py",
    "pudb/debugger.py",
    "ipdb/__main__.py",
)
_OWN_DEBUGGERS = ("interaction", "set_trace")  # functions that people override, for workers
# Frames under which only a person can go on: the function, the end of its file, what it is.
_FRAMES = (
    *((name, file, "stands at a debugger's prompt")
      for name in ("interaction", "cmdloop", "_cmdloop") for file in _DEBUGGERS),
    ("do_wait_suspend", "pydevd.py", "stands at a breakpoint of an editor's debugger"),
    ("_do_wait_suspend", "pydevd.py", "stands at a breakpoint of an editor's debugger"),
    ("wait_for_client", "debugpy/public_api.py", "waits for an editor's debugger to be attached"),
    ("wait_for_client", "debugpy/server/api.py", "waits for an editor's debugger to be attached"),
    ("unix_getpass", "getpass.py", "asks for a password"),
    ("fallback_getpass", "getpass.py", "asks for a password"),
    ("interact", "code.py", "stands at a Python prompt"),
    ("mainloop", "IPython/terminal/embed.py", "stands at an IPython prompt"),
    ("show", "matplotlib/pyplot.py", "waits until its window is closed"),
)  # fmt: skip
_RUNS = ("runcode", "run_code", "default", "__call__")  # under a prompt: what was typed is run
_NATIVE = {
    "builtin_input": "waits for an answer to input()",
    "PyOS_Readline": "waits for an answer at its terminal",
    "waitKey": "waits for a key in an OpenCV window",
}
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")


def find(program: Program) -> Iterator[Finding]:
    if program.at_prompt:
        yield _prompt(program)
    for process in (program.main, *program.living):
        if process is program.main and program.at_prompt:
            continue
        thread = process.main
        if thread is None or process.stopped or not did_nothing(thread):
            continue
        found = asks(thread)
        if found is not None:
            yield _finding(program, process, thread, *found)


def _prompt(program: Program) -> Finding:
    idle = [each for each in program.living if program.idle(each)]
    return Finding(
        NAME,
        CERTAIN,
        "nothing is stuck: it stands at its prompt (Python's, IPython's or a notebook's) or window,"
        " and waits for the next command"
        + (f"; its {len(idle)} workers wait for it" if len(idle) > 1 else ""),
        evidence=("no code of the user's is under way in the main thread",),
        get_out=("nothing is to be done",),
        pids=(program.main.pid,),
        harmless=True,
    )


def asks(thread: WatchedThread) -> tuple[str, Confidence] | None:
    """Return what it waits for; None if not for a person."""
    if (stands := _stands(thread)) is not None:
        return stands, CERTAIN
    if (native := thread.in_native(*_NATIVE)) is not None:
        return next(what for part, what in _NATIVE.items() if part in native.name), CERTAIN
    call = thread.now.call
    if not call or call[0] not in READS:
        return None
    target = thread.descriptor()
    if target.startswith(_TERMINALS):
        return "waits for something to be typed at its terminal", CERTAIN
    # Without stacks it may be a prompt, where nobody has anything to wait for.
    sure: Confidence = LIKELY if thread.frames else POSSIBLE
    return ("waits for something on its standard input", sure) if call[1] == 0 else None


def _stands(thread: WatchedThread) -> str | None:
    """Return the prompt at which a thread stands: not one from which it runs what was typed."""
    own = thread.own_frames
    for place, frame in enumerate(own):
        last = frame.name.rpartition(".")[2]
        for name, file, what in _FRAMES:
            if last == name and is_file(frame, file):
                inside = own[:place]
                typed = any(each.name.rpartition(".")[2] in _RUNS for each in inside)
                return (
                    None
                    if typed or any(each.file.startswith("torch/") for each in inside)
                    else what
                )
    return None


def _outside_the_debugger(thread: WatchedThread) -> WatchedThread:
    """Return a thread without the frames of a debugger, which may be a class of the user's own."""
    frames = thread.now.frames
    first = 0
    while first < len(frames) and (
        frames[first].native
        or is_library(frames[first])
        or any(is_file(frames[first], each) for each in _DEBUGGERS)
        or frames[first].name.rpartition(".")[2] in _OWN_DEBUGGERS
    ):
        first += 1
    return replace(thread, now=replace(thread.now, frames=frames[first:]))


def _finding(
    program: Program,
    process: WatchedProcess,
    thread: WatchedThread,
    what: str,
    confidence: Confidence,
) -> Finding:
    asked = _outside_the_debugger(thread)
    target = thread.descriptor()
    tty = next((d.target for d in process.now.descriptors if d.number == 0), "")
    place = target or tty
    loop = "" if process is program.main else and_the_loop_waits(program, [process])
    if place.startswith(_TERMINALS):
        answer = f"answer it where the program was started ({place}); nothing is lost"
    elif "editor" in what:
        answer = "attach the editor's debugger, and let it go on: nothing is lost"
    else:
        answer = f"it has no terminal: only who feeds {place or 'its standard input'} can answer it"
    return Finding(
        NAME,
        confidence,
        f"{process.label} {what}, {at_line(asked)}{loop}: nothing goes on until a person answers",
        evidence=(
            f"{process.label}: no CPU, {at_line(asked)}"
            + (f", under {thread.at}" if thread.at is not None else ""),
            *([f"it reads {target}"] if target else []),
            *([f"its standard input is {tty}"] if tty and tty != target else []),
        ),
        get_out=(
            answer,
            f"without a terminal: kill -INT {program.main.pid}    (a KeyboardInterrupt: what the"
            " script does not save then is lost)",
        ),
        prevent=(
            "take out breakpoint(), set_trace() and input(), or start it with"
            " PYTHONBREAKPOINT=0 and `< /dev/null`, so that it fails at once instead of waiting",
            "give passwords and consents by the environment (WANDB_API_KEY, HF_TOKEN), not at a"
            " prompt",
        ),
        pids=(process.pid,),
    )


CAUSE = Cause(NAME, find)
