"""Run all tests, in several lanes at once: most of them wait for something most of the time.

python tests/run.py [--lanes N] [--all] [arguments for pytest ...]

--all: also the files that need a trainer's package (`pytestmark = needs(...)`), and those that only
add more of the same (`pytestmark = thorough`).

A lane is one pytest process with whole files of tests. (Not threads, nor a runner that adds one to
the process of the tests: the loader looks at the threads of its program.)
"""

from __future__ import annotations

import compileall
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
# What programs of tests import: hundreds of them would compile it, where Python may not keep that.
COMPILED = ("benchmarks", "examples", "src", "tests")
BOUND_S = 3600.0  # for all
TOLD_S = 30.0  # between two lines about how it goes
# Seconds, where a file takes much longer than others: so that no lane has all of them.
WEIGHTS = {
    "chaos/test_chaos.py": 65,
    "check/test_bars.py": 25,
    "check/test_checking.py": 15,
    "check/test_rules.py": 20,
    "cli/test_run.py": 80,
    "cli/test_run_report.py": 45,
    "core/test_machine.py": 25,
    "docs/test_examples_run.py": 55,
    "doctor/test_cases.py": 15,
    "doctor/test_edited_cases.py": 30,
    "doctor/test_endings.py": 15,
    "doctor/test_locks.py": 30,
    "doctor/test_more_patients.py": 900,
    "doctor/test_patients.py": 95,
    "doctor/test_twenty_looks.py": 700,
    "failures/test_exam.py": 55,
    "integrations/test_accelerate.py": 50,
    "integrations/test_ddp.py": 35,
    "integrations/test_ignite.py": 50,
    "integrations/test_install.py": 80,
    "integrations/test_install_names.py": 30,
    "integrations/test_lightning.py": 180,
    "integrations/test_pages.py": 120,
    "integrations/test_ray_train.py": 60,
    "integrations/test_timm.py": 40,
    "integrations/test_transformers.py": 90,
    "packaging/test_import.py": 25,
    "parity/test_accounting.py": 40,
    "parity/test_batches.py": 60,
    "parity/test_differential.py": 90,
    "parity/test_endings.py": 35,
    "parity/test_iteration.py": 30,
    "parity/test_looks.py": 20,
    "parity/test_randomness.py": 25,
    "parity/test_several_loops.py": 15,
    "rogues/test_circumstances.py": 25,
    "rogues/test_dead_holders.py": 20,
    "rogues/test_faithful.py": 60,
    "rogues/test_growth.py": 35,
    "rogues/test_hangs.py": 80,
    "rogues/test_interrupted.py": 20,
    "rogues/test_killed.py": 35,
    "rogues/test_leftovers.py": 45,
    "rogues/test_matrix.py": 45,
    "rogues/test_nursery.py": 90,
    "rogues/test_resources.py": 45,
    "rogues/test_starved.py": 20,
    "rogues/test_stuck.py": 15,
    "rogues/test_stuck_in_main.py": 60,
    "rogues/test_templates.py": 40,
    "scenarios/test_benchmark_smoke.py": 55,
    "scenarios/test_demo.py": 55,
    "scenarios/test_scenario_scripts.py": 155,
    "scenarios/test_what_happens.py": 40,
    "sim/test_ten_thousand_epochs.py": 145,
    "transport/test_tiny_batches.py": 20,
    "view/test_progress.py": 25,
}
USUAL = 5
# What a file says that `make test-all` runs and `make test` does not.
ONLY_WITH_ALL = ("pytestmark = needs(", "pytestmark = thorough")


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
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
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
    for folder in COMPILED:
        compileall.compile_dir(HERE.parent / folder, quiet=2)
    with tempfile.TemporaryDirectory(prefix="antifreeze-tests-") as base:
        running = [_start(Path(base), place, share, arguments) for place, share in shares.items()]
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
    found = [path for path in sorted(HERE.rglob("test_*.py")) if everything or _is_usual(path)]
    files = {path: _weight(path) for path in found}
    shares: dict[int, list[Path]] = {place: [] for place in range(lanes)}
    loads = dict.fromkeys(shares, 0)
    for path in sorted(files, key=lambda path: -files[path]):
        place = min(loads, key=lambda each: loads[each])
        shares[place].append(path)
        loads[place] += files[path]
    return {place: share for place, share in shares.items() if share}


def _is_usual(path: Path) -> bool:
    """Tell whether a file runs without --all: from its text, since importing costs."""
    text = path.read_text()
    return not any(mark in text for mark in ONLY_WITH_ALL)


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
