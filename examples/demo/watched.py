"""Run the demo's scripts as children that are followed, measured, and ended within a bound."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

TRAIN = Path(__file__).with_name("train.py")
# Polite first, so that a healthy script can tidy up; a frozen one does not listen.
TERM_GRACE_S = 2.0
KILL_GRACE_S = 5.0
# Walking the page tables of a process that has torch in it takes milliseconds each time.
MEMORY_EVERY_S = 0.25
LOOK_EVERY_S = 0.1

State = Literal["starting", "running", "finished", "failed", "frozen"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one training run is: what the screen shows."""

    loader: str
    state: State
    batch: int
    batches: int
    loss: float | None
    elapsed_s: float
    training_s: float
    since_batch_s: float
    last_words: str


class WatchedRun:
    """One run of train.py in a process group of its own.

    A thread reads the child's lines; the caller polls. Use as a context manager: leaving it ends
    the whole group, however it is left.
    """

    def __init__(self, loader: str, data: Path, *, epochs: int, broken: bool) -> None:
        self.loader = loader
        self.result: dict[str, Any] = {}
        self.peak_pss_bytes = 0
        self._next_memory = 0.0
        self._given_up = False
        self._group_ended = False
        self._batch, self._batches = 0, 0
        self._loss: float | None = None
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the run is left
        command = [sys.executable, str(TRAIN), "--loader", loader, "--data", str(data)]
        command += ["--epochs", str(epochs)] + (["--broken"] if broken else [])
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,  # a group of its own, so that its workers end with it
        )
        self._begin = time.monotonic()
        self._started: float | None = None
        self._last_batch: float | None = None
        self._end: float | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> WatchedRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._stderr.close()
        if self._child.stdout is not None and not self._reader.is_alive():
            self._child.stdout.close()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            try:
                facts = json.loads(line)
            except ValueError:
                continue  # something the training script printed on its own account
            match facts.pop("event", None):
                case "started":
                    self._batches = facts["batches"]
                    self._started = self._last_batch = time.monotonic()
                case "batch":
                    self._batch, self._loss = facts["batch"], facts["loss"]
                    self._last_batch = time.monotonic()
                case "finished":
                    self.result = facts

    def poll(self) -> bool:
        """Look at the child once; return whether it is still at work. Never blocks for long."""
        if self._child.poll() is not None:
            if self._end is None:
                self._end = time.monotonic()
                self.end()
            return False
        if time.monotonic() >= self._next_memory:
            self.peak_pss_bytes = max(self.peak_pss_bytes, tree_pss_bytes(self._child.pid))
            self._next_memory = time.monotonic() + MEMORY_EVERY_S
        return True

    def give_up(self) -> None:
        """End a run that has used up its time; it counts as frozen."""
        self._given_up = self._child.poll() is None
        self._end = time.monotonic()
        self.end()

    def end(self) -> None:
        """Stop the child and its workers, once."""
        if self._group_ended:
            return
        self._group_ended = True  # never again: the group's number may then be somebody else's
        end_group(self._child)
        self._reader.join(timeout=KILL_GRACE_S)

    def progress(self) -> Progress:
        """Return what is known now."""
        now = self._end if self._end is not None else time.monotonic()
        return Progress(
            loader=self.loader,
            state=self._state(),
            batch=self._batch,
            batches=self._batches,
            loss=self._loss,
            elapsed_s=now - self._begin,
            training_s=_since(self._started, now),
            since_batch_s=_since(self._last_batch, now),
            last_words=self.last_words(),
        )

    def _state(self) -> State:
        if self._given_up:
            return "frozen"
        if self._end is not None:
            return "finished" if self._child.returncode == 0 and self.result else "failed"
        return "running" if self._batches else "starting"

    def last_words(self) -> str:
        """Return what the child said last on stderr: a warning's text, else the last line."""
        size = os.fstat(self._stderr.fileno()).st_size
        # pread: the child writes through the same open file, so its offset must stay alone.
        tail = os.pread(self._stderr.fileno(), 4096, max(0, size - 4096))
        lines = [line for line in tail.decode(errors="replace").splitlines() if line.strip()]
        warned = [line.split("Warning: ", 1)[1] for line in lines if "Warning: " in line]
        return (warned or [line.strip() for line in lines] or [""])[-1]


def follow_lines(
    script: str, *arguments: str, bound_s: float
) -> Generator[dict[str, Any] | None, None, None]:
    """Run a script of this folder and yield what it tells, and None now and then between.

    Ends with the child, or with its bound; leaving the loop early ends the child as well.
    """
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    deadline = time.monotonic() + bound_s
    # A file, not a pipe: a worker that outlives its parent would keep a pipe open.
    with tempfile.TemporaryFile() as stdout:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        read = 0
        try:
            over = False
            while not over:
                over = child.poll() is not None or time.monotonic() >= deadline
                # pread: the child writes through the same open file, so its offset must stay alone.
                told = os.pread(stdout.fileno(), 1 << 20, read)
                lines = told[: told.rfind(b"\n") + 1]
                read += len(lines)
                for line in lines.splitlines():
                    yield json.loads(line)
                if not over:
                    time.sleep(LOOK_EVERY_S)
                yield None
        finally:
            end_group(child)


def end_group(child: subprocess.Popen[Any]) -> None:
    """Stop a child and all it started: SIGTERM, a short wait, SIGKILL, a short wait."""
    if child.poll() is None:
        _signal_group(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(TERM_GRACE_S)
    _signal_group(child.pid, signal.SIGKILL)  # workers may outlive the process that started them
    child.wait(KILL_GRACE_S)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # the whole group is gone already
        os.killpg(leader, number)


def _since(moment: float | None, now: float) -> float:
    return 0.0 if moment is None else max(0.0, now - moment)


def tree_pss_bytes(pid: int) -> int:
    """Add up the proportional memory of a process and its descendants; shared pages count once."""
    try:
        root = psutil.Process(pid)
        pids = [pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.NoSuchProcess:
        return 0
    return sum(_pss_bytes(one) for one in pids)


def _pss_bytes(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0  # it ended between the listing and the look
    for line in rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
