"""A lane: one contender in a process of its own that does one thing whenever it is asked.

1. What a lane does is a generator; each `ask` lets it run to its next `yield`.
2. Lanes are forked from the benchmark's main process, which has torch imported and no threads.
3. A lane that raises, dies or does not answer in time fails alone: `LaneFailed` says how.
4. A lane can also be a program of its own, started as one from a shell: it inherits no memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

# Long enough for an importing, spawning peer on a busy machine; a loader that hangs costs this
# much, once, and its lane is gone.
ANSWER_BOUND_S = 60.0
# A lane that is asked to end may tidy up its workers and its shared memory.
END_BOUND_S = 2.0
# A loader may fetch ahead for its next epoch. It must not do so in another's turn.
QUIET_LOOK_S, QUIET_BOUND_S = 0.02, 5.0
# One tick of the kernel's clock for CPU time is a hundredth of a second.
QUIET_CPU_S = 0.01
PR_SET_PDEATHSIG = 1


class LaneFailed(Exception):
    """A lane gave no answer; the text says why, in one line."""


class Script:
    """A Python program as a process of its own, with the methods of multiprocessing's."""

    def __init__(self, script: Path, arguments: Sequence[str], pipe: Connection) -> None:
        handle = str(pipe.fileno())
        command = [sys.executable, str(script), *arguments, handle, str(os.getpid())]
        self._program = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=[pipe.fileno()], start_new_session=True
        )
        self.pid = self._program.pid

    @property
    def exitcode(self) -> int | None:
        """Return the exit code; None while the program runs."""
        return self._program.poll()

    def is_alive(self) -> bool:
        """Whether the program runs."""
        return self._program.poll() is None

    def join(self, bound_s: float) -> None:
        """Wait for its end, for so long at most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(bound_s)


class Lane:
    """One contender in its own process, with everything it starts.

    `steps`: what it does, in a fork of this process; or a script that calls `serve_script`, with
    its arguments.
    """

    def __init__(self, steps: Callable[[], Iterator[Any]] | tuple[Path, *tuple[str, ...]]) -> None:
        fork = multiprocessing.get_context("fork")
        handle, path = tempfile.mkstemp(prefix="antifreeze-bench-", suffix=".log")
        os.close(handle)
        self._log = Path(path)
        self._pipe, far_end = fork.Pipe()
        self._process: Any
        if isinstance(steps, tuple):
            self._process = Script(steps[0], (*steps[1:], path), far_end)
        else:
            self._process = fork.Process(target=_serve, args=(far_end, steps, path, os.getpid()))
            self._process.start()
        far_end.close()

    @property
    def pid(self) -> int:
        """Return the number of its process, whose descendants are the lane's too."""
        return int(self._process.pid)

    def post(self) -> None:
        """Let the lane take its next step; never blocks. `answer` is to be called."""
        with contextlib.suppress(OSError):  # it is gone: `answer` says so
            self._pipe.send("next")

    def ask(self) -> Any:
        """Let the lane take its next step and return what it yields; raise `LaneFailed`."""
        self.post()
        return self.answer()

    def answer(self, bound_s: float = ANSWER_BOUND_S) -> Any:
        """Return what the step that was asked for yields; raise `LaneFailed`."""
        try:
            if not self._pipe.poll(bound_s):
                self.kill()
                raise LaneFailed(f"no answer within {bound_s:.0f} s")
            told, answer = self._pipe.recv()
        except (EOFError, OSError):
            self.kill()
            code = self._process.exitcode
            raise LaneFailed(f"its process ended with code {code}{self._last_words()}") from None
        if told == "error":
            raise LaneFailed(answer)
        return answer

    def settle(self) -> None:
        """Wait until the lane wants no CPU, twice in a row, within a bound."""
        deadline = time.monotonic() + QUIET_BOUND_S
        used, quiet = cpu_s(family(self._process.pid)), 0
        while quiet < 2 and time.monotonic() < deadline:
            time.sleep(QUIET_LOOK_S)
            members = family(self._process.pid)
            before, used = used, cpu_s(members)
            # Who waits for a core uses none: on a busy machine the time alone would deceive.
            idle = used - before <= QUIET_CPU_S and not any(map(wants_cpu, members))
            quiet = quiet + 1 if idle else 0

    def hang_up(self) -> None:
        """Ask the lane to end; never blocks. `end` is still to be called."""
        with contextlib.suppress(OSError):  # it is gone, or was asked before
            self._pipe.send("")
            self._pipe.close()

    def end(self) -> None:
        """End the lane: politely, then by force."""
        self.hang_up()
        self._process.join(END_BOUND_S)
        self.kill()
        self._log.unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill the lane and all it has started, except who tidies up shared memory after it."""
        if self._process.is_alive():
            for process in family(self._process.pid):
                with contextlib.suppress(psutil.Error):
                    if "resource_tracker" not in " ".join(process.cmdline()):
                        process.kill()
        self._process.join(END_BOUND_S)

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line]
        return f": {lines[-1].strip()}" if lines else ""


def family(pid: int | None) -> list[psutil.Process]:
    """Return a process and its descendants, those that still exist."""
    try:
        head = psutil.Process(pid)
        return [*head.children(recursive=True), head]
    except psutil.NoSuchProcess:
        return []


def cpu_s(processes: list[psutil.Process]) -> float:
    """Add up the CPU seconds of processes and of those of their children that they have reaped."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            own_s = _exact_cpu_s(process.pid) or times.user + times.system
            total += own_s + times.children_user + times.children_system
    return total


def _exact_cpu_s(pid: int) -> float | None:
    """Read the CPU clock of another process, as Linux numbers them: /proc counts in 10 ms."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # it has ended, or this is another system
        return None


def wants_cpu(process: psutil.Process) -> bool:
    """Say whether any thread of a process runs or waits for a core."""
    try:
        states = [stat.read_text() for stat in Path(f"/proc/{process.pid}/task").glob("*/stat")]
    except OSError:  # it ended meanwhile
        return False
    return any(state.rpartition(")")[2].split()[0] == "R" for state in states)


def serve_script(steps: Callable[..., Iterator[Any]]) -> None:
    """Be a lane that is a program; the last three arguments are from `Script`."""
    *arguments, log, handle, parent = sys.argv[1:]
    os.set_inheritable(int(handle), False)
    _serve(Connection(int(handle)), lambda: steps(*arguments), log, int(parent))


def _serve(pipe: Connection, steps: Callable[[], Iterator[Any]], log: str, parent: int) -> None:
    """Be the lane's process: what libraries print goes to the log."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    with open(log, "w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    run = steps()
    with contextlib.suppress(EOFError, OSError):  # the benchmark hangs up, or is gone
        while pipe.recv():
            try:
                answer = ("answer", next(run))
            except Exception as error:
                answer = ("error", f"{type(error).__name__}: {error}".splitlines()[0])
            pipe.send(answer)
    run = None  # the loader goes before the interpreter does
