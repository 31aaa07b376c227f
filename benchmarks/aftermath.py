"""What each loader does after a mishap: goes on, raises, or hangs.

1. A loader runs one epoch in a program of its own (`python aftermath.py KEY MISHAP MARK`), with
   two workers and the settings of the benchmark; it writes a line of JSON for what comes.
2. It is watched for so many seconds from its mishap on, not from its start: some take seconds to
   import.
3. The program has a session of its own, and is ended with all that it has started there.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from contenders import BY_KEY, Contender
from mishaps import BATCH, DEEDS, SAMPLES, Mishap
from workloads import Workload

# Those with worker processes, as most programs have them.
WHO = ("antifreeze-plain", "torch-plain", "stateful", "nodes-process", "spdl-process", "grain")
LIMIT_S = 1.0  # `sample_timeout` of ours; nobody else has such a limit for a sample
START_S = 40.0  # to import, to start workers and to reach the mishap, on a busy machine
LOOK_S = 0.02
LONGEST = 90  # characters of an error that are shown

Outcome = Literal["goes on", "raises", "hangs", "ends", "not installed", "no mishap"]


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What one loader did after one mishap."""

    loader: str
    version: str
    mishap: str
    outcome: Outcome
    samples: int = 0  # that came, each counted once
    twice: int = 0  # that came again
    error: str = ""
    seconds: float | None = None  # from the mishap to the end of the epoch or the error
    said: str = ""  # the last line on stderr, of what hangs
    lingers: bool = False  # the loop was over, and the program did not end

    @property
    def lost(self) -> int:
        return SAMPLES - self.samples

    @property
    def words(self) -> str:
        """Say it in a few words."""
        if self.outcome in ("not installed", "no mishap"):
            return self.outcome
        if self.outcome == "hangs":
            silent = f"says: {self.said[:LONGEST]}" if self.said else "silent"
            return f"hangs, {silent}"
        words = f"raises {self.error[:LONGEST]}" if self.outcome == "raises" else self.outcome
        if self.outcome == "ends":
            words = f"the whole program ends: {self.error[:LONGEST]}"
        if self.outcome == "goes on":
            words += f", {self.lost} of {SAMPLES} samples lost" if self.lost else ", nothing lost"
            words += f", {self.twice} came twice" if self.twice else ""
        if self.seconds is not None:
            words += f" ({self.seconds:.2f} s)"
        return f"{words}; then the program does not end" if self.lingers else words

    def as_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {"lost": self.lost, "words": self.words}


def watch(key: str, mishap: str, folder: Path, watched_s: float) -> Aftermath:
    """Let a loader have its mishap, and see what it does in so many seconds after that."""
    who = BY_KEY[key]
    about = functools.partial(Aftermath, who.name, _version(who), mishap)
    if not who.installed:
        return about("not installed")
    mark = folder / f"{key}-{time.monotonic_ns()}"
    command = [sys.executable, __file__, key, mishap, str(mark)]
    # Files, not pipes: workers that outlive their program would keep a pipe open.
    with tempfile.TemporaryFile("w+") as told, tempfile.TemporaryFile("w+") as said:
        program = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=told, stderr=said, start_new_session=True
        )
        try:
            spoken = _wait(program, mark, said.fileno(), watched_s)
            code = program.poll()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        told.seek(0)
        lines = [json.loads(line) for line in told.read().splitlines() if line.endswith("}")]
        said.seek(spoken)
        words = [line.strip() for line in said.read().splitlines() if line.strip()]
    if not mark.exists():
        return about("no mishap", error=words[-1] if words else f"exit code {code}")
    came = [sample for line in lines for sample in line.get("batch", ())]
    samples = len(set(came))
    found = functools.partial(about, samples=samples, twice=len(came) - samples)
    last = lines[-1] if lines else {}
    if "over_s" not in last:
        if code is None:
            return found("hangs", said=words[-1] if words else "")
        return found("ends", error=words[-1] if words else f"exit code {code}")
    outcome: Outcome = "raises" if last["error"] else "goes on"
    return found(outcome, error=last["error"], seconds=last["over_s"], lingers=code is None)


def _wait(program: subprocess.Popen[bytes], mark: Path, said: int, watched_s: float) -> int:
    """Wait for the end, for so long after the mishap. Gives how much was said before that."""
    deadline, spoken, struck = time.monotonic() + START_S, 0, False
    while program.poll() is None and time.monotonic() < deadline:
        if not struck and mark.exists():
            struck, spoken = True, os.fstat(said).st_size
            deadline = time.monotonic() + watched_s
        time.sleep(LOOK_S)
    return spoken


def _version(who: Contender) -> str:
    try:
        return importlib.metadata.version(who.package)
    except importlib.metadata.PackageNotFoundError:
        return ""


# ---- inside the program -------------------------------------------------------------------------


def run(key: str, mishap: str, mark: Path) -> None:
    """Run one epoch with its mishap, as a program would, and tell what comes of it."""
    dataset = Mishap(mark, DEEDS[mishap])
    workload = Workload("mishap", mishap, BATCH, SAMPLES // BATCH, lambda length: dataset)
    who = BY_KEY[key]
    importlib.import_module(who.module)
    loader: Iterable[Any]
    if key.startswith("antifreeze"):
        import antifreeze

        loader = antifreeze.DataLoader(dataset, BATCH, num_workers=2, sample_timeout=LIMIT_S)
    else:
        loader = who.make(dataset, workload)
    error = ""
    try:
        for batch in loader:
            tell(batch=batch.tolist())
    except Exception as problem:
        line = (str(problem).splitlines() or [""])[0]
        error = f"{type(problem).__name__}: {line}"
    tell(over_s=time.monotonic() - float(mark.read_text()), error=error)


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
