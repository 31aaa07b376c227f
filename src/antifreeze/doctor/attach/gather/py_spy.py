"""Stacks of a Python process, taken from outside by py-spy."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...._linux.clock import monotonic
from ..facts import Frame, Thread
from .bounded_subprocess import run_bounded
from .proc import MOST_THREADS, both_ends, read, thread_state, threads

BOUND_S = 4.0  # for one process; a large one on a busy machine takes one
NATIVE_BOUND_S = (
    1.8  # with C code: torch's own has a million names, and the rest can be had without
)
AT_ONCE = 4
ALL_S = 20.0  # for all processes; whoever is still to be asked then is not
MOST_BYTES = 1 << 24  # of an answer: a process may be a million calls deep
MOST_FRAMES = 400  # of a thread that are kept, from both ends
MOST_CHARACTERS = 1000  # of a name in a stack
INSTALL = "pip install py-spy"
_INSTALLED = re.compile(r".*/(?:site-packages|dist-packages|lib/python3\.\d+|src(?=/antifreeze/))/")


@dataclass(frozen=True, slots=True)
class Stacks:
    """What py-spy said of one process."""

    threads: tuple[Thread, ...] = ()
    error: str = ""
    not_python: bool = False
    late: bool = False  # it gave no answer in time


class PySpy:
    """Takes stacks, if it can be found."""

    def __init__(self, bound_s: float = BOUND_S) -> None:
        self.path, self._bound_s = self.find(), bound_s

    @staticmethod
    def find() -> str | None:
        """Return where it is: beside this interpreter, or wherever commands are."""
        beside = Path(sys.executable).with_name("py-spy")
        found = str(beside) if beside.exists() else shutil.which("py-spy")
        return found if found is not None and os.path.isabs(found) else None

    def take(self, pids: list[int], *, native: bool = False) -> dict[int, Stacks]:
        """Take the stacks of several processes, each stopped for some milliseconds."""
        if self.path is None:
            return {pid: Stacks(error=f"py-spy is not installed: {INSTALL}") for pid in pids}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            until = monotonic() + ALL_S
            found = pool.map(lambda pid: self._of(pid, native, until), pids)
            return dict(zip(pids, found, strict=True))

    def _of(self, pid: int, native: bool, until: float) -> Stacks:
        if monotonic() > until:
            return Stacks(error=f"the others took {ALL_S:g} s; it was not asked", late=True)
        # Who waits for a disk cannot be stopped, and who is stopped need not be. Who is in a write
        # into a full pipe must not: to be stopped ends the write early, and `python -u` then loses
        # the rest of it. In all of them the stack can be read as it is, since it does not change.
        if _rests(pid):
            found = self._run(pid, "--nonblocking")
            return self._run(pid) if found.error and not _rests(pid) else found
        found = self._run(pid, *(["--native"] if native else []))
        # One that is late with the C code is asked for once more without it, by whoever looks.
        again = found.late and not native
        return self._run(pid, "--nonblocking") if found.error and (again or _rests(pid)) else found

    def _run(self, pid: int, *options: str) -> Stacks:
        assert self.path is not None
        # To shorten names of files, py-spy asks their file systems while it holds the process
        # stopped: one on a server that is gone would keep both from ever going on.
        whole = "--full-filenames"
        command = [self.path, "dump", "--json", whole, "--pid", str(pid), *options]
        bound_s = NATIVE_BOUND_S if "--native" in options else self._bound_s
        try:
            done = run_bounded(command, bound_s, MOST_BYTES)
        except OSError as error:
            return Stacks(error=f"py-spy cannot be run: {error}")
        if done.late:
            return Stacks(error=f"py-spy gave no answer for {bound_s:g} s", late=True)
        if done.too_long:
            return Stacks(error=f"its stacks are longer than {MOST_BYTES >> 20} MiB", late=True)
        if done.code == 0:
            return read_stacks(done.output)
        return _failed(done.errors.decode(errors="replace"))


def read_stacks(text: bytes | str) -> Stacks:
    """Read py-spy's answer. Names of functions and files in it are the program's: any text."""
    try:
        found = tuple(_thread(each) for each in both_ends(json.loads(text), MOST_THREADS))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Stacks(error=f"py-spy's answer cannot be read: {error}")
    return Stacks(found)


def _rests(pid: int) -> bool:
    """Whether one of its threads cannot be stopped, must not be, or is already."""
    return any(_thread_rests(pid, tid) for tid in threads(pid))


def _thread_rests(pid: int, tid: int) -> bool:
    if "pipe_write" in read(pid, "task", str(tid), "wchan"):
        return True
    return thread_state(pid, tid) in ("D", "T", "t")


def _failed(text: str) -> Stacks:
    lower = text.lower()
    if "permission denied" in lower or "operation not permitted" in lower:
        return Stacks(error=_refused())
    if "failed to find python version" in lower or "not a python" in lower:
        return Stacks(error="it is not a Python process", not_python=True)
    lines = [line for line in text.split("\n") if line.strip()]
    return Stacks(error=f"py-spy: {lines[0][:MOST_CHARACTERS] if lines else 'no answer'}")


def _refused() -> str:
    if os.geteuid() == 0:
        return "this container may not trace processes (start it with --cap-add SYS_PTRACE)"
    return "only root may take stacks here: run the same command with sudo"


def _thread(said: dict[str, Any]) -> Thread:
    return Thread(
        tid=said["os_thread_id"] or 0,
        name=(said["thread_name"] or "")[:MOST_CHARACTERS],
        frames=tuple(_frame(each) for each in both_ends(said["frames"], MOST_FRAMES)),
        holds_gil=bool(said["owns_gil"]),
    )


def _frame(said: dict[str, Any]) -> Frame:
    file = (said["filename"] or said["module"] or "")[:MOST_CHARACTERS]
    native = not file.endswith((".py", ".pyx", ".pxd")) and not file.startswith("<")
    shown = Path(file).name if native else _short(file)
    return Frame(said["name"][:MOST_CHARACTERS], shown, said["line"] or 0, native)


def _short(file: str) -> str:
    """Return the path of a library's file from its package on; the user's own as it is."""
    found = _INSTALLED.match(file)
    return file[found.end() :] if found else file
