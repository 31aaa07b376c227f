"""Run all tests, in several lanes at once: most of them wait for something most of the time.

python tests/run.py [--lanes N] [--all] [arguments for pytest ...]

--all: also the files that need a trainer's package (`pytestmark = needs(...)`).

A lane is one pytest process with whole files of tests. (Not threads, nor a runner that adds one to
the process of the tests: the loader looks at the threads of its program.)
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
BOUND_S = 3600.0  # for all
TOLD_S = 30.0  # between two lines about how it goes
# Seconds, where a file takes much longer than others: so that no lane has all of them.
WEIGHTS = {
    "chaos/test_chaos.py": 150,
    "cli/test_run.py": 90,
    "core/test_machine.py": 60,
    "docs/test_examples_run.py": 90,
    "failures/test_exam.py": 110,
    "integrations/test_accelerate.py": 50,
    "integrations/test_ddp.py": 40,
    "integrations/test_ignite.py": 50,
    "integrations/test_lightning.py": 180,
    "integrations/test_pages.py": 120,
    "integrations/test_ray_train.py": 60,
    "integrations/test_timm.py": 40,
    "integrations/test_transformers.py": 90,
    "integrations/test_install.py": 40,
    "parity/test_accounting.py": 45,
    "parity/test_differential.py": 160,
    "parity/test_batches.py": 40,
    "rogues/test_by_name.py": 65,
    "rogues/test_growth.py": 40,
    "rogues/test_leftovers.py": 40,
    "rogues/test_stuck_in_main.py": 70,
    "rogues/test_circumstances.py": 40,
    "rogues/test_faithful.py": 40,
    "rogues/test_hangs.py": 70,
    "rogues/test_matrix.py": 130,
    "rogues/test_nursery.py": 50,
    "rogues/test_resources.py": 50,
    "rogues/test_templates.py": 50,
    "scenarios/test_benchmark_smoke.py": 110,
    "scenarios/test_demo.py": 90,
    "scenarios/test_scenario_scripts.py": 420,
    "scenarios/test_what_happens.py": 60,
    "sim/test_ten_thousand_epochs.py": 60,
    "view/test_progress.py": 30,
}
USUAL = 10
WITH_PACKAGES = "pytestmark = needs("


@dataclass
class Lane:
    process: subprocess.Popen[bytes]
    output: Path
    files: int

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def counts(self) -> tuple[int, int]:
        """Give how many tests are over, and how many of them were not as they should be."""
        marks = "".join(re.findall(r"^([.sxXFE]+)(?: +\[ *\d+%\])?$", self.text, re.MULTILINE))
        return len(marks), sum(mark in "FE" for mark in marks)


def main() -> int:
    # Whoever starts this in the background may have it ignored, and the programs of tests as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments = sys.argv[1:]
    lanes = (os.cpu_count() or 1) + 1
    if "--lanes" in arguments:
        place = arguments.index("--lanes")
        lanes = int(arguments[place + 1])
        del arguments[place : place + 2]
    everything = "--all" in arguments
    if everything:
        arguments.remove("--all")
    shares = share_out(lanes, everything)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="antifreeze-tests-") as folder:
        running = [_start(Path(folder), place, share, arguments) for place, share in shares.items()]
        try:
            _watch(running, began)
        finally:
            for lane in running:
                if lane.process.poll() is None:
                    lane.process.send_signal(signal.SIGINT)  # pytest tells what it was at
                    lane.process.wait()
        return _tell(running, time.monotonic() - began)


def share_out(lanes: int, everything: bool = False) -> dict[int, list[Path]]:
    """Give each lane its files: the longest first, each to whoever has least."""
    found = [path for path in sorted(HERE.rglob("test_*.py")) if everything or _needs_none(path)]
    files = {path: _weight(path) for path in found}
    shares: dict[int, list[Path]] = {place: [] for place in range(lanes)}
    loads = dict.fromkeys(shares, 0)
    for path in sorted(files, key=lambda path: -files[path]):
        place = min(loads, key=lambda each: loads[each])
        shares[place].append(path)
        loads[place] += files[path]
    return {place: share for place, share in shares.items() if share}


def _needs_none(path: Path) -> bool:
    """Tell whether a file runs without packages of others: from its text, since importing costs."""
    return WITH_PACKAGES not in path.read_text()


def _weight(path: Path) -> int:
    return WEIGHTS.get(path.relative_to(HERE).as_posix(), USUAL)


def _start(folder: Path, place: int, share: list[Path], arguments: list[str]) -> Lane:
    output = folder / f"lane{place}.txt"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, *map(str, share)], stdout=file, stderr=subprocess.STDOUT
        )
    return Lane(process, output, len(share))


def _watch(running: list[Lane], began: float) -> None:
    told = began
    while any(lane.process.poll() is None for lane in running):
        time.sleep(0.5)
        now = time.monotonic()
        if now - began > BOUND_S:
            print(f"the tests take longer than {BOUND_S:g} s: ended", flush=True)
            return
        if now - told >= TOLD_S:
            told = now
            done = sum(lane.counts[0] for lane in running)
            bad = sum(lane.counts[1] for lane in running)
            at_work = sum(lane.process.poll() is None for lane in running)
            took = f"{(now - began) / 60:.1f} min"
            print(f"{took}: {done:,} tests, {bad} failed; {at_work} lanes at work", flush=True)


def _tell(running: list[Lane], seconds: float) -> int:
    """Show all of a lane that failed, and the last line of each."""
    failed = [lane for lane in running if lane.process.returncode != 0]
    for lane in failed:
        print(lane.text)
    totals: dict[str, int] = {}
    for lane in running:
        for count, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", lane.text[-400:]):
            totals[what] = totals.get(what, 0) + int(count)
    summed = ", ".join(f"{count:,} {what}" for what, count in totals.items())
    print(f"{summed} in {seconds / 60:.1f} min, {len(running)} lanes; {len(failed)} lanes failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
