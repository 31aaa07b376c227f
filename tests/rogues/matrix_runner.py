"""Runs cells of the matrix, several programs at once, each in a session of its own.

Reads programs from its input, each a line of JSON with its cells, and writes a line for each cell:
what was seen of it. It forks for every program, so that torch is imported once.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from antifreeze import DataLoader
from antifreeze._processes.starting import clean_process
from antifreeze._worker import parent_watch

from .misdeeds import AT, BATCH, Deed, Healthy, prepared

AT_ONCE = 6  # programs: most of them wait
SETTLE_S = 5.0  # a process that was killed needs a moment to be gone
SLACK_S = 60.0  # for a program, beside the bounds of its cells
GROUPS = Path("/sys/fs/cgroup")
LIMIT = 400 * 1024 * 1024  # bytes, of a program that eats
MOST = 6  # batches and errors of one epoch: 4 are there, and an error may come for ever
TOLD = 20_000  # characters

# ---- in the program of some cells ----------------------------------------------------------------


def epoch(loader: Any, *, leaves: bool = False) -> tuple[list[Any], list[dict[str, Any]]]:
    """Go through a loader, errors or not: the batches, None where an error came, and the errors."""
    torch.manual_seed(7)
    batches: list[Any] = []
    errors: list[dict[str, Any]] = []
    iterator = iter(loader)
    while len(batches) < MOST:
        try:
            batches.append(next(iterator))
        except StopIteration:
            break
        except Exception as error:
            batches.append(None)
            text = "\n".join([str(error), *getattr(error, "__notes__", ())])
            names = [base.__name__ for base in type(error).__mro__]
            errors.append({"types": names, "text": text[:TOLD]})
            if leaves:
                break
    del iterator
    return batches, errors


def compared(got: Any, wanted: Any) -> str:
    """Say how a batch stands to that of an undisturbed run."""
    if got is None:
        return "error"
    if isinstance(got, torch.Tensor):
        if torch.equal(got, wanted):
            return "same"
        rest = wanted[[int(row[0]) != AT for row in wanted]]
        return "without" if torch.equal(got, rest) else "another"
    if isinstance(got, tuple | list):
        parts = {compared(*pair) for pair in zip(got, wanted, strict=True)}
        return parts.pop() if len(parts) == 1 else "another"
    return "same" if int(got) == int(wanted) else "another"


def run(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Loop over a loader that meets the rogue of a cell."""
    deed = Deed(cell["way"], folder, once=cell["once"])
    arguments = prepared(cell["phase"], deed)
    plain = {key: value for key, value in arguments.items() if key != "multiprocessing_context"}
    undisturbed, _ = epoch(DataLoader(batch_size=BATCH, **plain))
    loader: Any = DataLoader(batch_size=BATCH, num_workers=2, **arguments, **cell["arguments"])
    began = time.monotonic()
    batches, errors = epoch(loader, leaves=cell["leaves_at_error"])
    seconds = time.monotonic() - began
    pairs = zip(batches, undisturbed, strict=False)
    return {
        "seconds": round(seconds, 2),
        "batches": [compared(*pair) for pair in pairs],
        "surplus": len(batches) - len(undisturbed),
        "errors": errors,
        "did": (folder / "done").exists(),
    }


def live(cells: list[dict[str, Any]], folder: Path) -> None:
    """Be the program of these cells, one after the other, and write down what was seen."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stderr = sys.stdout = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    if any(cell["phase"] in ("import", "unpickle") for cell in cells):
        _say_to(folder / "warming")
        list(DataLoader(Healthy(), num_workers=1, multiprocessing_context="spawn"))
    for number, cell in enumerate(cells):
        place = folder / str(number)
        place.mkdir()
        _say_to(place / "said")
        try:
            seen = run(cell, place)
        except BaseException as error:
            traceback.print_exc()
            seen = {"broke": repr(error)}
        seen["left"] = _strangers(place)
        seen["grandchild"] = _end_grandchild(place)
        (place / "seen").write_text(json.dumps(seen))


def _say_to(path: Path) -> None:
    said = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.close(said)


def _strangers(place: Path) -> list[str]:
    """Say which processes of this program are there and should not be, after a moment."""
    allowed = {os.getpid(), _grandchild(place)}
    if clean_process.is_there():
        allowed.add(clean_process._present[1].pid)
    return _settled(os.getpid(), allowed)


def _settled(leader: int, allowed: set[int | None]) -> list[str]:
    give_up = time.monotonic() + SETTLE_S
    while True:
        left = [process for process in session(leader) if process.pid not in allowed]
        if not left or time.monotonic() > give_up:
            return [f"{process}" for process in left]
        time.sleep(0.02)


def _grandchild(place: Path) -> int | None:
    mark = place / "grandchild"
    return int(mark.read_text()) if mark.exists() else None


def _end_grandchild(place: Path) -> bool:
    """End the grandchild of a cell; say whether it lived."""
    pid = _grandchild(place)
    with contextlib.suppress(psutil.Error):
        if pid is not None and (process := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
            process.kill()
            return True
    return False


def session(leader: int) -> list[psutil.Process]:
    """Give the living processes of a session: whoever else is their parent by now."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) == leader:
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


# ---- outside -------------------------------------------------------------------------------------


@dataclass
class Program:
    """Some cells that run in one process."""

    cells: list[dict[str, Any]]
    folder: Path
    group: Path | None = None
    pid: int = 0
    give_up: float = 0.0

    @property
    def eats(self) -> bool:
        return any(cell["way"] == "eat memory" for cell in self.cells)

    def start(self) -> None:
        self.folder.mkdir()
        self.give_up = time.monotonic() + SLACK_S + sum(cell["within_s"] for cell in self.cells)
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid:
            return
        try:
            parent_watch.end_with_parent(parent)  # should somebody end the runner
            if self.group is not None:
                (self.group / "cgroup.procs").write_text(str(os.getpid()))
            live(self.cells, self.folder)
            atexit._run_exitfuncs()  # as at the end of any program
        finally:
            os._exit(0)

    def is_over(self) -> bool:
        if time.monotonic() > self.give_up:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        return bool(os.waitpid(self.pid, os.WNOHANG)[0])

    def report(self) -> None:
        """Say what was seen of each cell, and what the program left behind; end that."""
        left = _settled(self.pid, set())
        for process in session(self.pid):
            with contextlib.suppress(psutil.Error):
                process.kill()
                process.wait(SETTLE_S)
        for number, cell in enumerate(self.cells):
            place = self.folder / str(number)
            seen = {"broke": "the program had to be ended"}
            if (place / "seen").exists():
                seen = json.loads((place / "seen").read_text())
            said = place / "said"
            seen["said"] = said.read_text(errors="replace")[:TOLD] if said.exists() else ""
            _say({"name": cell["name"], **seen, "left_at_end": left})
        if self.group is not None:
            _remove(self.group)


def _group(number: int) -> Path:
    """Make a group of processes that may use little memory. Raises OSError."""
    old = GROUPS / "memory"
    made = (old if old.is_dir() else GROUPS) / f"antifreeze-matrix-{os.getpid()}-{number}"
    made.mkdir()
    limit = made / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")
    limit.write_text(str(LIMIT))
    return made


def _remove(group: Path) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError):  # its last process is not quite gone
            group.rmdir()
            return
        time.sleep(0.05)


def _say(seen: dict[str, Any]) -> None:
    print(json.dumps(seen), flush=True)


def main() -> None:
    base = Path(tempfile.gettempdir())
    waiting = [
        Program(json.loads(line), base / f"program{number}")
        for number, line in enumerate(sys.stdin)
    ]
    running: list[Program] = []
    while waiting or running:  # bounded: each program is ended in time
        while waiting and len(running) < AT_ONCE:
            program = waiting.pop(0)
            if program.eats:
                try:
                    program.group = _group(len(waiting))
                except OSError as error:
                    for cell in program.cells:
                        _say({"name": cell["name"], "skipped": f"no group can be made: {error}"})
                    continue
            program.start()
            running.append(program)
        time.sleep(0.02)
        for program in [each for each in running if each.is_over()]:
            running.remove(program)
            program.report()


if __name__ == "__main__":
    main()
