"""Run random programs with torch's loader and with ours, and print those that differ.

python -m tests.parity.compare_programs FIRST STOP STEP

1. Each program runs in a process of its own, forked before anything has run. A loader of torch's
   that is left early may close a descriptor twice (its queue's thread says "Bad file descriptor"),
   and with it whatever has the number by then: the next program's, or ours.
2. Every fourth program ends with our loader as programs do (that takes a second), and its exit
   code counts. One with torch's ends at once.
3. A program that does not end is ended, with all that it has started, after its stacks were written
   to stderr. With torch's loader, which may hang for the reason above, it is run again.
4. What torch's loader leaves behind is ended, too. One of its workers that begins after its program
   has ended takes the process that adopted it for its program and stays for good, and with it the
   pipe that somebody reads this program's output from. Ours may leave nobody behind.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader as TorchLoader

from antifreeze import DataLoader

from .drawing_programs import Training, arguments_of, perform

BOUND_S = 60.0  # for one program: they take a second, those that spawn workers ten
LEFT_S = 30.0  # until all processes that ours has started are gone
LOOK_S = 10.0  # for the stacks of one process
TORCHS_TRIES = 2  # more, if it hangs
ENDS = 4  # one of so many programs ends as programs do


def main() -> int:
    Training()  # imports what optimizers need, which takes a second: once for all
    different = 0
    for number in range(*map(int, sys.argv[1:4])):
        chosen = arguments_of(random.Random(number))
        words = compared(number, chosen, at_once=number % ENDS != 0)
        if words:
            different += 1
            print(f"program {number}, {chosen}: {words}")
    print(f"{different} differ", flush=True)
    return 0


def compared(number: int, chosen: dict[str, Any], *, at_once: bool) -> str:
    """Run a program with both. Return what differs; nothing if all is the same."""

    def with_ours() -> list[Any]:
        return perform(DataLoader, chosen, randomness="torch")

    def with_torchs() -> list[Any]:
        return perform(TorchLoader, chosen)

    with (
        Program(f"program {number} with ours", with_ours, at_once=at_once) as ours,
        Program(f"program {number} with torch's", with_torchs, at_once=True) as theirs,
    ):
        seen = {"ours": ours.result(), "torch's": theirs.result()}
        if left := ours.left_behind():
            return f"ours left behind:\n{left}"
    for _ in range(TORCHS_TRIES):
        if isinstance(seen["torch's"], list):
            break
        said = seen["torch's"]
        print(f"program {number} with torch's: {said}; run again", file=sys.stderr)
        with Program(f"program {number} with torch's", with_torchs, at_once=True) as theirs:
            seen["torch's"] = theirs.result()
    for whose, what in seen.items():
        if isinstance(what, str):
            return f"{whose}: {what}"
    # By their looks: not a number is not equal to itself.
    pairs = enumerate(zip(*seen.values(), strict=True))
    places = [at for at, (one, other) in pairs if one != other]
    if not places:
        return ""
    first = "".join(f"\n  {whose:8}{what[places[0]]}" for whose, what in seen.items())
    return f"at {places}{first}"


class Program:
    """A program in a process of its own."""

    def __init__(self, name: str, program: Callable[[], list[Any]], *, at_once: bool) -> None:
        self._name = name
        self._seen = tempfile.TemporaryFile()  # noqa: SIM115
        self._deadline = time.monotonic() + BOUND_S
        self._process = os.fork()
        if self._process == 0:
            os.setsid()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pickle.dump([repr(each) for each in program()], self._seen)
            self._seen.flush()
            if at_once:
                os._exit(0)
            sys.exit(0)

    def result(self) -> list[str] | str:
        """Return the looks of all that it has seen, or what became of its process."""
        code = self._exit_code()
        if code != 0:
            return f"did not end in {BOUND_S:g} s" if code is None else f"exit code {code}"
        self._seen.seek(0)
        seen: list[str] = pickle.load(self._seen)
        return seen

    def __enter__(self) -> Program:
        return self

    def left_behind(self) -> str:
        """Return the stacks of processes that are there although their program has ended."""
        give_up = time.monotonic() + LEFT_S
        while left := _of_group(self._process):
            if time.monotonic() > give_up:
                return "\n".join(map(_looks_of, left))
            time.sleep(0.01)
        return ""

    def __exit__(self, *_: object) -> None:
        self._seen.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)

    def _exit_code(self) -> int | None:
        """Return it, or None: after a while it is ended, and all that it has started."""
        while time.monotonic() < self._deadline:
            pid, status = os.waitpid(self._process, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        print(f"{self._name} did not end in {BOUND_S:g} s:", file=sys.stderr)
        for process in _of_group(self._process):
            print(_looks_of(process), file=sys.stderr, flush=True)
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        return None


def _of_group(group: int) -> list[int]:
    """Return the processes of a group that still run, the first of them first."""
    found = []
    for process in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{process}/stat") as file:
                state, _, its_group = file.read().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                found.append(process)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _looks_of(process: int) -> str:
    """Return the stacks of a process, as far as they can be had."""
    spy = shutil.which("py-spy", path=os.path.dirname(sys.executable))
    if spy is None:
        return f"process {process}: no py-spy"
    command = [spy, "dump", "--pid", str(process)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOOK_S, check=False)
    except subprocess.TimeoutExpired:
        return f"process {process}: its stacks took too long"
    return done.stdout if done.returncode == 0 else f"process {process}: {done.stderr.strip()}"


if __name__ == "__main__":
    sys.exit(main())
