"""Run it: `python -m tests.chaos --seed 7 --minutes 2`, or `--only N`, or `--healthy`."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from .faults import Striker
from .perform import Outcome, perform
from .recipes import Recipe, draw
from .report import Tally, complaint

EVERY_S = 15.0  # a line of progress
GROUPS = Path("/sys/fs/cgroup")
INSIDE_S = 300.0
MOST = 100_000  # recipes of one run


def main() -> int:
    arguments = _arguments()
    seed: int = secrets.randbelow(10_000) if arguments.seed is None else arguments.seed
    if arguments.inside:
        with Striker() as striker:
            print(json.dumps(vars(perform(draw(seed, arguments.only), striker))))
        return 0
    if arguments.healthy:
        from .healthy import run as run_healthy

        return run_healthy(seed, 60 * arguments.minutes, arguments.only)
    return run(seed, 60 * arguments.minutes, arguments.only, arguments.times)


def run(seed: int, seconds: float, only: int | None = None, times: int = 1) -> int:
    """Perform recipes until the time is over; print what was seen; 1 if anything was wrong."""
    tally, told_at = Tally(), time.monotonic()
    print(f"chaos: seed {seed}, {seconds / 60:g} minutes", flush=True)
    numbers = iter(range(MOST)) if only is None else iter([only] * times)
    with Striker() as striker:
        for number in numbers:
            if only is None and time.monotonic() - tally.began > seconds:
                break
            recipe = draw(seed, number)
            outcome = perform_in_group(recipe) if recipe.group_bytes else perform(recipe, striker)
            if outcome is None:
                continue
            tally.add(outcome)
            if outcome.problems:
                print(complaint(outcome, recipe, seed), flush=True)
            elif only is not None:
                print(f"{recipe}\n" + "\n".join(outcome.said))
            if time.monotonic() - told_at > EVERY_S:
                told_at = time.monotonic()
                print(tally.line(), flush=True)
    print(f"\n{tally.table()}")
    if tally.failed:
        numbers_said = ", ".join(str(outcome.number) for outcome in tally.failed)
        print(f"\nWRONG: {len(tally.failed)} of them; seed {seed}, --only {numbers_said}")
        return 1
    print("\n0 lost, 0 duplicated, 0 wrong, 0 left behind")
    return 0


def perform_in_group(recipe: Recipe) -> Outcome | None:
    """Perform a recipe in a program of its own, which may use little memory. None: not here."""
    old = GROUPS / "memory"
    group = (old if old.is_dir() else GROUPS) / f"antifreeze-chaos-{os.getpid()}-{recipe.number}"
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        limit = group / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")
        limit.write_text(str(recipe.group_bytes))
        again = ["--seed", str(recipe.seed), "--only", str(recipe.number), "--inside"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.chaos", *again],
            capture_output=True,
            text=True,
            timeout=INSIDE_S,
            cwd=Path(__file__).parents[2],
            preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        return Outcome(recipe.number, [f"its program did not end in {INSIDE_S:g} s"])
    finally:
        _remove(group)
    if done.returncode != 0:
        words = done.stderr[-2000:]
        return Outcome(recipe.number, [f"its program ended with {done.returncode}: {words}"])
    told = json.loads(done.stdout.splitlines()[-1])
    told["faults"] = Counter(told["faults"])
    return Outcome(**told)


def _remove(group: Path) -> None:
    for _ in range(100):  # the kernel takes a moment
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
        else:
            return


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="of all recipes; drawn, and said, if not given")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", type=int, metavar="N", help="perform one recipe alone")
    parser.add_argument("--times", type=int, default=1, help="... so many times")
    parser.add_argument("--healthy", action="store_true", help="nothing fails; nothing may be said")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
