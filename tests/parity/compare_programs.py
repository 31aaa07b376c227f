"""Run random programs with torch's loader and with ours, and print those that differ.

python -m tests.parity.compare_programs FIRST STOP STEP

1. Each program runs in a process of its own, forked before anything has run. A loader of torch's
   that is left early may close a descriptor twice (its queue's thread says "Bad file descriptor"),
   and with it whatever has the number by then: the next program's, or ours.
2. Every fourth program ends with our loader as programs do (that takes a second), and its exit
   code counts. One with torch's ends at once; if it hangs, which torch's may do, it is tried again.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader as TorchLoader

from antifreeze import DataLoader

from .drawing_programs import Training, arguments_of, perform

BOUND_S = 120.0  # for one program: they take a second, those that spawn workers ten
TORCHS_TRIES = 4
ENDS = 4  # one of so many programs ends as programs do


def main() -> int:
    Training()  # imports what optimizers need, which takes a second: once for all
    different = 0
    for number in range(*map(int, sys.argv[1:4])):
        chosen = arguments_of(random.Random(number))
        words = compared(chosen, at_once=number % ENDS != 0)
        if words:
            different += 1
            print(f"program {number}, {chosen}: {words}")
    print(f"{different} differ", flush=True)
    return 0


def compared(chosen: dict[str, Any], *, at_once: bool) -> str:
    """Run a program twice. Return what differs; nothing if all is the same."""
    for _ in range(TORCHS_TRIES):
        theirs = in_a_process(lambda: perform(TorchLoader, chosen), at_once=True)
        if isinstance(theirs, list):
            break
    ours = in_a_process(lambda: perform(DataLoader, chosen, randomness="torch"), at_once=at_once)
    for whose, what in (("torch's", theirs), ("ours", ours)):
        if isinstance(what, str):
            return f"{whose}: {what}"
    # By their looks: not a number is not equal to itself.
    places = [at for at, pair in enumerate(zip(ours, theirs, strict=True)) if len({*pair}) > 1]
    if not places:
        return ""
    return f"at {places}\n  ours    {ours[places[0]]}\n  torch's {theirs[places[0]]}"


def in_a_process(program: Callable[[], list[Any]], *, at_once: bool) -> list[str] | str:
    """Return the looks of all that a program has seen, or what became of its process."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            os.setsid()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pickle.dump([repr(each) for each in program()], file)
            file.flush()
            if at_once:
                os._exit(0)
            sys.exit(0)
        code = _code_of(child)
        if code != 0:
            return f"did not end in {BOUND_S:g} s" if code is None else f"exit code {code}"
        file.seek(0)
        seen: list[str] = pickle.load(file)
        return seen


def _code_of(child: int) -> int | None:
    """Return the exit code of a process; end it, and what it has started, after a while: None."""
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    sys.exit(main())
