"""Where our own code stands in stacks: the files, functions and classes of ours that other code
recognizes by name.

A stack that was taken from outside, or written to a file, has paths and names only. Each path
begins with the package's name and has forward slashes. Whoever moves or renames something named
here changes it here and nowhere else (`tests/doctor/test_own_frames.py`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnFrame:
    """A function of ours; a method by its own name, without its class."""

    file: str
    function: str


@dataclass(frozen=True, slots=True)
class OwnClass:
    """A class of ours, whose name stands in the event log."""

    file: str
    name: str


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """How a process of ours is called, and the file that gives it the name."""

    file: str
    name: str  # the beginning of it


# Folders.
PACKAGE = "antifreeze/"
COMMANDS = "antifreeze/cli/"
WORKER = "antifreeze/_worker/"
# The code that loads samples in a worker, and around it: outside of a user's stack.
AROUND_USER_CODE = ("antifreeze/_backends/", "antifreeze/_worker/", "antifreeze/_transport/")

# Files.
DRIVER = "antifreeze/_driver.py"
WORKER_LOOP = "antifreeze/_worker/loop.py"
FETCHER = "antifreeze/_worker/fetch.py"
# Where the stack of a forked worker begins: what is outside of these is that of whoever forked it.
FORKED = (
    "antifreeze/_worker/main.py",
    "antifreeze/_backends/template.py",
    "antifreeze/_backends/template_origin.py",
    "antifreeze/_backends/template_process.py",
)
# Whose frames, innermost of ours, mean that the main process waits for workers.
WAITS_FOR_WORKERS = (DRIVER, "antifreeze/_backends/", "antifreeze/_linux/")

# Functions.
LOOP_WAITS = OwnFrame(DRIVER, "_ask")  # for a batch
WORKER_WAITS = OwnFrame("antifreeze/_worker/channel.py", "_read")  # for a ticket
LOADS_BATCH = OwnFrame(FETCHER, "load")

# Classes: what is in the event log every second, whatever happens.
ROUTINE_EVENTS = tuple(
    OwnClass("antifreeze/_core/events.py", each)
    for each in ("ClockRang", "LivesSeen", "LifeExamined")
)
ROUTINE_COMMANDS = tuple(
    OwnClass("antifreeze/_core/commands.py", each) for each in ("LookAround", "ExamineLife")
)

# Processes.
PROCESSES = "af_"  # how the names of all of ours begin
WORKER_PROCESS = OwnProcess("antifreeze/_worker/main.py", "af_worker")

_ABOVE_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


def installed_path(path: str) -> str:
    """Return where a file or folder of ours lies on this machine, as this interpreter's own frames
    have it."""
    return os.path.join(_ABOVE_PACKAGE, *path.split("/"))
