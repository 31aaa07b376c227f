"""Run the tests that depend on torch, on other versions of torch and Python.

python tests/compat/run.py [--keep] [--folder DIR] [--all] [--tests TESTS] [TORCH@PYTHON ...]

1. Each pair has an environment of its own; the next one is installed while the present one is
   tested, so there are two at most. Each is removed after its tests, unless --keep is given.
2. Each run replaces its row in tested_versions.json, and docs/compatibility.md is written anew;
   with --tests it does neither.
3. A pair that cannot be installed is told, counts as failed, and leaves the table alone.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]  # it needs nothing installed

from antifreeze.cli.tested_versions import Run  # noqa: E402
from tests.compat import environments, results, selection  # noqa: E402
from tests.compat.environments import CannotBeMade, Environment, Wanted  # noqa: E402
from tests.run import (  # noqa: E402
    COMPILED,
    NOT_THOROUGH,
    RETRIED,
    Suite,
    heed_signals,
    in_parts,
    note_retried,
    totals,
    usual_lanes,
)

BOUND_S = 1200.0  # for the tests of one pair: they take five minutes on two cores
TEST_BOUND_S = 240.0  # for one test: what hangs on a new Python should not cost the others
# What `--all` runs: the oldest that is supported, every second one, the newest three; and the
# newest on every Python.
MATRIX = (
    *(Wanted(torch, "python3.11") for torch in ("2.6.0", "2.7.1", "2.9.1", "2.11.0", "2.13.0")),
    *(Wanted(torch, "python3.11") for torch in ("2.14.1", "2.15.0")),
    *(Wanted("2.15.0", python) for python in ("python3.12", "python3.13", "python3.14")),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one pair."""

    wanted: Wanted
    row: Run | None  # none: it could not be installed
    failures: tuple[str, ...]  # tests, or why it could not be installed


def main() -> int:
    heed_signals()
    options = parsed(sys.argv[1:])
    os.chdir(ROOT)
    outcomes: list[Outcome] = []
    for wanted, made in made_in_turn(options.pairs, options.folder):
        if isinstance(made, Environment):
            outcomes.append(tested(made, options))
            if not options.keep:
                made.remove()
        else:
            print(made, flush=True)
            outcomes.append(Outcome(wanted, None, (made.splitlines()[0],)))
    return told(outcomes)


def made_in_turn(pairs: list[Wanted], base: Path) -> Iterator[tuple[Wanted, Environment | str]]:
    """Yield each pair with its environment, or with why it has none; the next one is being made."""
    with ThreadPoolExecutor(1) as installer:
        present = installer.submit(_made, pairs[0], base)
        for wanted, following in zip(pairs, [*pairs[1:], None], strict=True):
            made = present.result()
            if following is not None:
                present = installer.submit(_made, following, base)
            yield wanted, made


def _made(wanted: Wanted, base: Path) -> Environment | str:
    try:
        return environments.make(wanted, base)
    except CannotBeMade as error:
        return str(error)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("pairs", nargs="*", type=pair, metavar="TORCH@PYTHON")
    parser.add_argument("--all", action="store_true", help="all versions of the table as well")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--folder", type=Path, default=ROOT / ".compat", help="where they are made")
    parser.add_argument("--tests", default="", help="only these, and write no row")
    parser.add_argument("--lanes", type=int, default=usual_lanes(), help="parts that run at once")
    options = parser.parse_args(arguments)
    if options.all:
        options.pairs = [*(each for each in MATRIX if each not in options.pairs), *options.pairs]
    if not options.pairs:
        parser.error("no versions: make compat TORCH=2.7.1 PYTHON=python3.13, or make compat-all")
    options.folder = options.folder.resolve()
    return options


def pair(text: str) -> Wanted:
    torch, at, python = text.partition("@")
    if not (torch and at and python):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 2.7.1@python3.13")
    return Wanted(torch, python)


def tested(environment: Environment, options: argparse.Namespace) -> Outcome:
    """Run the tests in an environment, and write its row."""
    print(f"== {environment.wanted}: testing", flush=True)
    python = str(environment.python)
    for folder in COMPILED:  # programs of tests would do it hundreds of times
        subprocess.run([python, "-m", "compileall", "-qq", folder], check=False)
    only = re.split(r"\s+(?=tests/)", options.tests) if options.tests else []  # names have spaces
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="antifreeze-compat-") as base:
        arguments = [*(() if only else NOT_THOROUGH), f"--timeout={TEST_BOUND_S:g}"]
        suite = Suite(Path(base), arguments, began, python=python, bound_s=BOUND_S)
        parts = [only] if only else _shares()
        suite.run(parts, options.lanes)
        failed = suite.settled()
        whole = totals(suite.parts, failed)
        note_retried(suite.retried, RETRIED)
        names = [name for part in failed for name in part.failed or ["a process of tests"]]
    row = Run(
        torch=environment.wanted.torch,
        python=environments.version_of(python),
        antifreeze=_own_version(),
        date=datetime.date.today().isoformat(),
        passed=whole.passed,
        failed=whole.failed,
        skipped=whole.skipped,
        minutes=round((time.monotonic() - began) / 60, 1),
    )
    if not only:
        results.record(row)
    return Outcome(environment.wanted, row, tuple(names))


def told(outcomes: list[Outcome]) -> int:
    """Print what became of all pairs, and how to run what failed once more."""
    print(f"\n{'torch':10}{'Python':10}{'passed':>8}{'failed':>8}{'skipped':>9}{'minutes':>9}")
    for outcome in outcomes:
        if row := outcome.row:
            counts = f"{row.passed:>8,}{row.failed:>8}{row.skipped:>9}{row.minutes:>9}"
            print(f"{row.torch:10}{row.python:10}{counts}")
        else:
            print(f"{outcome.wanted.torch:10}{outcome.wanted.python:10}  not installed")
    for outcome in outcomes:
        for name in outcome.failures:
            print(f"\n{outcome.wanted}: {name}")
            if outcome.row:
                versions = f"TORCH={outcome.wanted.torch} PYTHON={outcome.wanted.python}"
                print(f"  once more: make compat {versions} KEEP=1 TESTS='{name}'")
    return 1 if any(outcome.failures for outcome in outcomes) else 0


def _shares() -> list[list[str]]:
    return [[str(path.relative_to(ROOT)) for path in part] for part in in_parts(selection.files())]


def _own_version() -> str:
    text = (ROOT / "src" / "antifreeze" / "_version.py").read_text()
    return text.partition('VERSION = "')[2].partition('"')[0]


if __name__ == "__main__":
    sys.exit(main())
