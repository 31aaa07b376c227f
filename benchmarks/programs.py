"""Programs as people have them: every moment, two rates and the memory, beside torch's loader.

Each round starts every program anew, twice: with torch's loader and with ours. All of them are
there at once and take each step in turns (real_program.py is what they do).
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
from contenders import BY_KEY, Contender
from lanes import ANSWER_BOUND_S, Lane, LaneFailed, family
from real_program import ARRAY_BYTES, PROGRAMS, Program

ROUNDS, ROUNDS_QUICK = 7, 2
SIDES = ("antifreeze", "torch")
# Eight programs import torch at the same time.
START_BOUND_S = 240.0
_SCRIPT = Path(__file__).with_name("real_program.py")


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that is measured of a program."""

    key: str
    what: str
    kind: Literal["moment", "rate", "memory"]


# In the order in which a program takes its steps.
MEASURES = (
    Measure("first", "first batch of a new loader", "moment"),
    Measure("next", "next epoch's first batch", "moment"),
    Measure("break", "first batch after a `break`", "moment"),
    Measure("replaced", "killed worker to a batch of its successor", "moment"),
    Measure("images", "images a second", "rate"),
    Measure("memory", "memory of all processes, mid-epoch", "memory"),
    Measure("rows", "rows a second", "rate"),
)

PSS = "pss"  # that part of the memory alone


@dataclass(slots=True)
class ProgramFigures:
    """What one program needed with one loader: a number a round, None where it failed."""

    contender: str
    values: dict[str, list[float | None]] = field(default_factory=dict)
    accelerator: str = ""
    error: str = ""

    def known(self, measure: str) -> list[float]:
        """Return what was measured, round by round."""
        return [value for value in self.values.get(measure, ()) if value is not None]

    def median(self, measure: str) -> float | None:
        """Return the median, or None where there is no figure."""
        known = self.known(measure)
        return statistics.median(known) if known else None


def ratios(one: ProgramFigures, other: ProgramFigures, measure: str) -> list[float]:
    """Divide round by round; rounds that one of the two did not finish are left out."""
    pairs = zip(one.values.get(measure, ()), other.values.get(measure, ()), strict=False)
    return [mine / others for mine, others in pairs if mine and others]


def measure(contenders: Sequence[Contender], quick: bool) -> dict[str, list[ProgramFigures]]:
    """Run all programs with both loaders, in turns. Who fails in a round drops out of it."""
    chosen = [side for side in SIDES if BY_KEY[side] in contenders]
    sizes = {each.key: 2 * len(chosen) * ARRAY_BYTES * each.is_large for each in PROGRAMS}
    figures = {
        program.key: [
            ProgramFigures(side, {key: [] for key in (*(m.key for m in MEASURES), PSS)})
            for side in chosen
        ]
        for program in PROGRAMS
    }
    able = [each for each in PROGRAMS if psutil.virtual_memory().available > sizes[each.key]]
    for program in PROGRAMS:
        if program not in able:
            for each in figures[program.key]:
                each.error = "not enough memory to measure this"
    for number in range(ROUNDS_QUICK if quick else ROUNDS):
        _round([(each, one) for each in able for one in figures[each.key]], backwards=number % 2)
    return figures


def _round(pairs: list[tuple[Program, ProgramFigures]], *, backwards: int) -> None:
    with tempfile.TemporaryDirectory(prefix="antifreeze-bench-") as folder:
        lanes: dict[int, Lane] = {}
        try:
            for at, (program, one) in enumerate(pairs):
                lanes[at] = Lane((_SCRIPT, program.key, one.contender, f"{folder}/{at}"))
                lanes[at].post()
            for at, (_, one) in enumerate(pairs):
                one.accelerator = _answer(lanes, at, one, START_BOUND_S) or one.accelerator
            for each in MEASURES:
                for at in reversed(range(len(pairs))) if backwards else range(len(pairs)):
                    if at in lanes:
                        lanes[at].post()
                    one = pairs[at][1]
                    answer = _answer(lanes, at, one)
                    if each.kind == "memory":
                        held = memory(lanes[at].pid) if at in lanes else None
                        one.values[PSS].append(held and held.pss)
                        answer = held and held.total
                    one.values[each.key].append(answer)
        finally:
            for lane in lanes.values():
                lane.hang_up()
            for lane in lanes.values():
                lane.end()


def _answer(
    lanes: dict[int, Lane], at: int, one: ProgramFigures, bound_s: float = ANSWER_BOUND_S
) -> Any:
    if at not in lanes:
        return None
    try:
        answer = lanes[at].answer(bound_s)
        lanes[at].settle()
        return answer
    except LaneFailed as failure:
        one.error = str(failure)
        lanes.pop(at).end()
        return None


@dataclass(frozen=True, slots=True)
class Memory:
    """What a program and all its descendants hold, in bytes."""

    pss: float  # their proportional shares of what they have mapped
    in_transit: float  # shared memory that is on its way: some process has it open, none mapped

    @property
    def total(self) -> float:
        """Return both together."""
        return self.pss + self.in_transit


def memory(pid: int) -> Memory:
    """Look at the memory of a program.

    Pages of files, which are mostly torch's code, are counted once: the share of them that a
    process has depends on how many programs of the benchmark are there. A batch that torch's
    worker has sent lies in shared memory that nobody has mapped before the loop takes it.
    """
    members = {each.pid for each in family(pid)}
    members |= {each for each in psutil.pids() if _session(each) == pid}
    mapped_kib, files_kib = 0, [0]
    for each in members:
        with contextlib.suppress(OSError):  # it has ended
            rollup = _fields(Path(f"/proc/{each}/smaps_rollup"))
            status = _fields(Path(f"/proc/{each}/status"))
            mapped_kib += rollup.get("Pss", 0) - rollup.get("Pss_File", 0)
            files_kib.append(status.get("RssFile", 0))
    return Memory(float(mapped_kib + max(files_kib)) * 1024, float(_unmapped_bytes(members)))


def _unmapped_bytes(members: set[int]) -> int:
    """Add up the shared memory that members have open, each once, and none has mapped."""
    mapped, opened = set(), {}
    for each in members:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{each}/maps").read_text().splitlines():
                mapped.add(int(line.split(None, 5)[4]))
            for handle in Path(f"/proc/{each}/fd").iterdir():
                if os.readlink(handle).startswith(("/dev/shm/", "/memfd:")):
                    found = handle.stat()
                    opened[found.st_ino] = found.st_blocks * 512
    return sum(size for inode, size in opened.items() if inode not in mapped)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _fields(file: Path) -> dict[str, int]:
    """Read the lines `Name:   123 kB` of a file of /proc."""
    found = {}
    for line in file.read_text().splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith(" kB"):
            found[name] = int(rest.split()[0])
    return found
