"""Scenario 14: thousands of small text files, one a sample, listed with os.listdir.

What people report: "disk access is erratic with several workers, so I gave every sample a file of
its own; now it works, but it is slow", and, with several machines, "the same epoch differs".

What is true: one file a sample is fine, and so would be one file for all. Nothing contends for a
"handle"; what costs is opening, reading a few hundred bytes and closing, thousands of times. The
trap is elsewhere: `os.listdir` gives the names in whatever order the file system keeps them. Two
ranks that each list their own copy may number the samples differently; then each takes "its" half
of different lists, and some samples are seen twice and others never. `sorted()` is the cure.

What to look at: the share of a sample's time that goes to open, read and close; the same bytes
taken by offset from one file; and what the two listings do to an epoch of two ranks.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from scenario import Outcomes, Report, Scenario, Verdict, count_warm, perform
from torch.utils.data import Dataset

FILES, FILES_QUICK = 3000, 300
NUMBERS_A_FILE = 24
BATCH_SIZE = 32
NUM_WORKERS = 4
EPOCHS = 2
RANKS = 2
SAMPLES = "a file a sample"


def text_of(index: int) -> str:
    """Return what file number `index` must hold: a line of numbers, of varying length."""
    dice = random.Random(index)
    return " ".join(str(dice.randrange(10**9)) for _ in range(NUMBERS_A_FILE)) + "\n"


def make(folder: Path, quick: bool) -> None:
    """Write the files, one a sample, and the same text once more in one file."""
    texts = [text_of(index) for index in range(FILES_QUICK if quick else FILES)]
    (folder / "samples").mkdir()
    for index, text in enumerate(texts):
        (folder / "samples" / f"{index:05d}.txt").write_text(text)
    (folder / "all.txt").write_text("".join(texts))


class TextFiles(Dataset[tuple[int, str, torch.Tensor]]):
    """A text file a sample, read and parsed when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.paths = [str(folder / name) for name in sorted(os.listdir(folder))]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[int, str, torch.Tensor]:
        with open(self.paths[index]) as file:
            text = file.read()
        return index, text, parse(text)


def parse(text: str) -> torch.Tensor:
    """Turn a line of numbers into a tensor."""
    return torch.tensor([int(word) for word in text.split()])


def load(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Load all files with several workers; then see where the time goes, and what listing does."""
    files = TextFiles(folder / "samples")
    expected = [text_of(index) for index in range(len(files))]

    def is_right(index: int, text: str, numbers: torch.Tensor) -> bool:
        return text == expected[index] and torch.equal(numbers, parse(expected[index]))

    loader = loader_class(
        files, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS, persistent_workers=True
    )
    passes = {SAMPLES: count_warm(loader, 1 if quick else EPOCHS, is_right, len(files))}
    return Report(passes, where_the_time_goes(folder, files) | epoch_of_two_ranks(len(files)))


def where_the_time_goes(folder: Path, files: TextFiles) -> dict[str, float]:
    """Time the parts of a sample in this process, without any loader: microseconds a sample."""
    offsets, end = [], 0
    for path in files.paths:
        size = os.path.getsize(path)
        offsets.append((end, size))
        end += size

    def from_own_file(index: int) -> str:
        with open(files.paths[index]) as file:
            return file.read()

    with open(folder / "all.txt", "rb") as whole:

        def from_one_file(index: int) -> str:
            begin, size = offsets[index]
            return os.pread(whole.fileno(), size, begin).decode()

        texts = [from_own_file(index) for index in range(len(files))]
        return {
            "own_file_us": microseconds(from_own_file, len(files)),
            "one_file_us": microseconds(from_one_file, len(files)),
            "parse_us": microseconds(lambda index: parse(texts[index]), len(files)),
        }


def microseconds(work: Callable[[int], object], times: int) -> float:
    """Return the mean time of one call."""
    begin = time.perf_counter()
    for index in range(times):
        work(index)
    return (time.perf_counter() - begin) / times * 1e6


def epoch_of_two_ranks(length: int) -> dict[str, float]:
    """Let two ranks list a copy of the same names each, unsorted and sorted; count the damage.

    The second copy is made in another order, and in memory if there is room: two machines do not
    share a file system either.
    """
    names = [f"{index:05d}.txt" for index in range(length)]
    shuffled = random.Random(0).sample(names, length)
    elsewhere = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory(dir=elsewhere) as other,
    ):
        for folder, order in ((first, names), (other, shuffled)):
            for name in order:
                Path(folder, name).touch()
        listings = [os.listdir(first), os.listdir(other)]
    unsorted_never, unsorted_twice = damage(listings)
    sorted_never, sorted_twice = damage([sorted(listing) for listing in listings])
    return {
        "unsorted_never": unsorted_never,
        "unsorted_twice": unsorted_twice,
        "sorted_never": sorted_never,
        "sorted_twice": sorted_twice,
    }


def damage(listings: list[list[str]]) -> tuple[int, int]:
    """Give rank r every RANKS-th name of its own listing; count names never seen, seen twice."""
    seen = Counter(name for rank in range(RANKS) for name in listings[rank][rank::RANKS])
    never = sum(1 for name in listings[0] if name not in seen)
    return never, sum(1 for times in seen.values() if times > 1)


def judge(outcomes: Outcomes) -> Verdict:
    """Say where the time goes and what listing does; all is well if each sample was right."""
    own, one, parsing = (
        outcomes.fact("antifreeze", name).median
        for name in ("own_file_us", "one_file_us", "parse_us")
    )
    never = outcomes.fact("antifreeze", "unsorted_never").high
    twice = outcomes.fact("antifreeze", "unsorted_twice").high
    sorted_damage = outcomes.fact("antifreeze", "sorted_never").high
    findings = [
        f"open, read and close: {own:.0f} us of {own + parsing:.0f} us a sample; "
        f"parsing: {parsing:.0f} us",
        f"the same bytes by offset from one file: {one:.0f} us",
        f"two ranks with unsorted listings: {never:.0f} samples never seen, {twice:.0f} seen twice",
        f"two ranks with sorted listings: {sorted_damage:.0f} samples never seen",
    ]
    ok = all(outcome.right for outcome in outcomes.torch + outcomes.antifreeze)
    return Verdict(ok and sorted_damage == 0, tuple(findings))


SCENARIO = Scenario(
    number=14,
    title="one file a sample, thousands of files",
    make=make,
    load=load,
    judge=judge,
)

if __name__ == "__main__":
    sys.exit(perform(SCENARIO))
