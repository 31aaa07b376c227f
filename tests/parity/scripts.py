"""Run a small program as a script of its own, through the loader named."""

import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

import antifreeze

from .. import forked_programs
from ..patience import PATIENCE_S

IMPORTS = {
    "torch": "from torch.utils.data import DataLoader",
    "antifreeze": "from antifreeze import DataLoader",
}

MARK = "PARITY_SCRIPT"


@dataclass
class Script:
    """A script in a session of its own; all it starts carries its mark and can be found by it."""

    process: subprocess.Popen[str]
    mark: str

    def __enter__(self) -> "Script":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Whatever a failed test left: only this script's processes carry its mark.
        for straggler in self.members():
            try:
                straggler.kill()
            except psutil.NoSuchProcess:
                continue
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)

    def read_line(self) -> str:
        """Wait for one line the script prints; the test's own time limit bounds it."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the script and all it started, as a terminal does."""
        os.killpg(self.process.pid, number)

    def members(self) -> list[psutil.Process]:
        """List the living processes the script is made of, whatever session they moved to."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get(MARK) == self.mark:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def finish(self, within_s: float = 120) -> tuple[int, str, str]:
        """Wait for the end; give exit code, standard output and standard error."""
        out, err = self.process.communicate(timeout=within_s)
        return self.process.returncode, out, err


def start_script(folder: Path, which: str, body: str) -> Script:
    """Start a script whose first line imports the loader under test."""
    path = folder / "program.py"
    path.write_text(f"{IMPORTS[which]}\n{body}")
    home = str(Path(antifreeze.__file__).parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    search = os.pathsep.join(filter(None, [home, inherited]))
    mark = uuid.uuid4().hex
    return Script(
        subprocess.Popen(
            [sys.executable, str(path)],
            env={**os.environ, "PYTHONPATH": search, MARK: mark},
            cwd=folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ),
        mark,
    )


def run_script(folder: Path, which: str, body: str) -> tuple[int, str, str]:
    """Run a script to its end; give exit code, standard output and standard error.

    It begins where torch is imported already.
    """
    path = folder / "program.py"
    path.write_text(f"{IMPORTS[which]}\n{body}")
    done = forked_programs.run_script(path, cwd=folder)
    return done.returncode, done.stdout, done.stderr
