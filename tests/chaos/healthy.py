"""Healthy runs: nobody is replaced, nobody is said to be what it is not, everything arrives.

1. Nothing is said about samples that last less than the time of a first report.
2. Of one that lasts longer it may be said that it is slow but moving or running if it does
   something, and that it is stuck if it does nothing; never that it is deadlocked.
3. No worker is ended or replaced: all of them would have come back.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antifreeze import DataLoader

from . import awkward as on
from . import judge
from .perform import Frozen, another_thread, bounded, listening

FROZEN_S = 180.0
MOVING, RUNNING, STUCK = "slow but moving", "running", "stuck"
REPORT = re.compile(
    r"waiting \d+ s for .* is"
    r" (slow but moving|running on one line|running|stuck|deadlocked|stopped|slow)"
)
OF_START = "which is being made in a clean process"  # not of a sample: starting takes its time


@dataclass(frozen=True)
class Case:
    """One awkward but healthy loader."""

    make: Callable[[], Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    may_say: frozenset[str] = frozenset()  # how it may be reported to stand
    loop_nap_s: float = 0.0
    busy: int = 0  # processes beside it that use all processors
    stopped_s: float = 0.0  # the whole program, once, as by Ctrl-Z


def _once(deed: Callable[[float], Callable[[int], object]], seconds: float) -> Callable[[], Any]:
    return lambda: on.Awkward(deed(seconds), once=True)


def _each(deed: Callable[[int], object], length: int = 12) -> Callable[[], Any]:
    return lambda: on.Awkward(deed, length)


_MOVES, _STILL = frozenset({MOVING, RUNNING}), frozenset({STUCK, MOVING, RUNNING})
WAITS = {
    "sleeps": on.sleep,
    "waits for a thread": on.wait_for_thread,
    "waits for a timer": on.wait_for_timer,
    "waits with a limit": on.wait_with_limit,
    "waits for an alarm": on.wait_for_alarm,
    "waits for a child, told by a signal": on.wait_for_child_by_signal,
    "waits for a program that sleeps": on.wait_for_sleeping_program,
    "waits in an event loop": on.wait_in_event_loop,
}
MOVERS = {
    "computes": on.compute,
    "asks a slow server": on.trickle,
    "runs a program": on.run_program,
    "polls": on.poll,
}
CASES: dict[str, Case] = {
    **{f"one sample {n} long": Case(_once(d, on.LAST_S), may_say=_STILL) for n, d in WAITS.items()},
    **{f"one sample {n} a while": Case(_once(d, on.SHORT_S)) for n, d in WAITS.items()},
    **{
        f"one sample {n} long": Case(_once(d, on.LAST_S), may_say=_MOVES) for n, d in MOVERS.items()
    },
    **{f"each sample {n}": Case(_each(d(0.4), 24)) for n, d in MOVERS.items()},
    "linear algebra": Case(_each(on.multiply, 60)),
    "torch with threads": Case(
        _each(on.multiply_in_threads, 60), {"worker_init_fn": on.two_threads}
    ),
    "large pickles": Case(_each(on.unpickle, 40)),
    "reads and writes files": Case(_each(on.read_files, 60)),
    "many small samples": Case(_each(on.nothing, 30_000), {"batch_size": 8}),
    "workers share a lock": Case(lambda: on.Sharing("lock", on.LAST_S), {"batch_size": 1}, _STILL),
    "workers share an event": Case(
        lambda: on.Sharing("event", on.LAST_S), {"batch_size": 1}, _STILL
    ),
    "workers share a pipe": Case(lambda: on.Sharing("pipe", on.LAST_S), {"batch_size": 1}, _STILL),
    "workers lock a file": Case(lambda: on.Sharing("file", on.LAST_S), {"batch_size": 1}, _STILL),
    "a stream with a slow sample": Case(lambda: on.Stream(on.sleep(on.SHORT_S))),
    "slow to collate": Case(_each(on.nothing, 4), {"collate_fn": on.slow_rows}),
    "slow to begin": Case(_each(on.nothing, 4), {"worker_init_fn": on.slow_to_begin}),
    "a loop that is away for seconds": Case(_each(on.sleep(0.05)), loop_nap_s=3.0),
    "a loop that is away for long": Case(lambda: on.Slabs(on.nothing, 64), loop_nap_s=11.0),
    "busy siblings": Case(_each(on.compute(0.1), 40), busy=6),
    "idle priority beside busy ones": Case(
        _each(on.multiply, 4), {"worker_init_fn": on.humble}, _STILL, busy=4
    ),
    "stopped for 5 s": Case(_each(on.compute(0.2), 60), stopped_s=5.0),
    "stopped for 8 s": Case(_each(on.compute(0.2), 60), stopped_s=8.0),
    "stopped for 8 s in a long one": Case(_each(on.use(2.0), 6), may_say=_MOVES, stopped_s=8.0),
    "stopped for 9 s in sleep": Case(_each(on.sleep(0.5), 24), stopped_s=9.0),
    "stopped for 15 s": Case(_each(on.compute(0.2), 60), stopped_s=15.0),
}


@dataclass
class Seen:
    """What was seen of one case."""

    problems: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    samples: int = 0


def run(seed: int, seconds: float, only: int | None) -> int:
    """Run cases in an order drawn from the seed, until the time is over; 1 if one was disturbed."""
    rng, began = random.Random(seed), time.monotonic()
    names = list(CASES)
    done: Counter[str] = Counter()
    samples = reports = wrong = 0
    print(f"healthy: seed {seed}, {seconds / 60:g} minutes, {len(names)} cases", flush=True)
    while only is not None or time.monotonic() - began < seconds:
        order = rng.sample(names, len(names)) if only is None else [names[only]]
        for name in order:
            if only is None and time.monotonic() - began > seconds:
                break
            drawn = draw(rng)
            seen = watch_stopped(name) if CASES[name].stopped_s else watch(name, drawn)
            done[name] += 1
            samples += seen.samples
            reports += len(seen.reports)
            wrong += bool(seen.problems)
            passed_s = time.monotonic() - began
            print(f"{passed_s:5.0f} s: {name}: {'WRONG' if seen.problems else 'well'}", flush=True)
            for line in seen.problems + (seen.reports if only is not None else []):
                print(f"    {line}   (--only {names.index(name)}, {drawn})", flush=True)
        if only is not None:
            break
    print(
        f"\n{done.total()} runs of {len(done)} cases, {samples} samples in"
        f" {(time.monotonic() - began) / 60:.1f} minutes: {reports} rightful reports,"
        f" {wrong} runs with a false report, a replaced worker or a wrong batch (seed {seed})"
    )
    return 1 if wrong else 0


def draw(rng: random.Random) -> dict[str, Any]:
    """Draw what all cases have in common."""
    return {
        "num_workers": rng.randint(2, 4),
        "persistent_workers": rng.random() < 0.5,
        "beside": rng.random() < 0.3,
        "in_order": rng.random() < 0.7,
    }


def watch(name: str, drawn: dict[str, Any]) -> Seen:
    """Run one case twice over, and listen."""
    case, seen = CASES[name], Seen()
    belongings = judge.Belongings()
    dataset = case.make()
    arguments = {"batch_size": 2} | {k: v for k, v in drawn.items() if k != "beside"}
    beside = drawn["beside"] and not isinstance(dataset, on.Sharing)  # which can only be inherited
    with (
        listening() as ear,
        warnings.catch_warnings(),
        another_thread(beside),
        busy_siblings(case.busy),
    ):
        warnings.simplefilter("ignore")
        loader: DataLoader[Any] = DataLoader(dataset, **(arguments | case.arguments))
        try:
            _loop(case, loader, seen)
        except Frozen:
            seen.problems.append(f"no batch came for {FROZEN_S:g} s")
        except Exception as error:
            seen.problems.append(f"{type(error).__name__}: {error}")
        seen.problems += [f"a fault: {fault}" for fault in loader.faults]
        del loader
    _listen(case, ear.lines, seen)
    if isinstance(dataset, on.Sharing):
        dataset.close()
    del dataset
    seen.problems += [f"left behind: {each}" for each in belongings.left()]
    return seen


def _loop(case: Case, loader: DataLoader[Any], seen: Seen) -> None:
    got: list[int] = []
    for place, batch in enumerate(_bounded_batches(loader)):
        got += [int(number.reshape(-1)[0]) for number in batch]
        if case.loop_nap_s and place < 3:
            time.sleep(case.loop_nap_s)
    seen.samples += len(got)
    if sorted(got) != list(range(len(got))) or not got:
        seen.problems.append(f"wrong content: {got[:20]}")


def _bounded_batches(loader: DataLoader[Any]) -> Iterator[Any]:
    with bounded(FROZEN_S):
        iterator = iter(loader)
    while True:  # bounded by the loader, and each step by time
        with bounded(FROZEN_S):
            try:
                batch = next(iterator)
            except StopIteration:
                return
        yield batch


def _listen(case: Case, lines: list[str], seen: Seen) -> None:
    """Tell rightful reports from false ones."""
    for line in lines:
        told = REPORT.search(line)
        if told is None:
            if "WARNING" in line:
                seen.problems.append(f"said: {line}")
        elif told[1] in case.may_say or (OF_START in line and told[1] in _MOVES):
            seen.reports.append(line)
        else:
            seen.problems.append(f"false report: {line}")


@contextlib.contextmanager
def busy_siblings(count: int) -> Iterator[None]:
    code = "import time; e = time.time() + 300\nwhile time.time() < e: sum(range(99999))"
    others = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def watch_stopped(name: str) -> Seen:
    """Run a case in a program of its own, and stop it in the middle, as a shell does by Ctrl-Z."""
    seen, case = Seen(), CASES[name]
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.healthy", name],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    assert program.stdout is not None
    try:
        if program.stdout.readline().strip() != "begun":
            seen.problems.append("its program did not begin")
            return seen
        time.sleep(1.5)
        os.killpg(program.pid, signal.SIGTSTP)
        time.sleep(case.stopped_s)
        os.killpg(program.pid, signal.SIGCONT)
        out, _ = program.communicate(timeout=FROZEN_S)
    except subprocess.TimeoutExpired:
        seen.problems.append(f"its program did not end in {FROZEN_S:g} s")
        return seen
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()
    for line in out.splitlines():
        kind, _, words = line.partition(": ")
        if kind == "samples":
            seen.samples += int(words)
        else:
            (seen.problems if kind == "problem" else seen.reports).append(words)
    if not seen.samples:
        seen.problems.append("nothing was loaded")
    return seen


def main() -> None:
    """Be the program that is stopped."""
    case, seen = CASES[sys.argv[1]], Seen()
    with listening() as ear:
        loader: DataLoader[Any] = DataLoader(case.make(), 2, num_workers=2, prefetch_factor=1)
        print("begun", flush=True)
        _loop(case, loader, seen)
        seen.problems += [f"a fault: {fault}" for fault in loader.faults]
    _listen(case, ear.lines, seen)
    print(f"samples: {seen.samples}")
    for line in seen.problems:
        print(f"problem: {line}")
    for line in seen.reports:
        print(f"report: {line}")


if __name__ == "__main__":
    main()
