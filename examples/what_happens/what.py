"""Run every program of the table with torch's loader and with ours; show what was seen.

This process imports torch once and forks one process for each run, three at a time. A run that
stands still is ended after its bound, with everything it has started. Exit code 0: every program
showed what the table says. --write puts the table into README.md and docs/what-happens.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from programs import listen
from rows import HANGS, ROWS, Row
from torch.utils.data import DataLoader as TorchLoader

sys.path.append(str(Path(__file__).parents[1] / "scenarios"))
from rich.console import Console
from rich.table import Table
from s10_small_shared_memory import own_shm

from antifreeze import DataLoader as OurLoader

ROOT = Path(__file__).parents[2]
LOADERS = {"torch": TorchLoader, "antifreeze": OurLoader}
# The slowest of ours waits eight seconds for a report; the rest is for a busy machine.
OUR_BOUND_S = 60.0
AT_ONCE = 3
LOOK_EVERY_S = 0.02
BEGUN = "begun\n"
NOT_HERE = "cannot be shown here"
SHOWN = 230  # letters of what was seen, on the screen
HEADER = ("| when | torch 2.13 | antifreeze |", "|---|---|---|")


@dataclass(frozen=True, slots=True)
class Sight:
    """What one program showed with one loader."""

    name: str
    loader: str
    saw: str
    seconds: float
    as_told: bool


class Run:
    """One program with one loader, in a process group of its own."""

    def __init__(self, row: Row, loader: str) -> None:
        self.row, self.loader = row, loader
        self.bound_s = row.torch_bound_s if loader == "torch" else OUR_BOUND_S
        # A file, not a pipe: a worker that outlives its parent would keep a pipe open.
        self.output: BinaryIO = tempfile.TemporaryFile()  # type: ignore[assignment] # noqa: SIM115
        self.begin = time.monotonic()
        self.begun = not row.own_shm_bytes  # a program of its own imports torch first
        if row.own_shm_bytes:
            within = own_shm(row.own_shm_bytes)
            command = [*within, sys.executable, __file__, "--child", row.name, loader]
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.pid = child.pid
            child.returncode = 0  # it is buried here, like the others
            return
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.dup2(self.output.fileno(), 1)
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            os._exit(be_child(row, loader))

    def look(self) -> Sight | None:
        """Return what was seen, if the program has ended or has used up its time."""
        if not self.begun and os.fstat(self.output.fileno()).st_size:
            self.begun, self.begin = True, time.monotonic()
        seconds = time.monotonic() - self.begin
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid and seconds < (self.bound_s if self.begun else OUR_BOUND_S):
            return None
        self.end(buried=bool(pid))
        self.output.seek(0)
        text = self.output.read().decode(errors="replace").removeprefix(BEGUN).strip()
        saw = text.splitlines()[-1] if text else f"dies: {os.waitstatus_to_exitcode(status)}"
        if not pid:
            saw = f"{HANGS}: nothing for {self.bound_s:.0f} s" if self.begun else "never began"
        shows = self.row.torch_shows if self.loader == "torch" else self.row.antifreeze_shows
        return Sight(self.row.name, self.loader, saw, seconds, re.search(shows, saw) is not None)

    def end(self, *, buried: bool) -> None:
        """End all that is left of the program."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if not buried:
            os.waitpid(self.pid, 0)


def be_child(row: Row, loader: str) -> int:
    """Run one program and print what it saw, in one line."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    listen()
    try:
        saw = row.program(LOADERS[loader])
    except BaseException as error:
        saw = f"{type(error).__name__}: {error}"
    print(" ".join(saw.split()), flush=True)
    return 0


def run_all(rows: Sequence[Row]) -> list[Sight]:
    """Run every program with both loaders, a few at a time; return them in the table's order."""
    waiting = [(row, loader) for row in rows for loader in LOADERS]
    found: dict[tuple[str, str], Sight] = {}
    running: list[Run] = []
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                row, loader = waiting.pop(0)
                if row.own_shm_bytes and not own_shm(row.own_shm_bytes):
                    found[row.name, loader] = Sight(row.name, loader, NOT_HERE, 0.0, True)
                else:
                    running.append(Run(row, loader))
            for run in list(running):
                if sight := run.look():
                    found[run.row.name, run.loader] = sight
                    run.output.close()
                    running.remove(run)
            time.sleep(LOOK_EVERY_S)
    finally:
        for run in running:
            run.end(buried=False)
            run.output.close()
    return [found[row.name, loader] for row in rows for loader in LOADERS]


def drawn(rows: Sequence[Row], sights: Sequence[Sight]) -> Table:
    """Draw what was seen."""
    table = Table(expand=True, show_lines=True)
    table.add_column("when", ratio=2)
    for loader in LOADERS:
        table.add_column(f"{loader}: seen", ratio=3)
    by_name = {(one.name, one.loader): one for one in sights}
    for row in rows:
        cells = []
        for loader in LOADERS:
            sight = by_name[row.name, loader]
            words = sight.saw if len(sight.saw) <= SHOWN else sight.saw[:SHOWN] + " ..."
            cells.append(words if sight.as_told else f"NOT AS TOLD: {words}")
        table.add_row(*(cell.replace("[", r"\[") for cell in (row.when, *cells)))
    return table


def in_markdown(rows: Sequence[Row], *, in_docs: bool) -> str:
    """Write the table as README has it, or as a page in docs has it."""
    lines = [*HEADER, *(f"| {row.when} | {row.torch} | {row.antifreeze} |" for row in rows)]
    text = "\n".join(lines) + "\n"
    return text.replace("](docs/", "](") if in_docs else text


def with_table(page: str, table: str) -> str:
    """Return a page with its table of this kind exchanged."""
    begin = page.index(HEADER[0])
    end = page.index("\n\n", begin) + 1
    return page[:begin] + table + page[end:]


def pages() -> dict[Path, str]:
    """Return the two pages as they should be."""
    readme, whole = ROOT / "README.md", ROOT / "docs" / "what-happens.md"
    striking = in_markdown([row for row in ROWS if row.in_readme], in_docs=False)
    return {
        readme: with_table(readme.read_text(), striking),
        whole: with_table(whole.read_text(), in_markdown(ROWS, in_docs=True)),
    }


def main() -> int:
    """Parse the command line; run, show or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [row.name for row in ROWS]
    parser.add_argument("names", nargs="*", help=f"only these programs: {', '.join(names)}")
    parser.add_argument("--json", action="store_true", help="what was seen as JSON on stdout")
    parser.add_argument("--write", action="store_true", help="write the pages and run nothing")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = [row for row in ROWS if row.name in options.names or not options.names]
    torch.set_num_threads(1)  # and no pool of threads before the forks
    if options.child:
        name, loader = options.child
        print(BEGUN, end="", flush=True)
        return be_child(next(row for row in ROWS if row.name == name), loader)
    if options.write:
        for path, text in pages().items():
            path.write_text(text)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sights = run_all(rows)
    if options.json:
        found: list[dict[str, Any]] = [asdict(sight) for sight in sights]
        print(json.dumps(found, indent=2))
    else:
        Console(highlight=False).print(drawn(rows, sights))
    return 0 if rows and all(sight.as_told for sight in sights) else 1


if __name__ == "__main__":
    sys.exit(main())
