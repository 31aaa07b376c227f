"""Scenario 13a: every sample opens the same large text file and reads up to its line.

What people report: "disk access is erratic with several workers; they fight for the one file, and
the operating system lets only one of them read".

What is true: nothing is fought for. Every `open` has an offset of its own, opening takes no lock,
and any number of processes read one file at once. What costs is the way to the line: sample
number n reads n lines that nobody wants before its own, so an epoch reads the file as often as half
the number of its lines, and twice the file takes four times as long. An index of where each line
begins, made once, takes that away: open, seek, read one line. So does `mmap`.

What to look at: the three rows, which differ in nothing but how a line is found, and what the
first and the last line of the file cost. Each line is compared, with both loaders.
"""

from __future__ import annotations

import mmap
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scenario import LOADERS, Outcomes, Report, Scenario, Verdict, count_warm, perform
from torch.utils.data import Dataset

READ_UP_TO, SEEK, MAPPED = "read up to the line", "seek to the line", "mmap"

LINES, LINES_QUICK = 1500, 600
NUMBERS_A_LINE = 60  # about 600 bytes
BATCH_SIZE = 16
NUM_WORKERS = 4
# Seeking is over so soon that one epoch would tell nothing.
EPOCHS = {READ_UP_TO: 1, SEEK: 5, MAPPED: 5}
LOOKS = 9


def line_of(index: int) -> str:
    """Return what line number `index` must hold: numbers, so that lines differ in length."""
    dice = random.Random(index)
    return " ".join(str(dice.randrange(10**9)) for _ in range(NUMBERS_A_LINE))


def make(folder: Path, quick: bool) -> None:
    """Write the file."""
    lines = (line_of(index) for index in range(LINES_QUICK if quick else LINES))
    (folder / "large.txt").write_text("".join(f"{line}\n" for line in lines))


class ReadUpTo(Dataset[tuple[int, str]]):
    """Open the file, read line after line up to the one that is asked for, close it."""

    def __init__(self, path: Path, length: int) -> None:
        self.path, self.length = path, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, str]:
        with open(self.path) as file:
            for number, line in enumerate(file):
                if number == index:
                    return index, line.rstrip("\n")
        raise IndexError(index)


class Seek(Dataset[tuple[int, str]]):
    """Know where each line begins; open the file, go there, read one line, close it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begins = [0]
        with open(path, "rb") as file:
            for line in file:
                self.begins.append(self.begins[-1] + len(line))

    def __len__(self) -> int:
        return len(self.begins) - 1

    def __getitem__(self, index: int) -> tuple[int, str]:
        with open(self.path, "rb") as file:
            file.seek(self.begins[index])
            return index, file.readline().decode().rstrip("\n")


class Mapped(Seek):
    """Know where each line begins; map the file once and take the bytes from memory.

    A mapping has no position to share: workers may inherit it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __getitem__(self, index: int) -> tuple[int, str]:
        begin, end = self.begins[index : index + 2]
        return index, self.bytes[begin : end - 1].decode()


def load(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Load every line in each of the three ways and compare it."""
    path = folder / "large.txt"
    expected = [line_of(index) for index in range(LINES_QUICK if quick else LINES)]
    ways: dict[str, Any] = {
        READ_UP_TO: ReadUpTo(path, len(expected)),
        SEEK: Seek(path),
        MAPPED: Mapped(path),
    }

    def is_right(index: int, line: str) -> bool:
        return line == expected[index]

    passes, facts = {}, {}
    for name, lines in ways.items():
        loader = loader_class(
            lines, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS, persistent_workers=True
        )
        passes[name] = count_warm(loader, 1 if quick else EPOCHS[name], is_right, len(expected))
        facts[f"{name}: first"] = microseconds(lines.__getitem__, 0)
        facts[f"{name}: last"] = microseconds(lines.__getitem__, len(expected) - 1)
    facts["epoch_bytes"] = sum(ways[SEEK].begins)
    facts["file_bytes"] = path.stat().st_size
    return Report(passes, facts)


def microseconds(work: Callable[[int], object], index: int) -> float:
    """Return what one sample usually costs in this process, without any loader."""
    times = []
    for _ in range(LOOKS):
        begin = time.perf_counter()
        work(index)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def judge(outcomes: Outcomes) -> Verdict:
    """Say what the way to the line costs; all is well if each line was right and nobody spoke."""
    findings = []
    for name in (READ_UP_TO, SEEK, MAPPED):
        first, last = (
            outcomes.fact("antifreeze", f"{name}: {which}").median for which in ("first", "last")
        )
        findings.append(f"{name}: the first line costs {first:,.0f} us, the last {last:,.0f} us")
    epoch, file = (
        outcomes.fact("antifreeze", f"{what}_bytes").median for what in ("epoch", "file")
    )
    findings.append(
        f"an epoch that reads up to each line reads {epoch / 1e9:.1f} GB of a file of "
        f"{file / 1e6:.1f} MB"
    )
    for loader in LOADERS:
        slow = outcomes.rate(loader, READ_UP_TO).median
        if slow:
            gain = outcomes.rate(loader, SEEK).median / slow
            findings.append(f"{loader}: seeking is {gain:.0f} times as fast")
    complaints = sum(outcome.stderr_bytes for outcome in outcomes.antifreeze)
    findings.append(f"antifreeze flags nothing: {complaints} bytes on stderr")
    ok = all(outcome.right for outcome in outcomes.torch + outcomes.antifreeze)
    return Verdict(ok and complaints == 0, tuple(findings))


SCENARIO = Scenario(
    number="13a",
    title="every call opens the same large file",
    make=make,
    load=load,
    judge=judge,
)

if __name__ == "__main__":
    sys.exit(perform(SCENARIO))
