"""Run all tests, in several lanes at once: most of them wait for something most of the time.

python tests/run.py [--lanes N] [--all] [arguments for pytest ...]

--all: also the files that need a trainer's package (`pytestmark = needs(...)`), and files and tests
that only add more of the same (`pytestmark = thorough`, `@pytest.mark.thorough`).

1. A part is one pytest process with whole files of tests; a lane that is free takes the next part.
   (Not threads, nor a runner that adds one to the process of the tests: the loader looks at the
   threads of its program.)
2. A test that failed beside others is tried once more, alone, when all lanes are done: these load
   the machine on purpose, and some tests are about time. What it said is shown all the same. More
   than a few are not tried again.
3. A test that passed only alone wants mending: it is named at the end of the summary, and added to
   `.retried-tests.txt` with the date and what failed. One that stands there twice is not luck.
"""

from __future__ import annotations

import compileall
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
# What programs of tests import: hundreds of them would compile it, where Python may not keep that.
COMPILED = ("benchmarks", "examples", "src", "tests")
BOUND_S = 3600.0  # for all
TOLD_S = 30.0  # between two lines about how it goes
RETRIED = HERE.parent / ".retried-tests.txt"  # not in git: it is about this machine, too
KEPT_LINES = 500  # of that file, the newest
TRIED_AGAIN = 3  # tests that failed beside others; if there are more, it is not the load
PART = 60  # seconds, about: so that lanes end together, and few processes import torch
# Seconds, where a file takes much longer than others: so that no lane has all of them.
WEIGHTS = {
    "chaos/test_chaos.py": 50,
    "check/test_bars.py": 35,
    "check/test_bounds.py": 15,
    "check/test_failures.py": 10,
    "check/test_gitignore.py": 20,
    "cli/test_attach.py": 20,
    "cli/test_run.py": 35,
    "cli/test_run_processes.py": 35,
    "cli/test_run_report.py": 60,
    "cli/test_scan.py": 15,
    "compat/test_missing_names.py": 35,
    "compat/test_new_arguments.py": 20,
    "compat/test_worker_info.py": 15,
    "core/test_machine.py": 20,
    "core/test_parts.py": 10,
    "core/test_stall_detection.py": 15,
    "docs/test_examples_run.py": 55,
    "doctor/test_asking.py": 10,
    "doctor/test_locks.py": 12,
    "doctor/test_more_patients.py": 900,
    "doctor/test_patients.py": 140,
    "doctor/test_twenty_looks.py": 700,
    "failures/test_exam.py": 30,
    "gpu_check/test_command.py": 35,
    "hostile/test_check_hostile_files.py": 40,
    "hostile/test_configuration.py": 20,
    "hostile/test_fuzzed.py": 20,
    "hostile/test_processes.py": 100,
    "hostile/test_secrets.py": 30,
    "integrations/test_accelerate.py": 50,
    "integrations/test_ddp.py": 20,
    "integrations/test_ignite.py": 50,
    "integrations/test_install.py": 25,
    "integrations/test_install_names.py": 15,
    "integrations/test_lightning.py": 180,
    "integrations/test_native_libraries.py": 300,
    "integrations/test_pages.py": 120,
    "integrations/test_ray_train.py": 60,
    "integrations/test_timm.py": 40,
    "integrations/test_transformers.py": 90,
    "packaging/test_import.py": 35,
    "packaging/test_lanes.py": 35,
    "parity/test_accounting.py": 35,
    "parity/test_batches.py": 15,
    "parity/test_differential.py": 40,
    "parity/test_endings.py": 10,
    "parity/test_iteration.py": 25,
    "parity/test_kept_between_epochs.py": 15,
    "parity/test_line_profiler.py": 25,
    "parity/test_loop_shapes.py": 25,
    "parity/test_error_advice.py": 15,
    "parity/test_randomness.py": 15,
    "parity/test_released.py": 20,
    "parity/test_several_loops.py": 30,
    "parity/test_torch_draws.py": 85,
    "rogues/test_accelerators.py": 20,
    "rogues/test_by_name.py": 25,
    "rogues/test_process_settings.py": 15,
    "rogues/test_clean_process.py": 30,
    "rogues/test_dataset_released.py": 20,
    "rogues/test_dead_holders.py": 30,
    "rogues/test_reducers.py": 30,
    "rogues/test_fork_check.py": 15,
    "rogues/test_memory_growth.py": 30,
    "rogues/test_hangs.py": 120,
    "rogues/test_fork_hazards.py": 30,
    "rogues/test_interrupted.py": 35,
    "rogues/test_interrupted_starts.py": 40,
    "rogues/test_reused_zygotes.py": 30,
    "rogues/test_killed.py": 15,
    "rogues/test_leftovers.py": 45,
    "rogues/test_matrix.py": 45,
    "rogues/test_parked_threads.py": 20,
    "rogues/test_quiet_end.py": 15,
    "rogues/test_random_threads.py": 20,
    "rogues/test_resources.py": 35,
    "rogues/test_stand_ins.py": 20,
    "rogues/test_starved.py": 30,
    "rogues/test_stream_programs.py": 35,
    "rogues/test_stuck_workers.py": 30,
    "rogues/test_stuck_in_main.py": 85,
    "rogues/test_stuck_forks.py": 105,
    "rogues/test_wake_ups.py": 35,
    "rogues/test_without_proc.py": 25,
    "rogues/test_zygotes.py": 30,
    "scenarios/test_benchmark_smoke.py": 55,
    "scenarios/test_demo.py": 40,
    "scenarios/test_scenario_scripts.py": 125,
    "scenarios/test_what_happens.py": 35,
    "sim/test_ten_thousand_epochs.py": 25,
    "transport/test_lifetimes_elsewhere.py": 20,
    "transport/test_tiny_batches.py": 15,
    "view/test_progress.py": 40,
}
USUAL = 5
# What a file says that `make test-all` runs and `make test` does not.
ONLY_WITH_ALL = ("pytestmark = needs(", "pytestmark = thorough")
NOT_THOROUGH = ("-m", "not thorough")  # the same for tests that are marked one by one


@dataclass(frozen=True, slots=True)
class Totals:
    """How many tests ended in which way, those that were tried again by their second try."""

    passed: int
    failed: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Retried:
    """A test that failed beside others and passed alone."""

    name: str
    error: str  # the first line of what failed

    def line(self, today: datetime.date) -> str:
        return f"{today.isoformat()}  {self.name}  {self.error}".rstrip()


@dataclass
class Part:
    """A share of the tests, in a process of its own."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    @property
    def text(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")

    @property
    def counts(self) -> tuple[int, int]:
        """Return how many tests are over, and how many of them were not as they should be."""
        marks = "".join(re.findall(r"^([.sxXFE]+)(?: +\[ *\d+%\])?$", self.text, re.MULTILINE))
        return len(marks), sum(mark in "FE" for mark in marks)

    @property
    def failed(self) -> list[str]:
        """Return the tests that failed, if that is all that went wrong."""
        kept = self.folder / "cache/v/cache/lastfailed"
        if self.process.returncode != TESTS_FAILED or not kept.exists():
            return []
        return list(json.loads(kept.read_text()))

    def error_of(self, name: str) -> str:
        """Return the first line of the error of a test that failed, as far as there is one."""
        title = name.partition("::")[2].replace("::", ".")  # as pytest heads its traceback
        _, _, told = self.text.partition(f" {title} _")
        found = re.search(r"^E +(\S.*)$", told, re.MULTILINE)
        return found[1].strip()[:200] if found else ""

    @property
    def summary(self) -> dict[str, int]:
        """Return the counts of pytest's last line, by what it calls them.

        Libraries may say more after it, at the end of the process.
        """
        lines = re.findall(r"^(?:=+ )?(\d+ [a-z]+.*) in [\d.]+s\b", self.text, re.MULTILINE)
        found = re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", lines[-1] if lines else "")
        return {what.removesuffix("s"): int(count) for count, what in found}


TESTS_FAILED = 1  # pytest's exit code: all tests ran, and some failed


def main() -> int:
    heed_signals()
    arguments = sys.argv[1:]
    lanes = usual_lanes()
    if "--lanes" in arguments:
        place = arguments.index("--lanes")
        lanes = int(arguments[place + 1])
        del arguments[place : place + 2]
    everything = "--all" in arguments
    if everything:
        arguments.remove("--all")
    else:
        arguments = [*NOT_THOROUGH, *arguments]
    began = time.monotonic()
    for folder in COMPILED:
        compileall.compile_dir(HERE.parent / folder, quiet=2)
    with tempfile.TemporaryDirectory(prefix="antifreeze-tests-") as base:
        tests = Suite(Path(base), arguments, began)
        tests.run([[*map(str, part)] for part in share_out(everything)], lanes)
        failed = tests.settled()
        code = _tell(tests.parts, failed, time.monotonic() - began)
        note_retried(tests.retried, RETRIED)
        return code


def heed_signals() -> None:
    """Undo what a shell does to what it starts in the background: programs of tests inherit it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def usual_lanes() -> int:
    """Return how many parts run at once: one more than cores, since most of them wait."""
    return (os.cpu_count() or 1) + 1


class Suite:
    """The parts, as far as they are begun."""

    def __init__(
        self,
        folder: Path,
        arguments: list[str],
        began: float,
        *,
        python: str = sys.executable,
        bound_s: float = BOUND_S,
    ) -> None:
        self._folder, self._arguments, self._began = folder, arguments, began
        self._python, self._bound_s = python, bound_s
        self._told = began
        self.parts: list[Part] = []
        self.retried: list[Retried] = []  # those that passed in the end

    def run(self, shares: list[list[str]], lanes: int) -> None:
        """Run all shares, so many at a time."""
        waiting, at_work = deque(shares), list[Part]()
        try:
            while waiting or at_work:
                at_work = [part for part in at_work if not part.is_over]
                while waiting and len(at_work) < lanes:
                    at_work.append(self._start(waiting.popleft()))
                time.sleep(0.2)
                if time.monotonic() - self._began > self._bound_s:
                    print(f"the tests take longer than {self._bound_s:g} s: ended", flush=True)
                    break
                self._tell(len(waiting) + len(at_work))
        finally:
            for part in at_work:
                if not part.is_over:
                    part.process.send_signal(signal.SIGINT)  # pytest tells what it was at
                    part.process.wait()

    def settled(self) -> list[Part]:
        """Return the parts that failed, after those of a few tests were tried again."""
        failed = [part for part in self.parts if part.process.returncode != 0]
        for part in failed:
            print(part.text)
        names = [name for part in failed for name in part.failed]
        if all(part.failed for part in failed) and len(names) <= TRIED_AGAIN:
            return self._again(
                {name: part.error_of(name) for part in failed for name in part.failed}
            )
        return failed

    def _again(self, names: dict[str, str]) -> list[Part]:
        """Try tests once more, alone; `names` has the error of each."""
        for name in names:
            print(f"failed beside others, tried again alone: {name}", flush=True)
        done = len(self.parts)
        self.run([[name] for name in names], lanes=1)
        tried = self.parts[done:]
        for name, part in zip(names, tried, strict=False):
            if part.process.returncode == 0:
                self.retried.append(Retried(name, names[name]))
            else:
                print(part.text)
        return [part for part in tried if part.process.returncode != 0]

    def _start(self, share: list[str]) -> Part:
        folder = self._folder / f"part{len(self.parts)}"
        folder.mkdir()
        command = [self._python, "-m", "pytest", "-o", f"cache_dir={folder / 'cache'}"]
        with (folder / "output.txt").open("wb") as file:
            process = subprocess.Popen(
                [*command, *self._arguments, *share], stdout=file, stderr=subprocess.STDOUT
            )
        self.parts.append(Part(process, folder))
        return self.parts[-1]

    def _tell(self, left: int) -> None:
        now = time.monotonic()
        if now - self._told >= TOLD_S:
            self._told = now
            done, bad = map(sum, zip(*(part.counts for part in self.parts), strict=True))
            took = f"{(now - self._began) / 60:.1f} min"
            print(f"{took}: {done:,} tests, {bad} failed; {left} parts to go", flush=True)


def share_out(everything: bool = False) -> list[list[Path]]:
    """Return all files of tests, in parts."""
    found = sorted(HERE.rglob("test_*.py"))
    return in_parts([path for path in found if everything or is_usual(path)])


def in_parts(found: list[Path]) -> list[list[Path]]:
    """Return files in parts of about a minute: the longest first, so that lanes end together."""
    parts: list[list[Path]] = []
    load = 0
    for path in sorted(found, key=lambda path: -_weight(path)):
        if not parts or load + _weight(path) > PART:
            parts.append([])
            load = 0
        parts[-1].append(path)
        load += _weight(path)
    return parts


def is_usual(path: Path) -> bool:
    """Whether a file runs without --all: from its text, since importing costs."""
    text = path.read_text()
    return not any(mark in text for mark in ONLY_WITH_ALL)


def _weight(path: Path) -> int:
    return WEIGHTS.get(path.relative_to(HERE).as_posix(), USUAL)


def _tell(parts: list[Part], failed: list[Part], seconds: float) -> int:
    """Sum up."""
    summed: dict[str, int] = {}
    for part in parts:
        for what, count in part.summary.items():
            summed[what] = summed.get(what, 0) + count
    counted = ", ".join(f"{count:,} {what}" for what, count in summed.items())
    print(f"{counted} in {seconds / 60:.1f} min, {len(parts)} parts; {len(failed)} parts failed")
    return 1 if failed or not parts else 0


def note_retried(retried: list[Retried], file: Path) -> None:
    """Name the tests that passed only alone, and keep their names, with those of earlier runs."""
    if not retried:
        return
    today = datetime.date.today()
    known = file.read_text().splitlines() if file.exists() else []
    lines = [*known, *(each.line(today) for each in retried)][-KEPT_LINES:]
    file.write_text("".join(f"{line}\n" for line in lines))
    for each in retried:
        times = sum(line.split("  ")[1:2] == [each.name] for line in lines)
        again = f" ({times} times in {file.name})" if times > 1 else ""
        print(f"passed only alone: {each.name}{again}", flush=True)


def totals(parts: list[Part], failed: list[Part]) -> Totals:
    """Return the counts of a run; a part that ended in no usual way counts as one failure more."""
    broken = sum(1 for part in failed if not part.failed)
    return Totals(
        passed=sum(part.summary.get("passed", 0) for part in parts),
        failed=sum(len(part.failed) for part in failed) + broken,
        skipped=sum(part.summary.get("skipped", 0) for part in parts),
    )


if __name__ == "__main__":
    sys.exit(main())
