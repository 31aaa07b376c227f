"""Scenario 13b: a file opened once, in __init__, and read by all workers.

What people report: "now and then a sample is garbage, never the same one, and only with workers";
with archives, "BadZipFile, but the archive is fine".

What is true: a forked worker inherits the open file, and with it the position, which belongs to
the open file and not to the process. A worker seeks, another one seeks, the first one reads: bytes
of another sample, of the right length and type, and no error. The less happens between seeking
and reading the rarer it is, so it passes tests and spoils a thousandth of the data for months;
where a sample is read in pieces, with work in between, it happens far more often. An archive with
checksums at least fails. A file that each worker opens for itself is always right.

Ours give every worker a position of its own in each regular file that it inherits and that is
open for reading only. The dataset stays as it is.

What to look at: the wrong samples, by way of reading. All of them come without any error.
"""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from scenario import LOADERS, Outcomes, Report, Scenario, Verdict, count, perform
from torch.utils.data import Dataset

ONCE, PIECES, OWN, ARCHIVE = "one read", "in pieces", "own handle", "zip archive"
FAILED = "zip archive: failed"

SAMPLE_BYTES = 64 * 1024
SAMPLES, SAMPLES_QUICK = 256, 128
PIECE_BYTES = 8 * 1024
BATCH_SIZE = 4
NUM_WORKERS = 4
# One read goes wrong so rarely that it takes many.
EPOCHS = {ONCE: 6, PIECES: 2, OWN: 1, ARCHIVE: 1}


def content(index: int) -> bytes:
    """Return the bytes of sample number `index`."""
    return random.Random(index).randbytes(SAMPLE_BYTES)


def make(folder: Path, quick: bool) -> None:
    """Write the samples one after the other into a file, and the same ones into an archive."""
    with open(folder / "samples.bin", "wb") as file, ZipFile(folder / "samples.zip", "w") as zipped:
        for index in range(SAMPLES_QUICK if quick else SAMPLES):
            file.write(content(index))
            zipped.writestr(str(index), content(index))


class Samples(Dataset[tuple[int, torch.Tensor]]):
    """Samples of one size in one file, which is open from the beginning."""

    def __init__(self, path: Path) -> None:
        self.length = path.stat().st_size // SAMPLE_BYTES
        self.path = path
        self.file = open(path, "rb")  # noqa: SIM115 - what this is about

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        self.file.seek(index * SAMPLE_BYTES)
        return index, pixels(self.file.read(SAMPLE_BYTES))


class InPieces(Samples):
    """The same samples, read and converted piece by piece, as decoders do."""

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        self.file.seek(index * SAMPLE_BYTES)
        pieces = [pixels(self.file.read(PIECE_BYTES)) for _ in range(0, SAMPLE_BYTES, PIECE_BYTES)]
        return index, torch.cat(pieces)


class OwnHandle(InPieces):
    """The same once more, from a file that each worker opens when it first needs it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.file.close()

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        if self.file.closed:
            self.file = open(self.path, "rb")  # noqa: SIM115 - for the worker's life
        return super().__getitem__(index)


class Archive(Samples):
    """The same samples from an archive, which is open from the beginning."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.zipped = ZipFile(self.file)
        self.length = len(self.zipped.namelist())

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, pixels(self.zipped.read(str(index)))


def pixels(data: bytes) -> torch.Tensor:
    """Turn bytes into numbers from 0 to 1; beyond the end of the file there are zeros."""
    return torch.frombuffer(bytearray(data or bytes(PIECE_BYTES)), dtype=torch.uint8) / 255


def load(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Read with every kind of handle and compare all numbers."""
    ways: dict[str, Samples] = {
        ONCE: Samples(folder / "samples.bin"),
        PIECES: InPieces(folder / "samples.bin"),
        OWN: OwnHandle(folder / "samples.bin"),
        ARCHIVE: Archive(folder / "samples.zip"),
    }
    expected = [pixels(content(index)) for index in range(SAMPLES_QUICK if quick else SAMPLES)]

    def is_right(index: int, data: torch.Tensor) -> bool:
        return torch.equal(data, expected[index])

    passes, facts = {}, {FAILED: 0.0}
    for name, samples in ways.items():
        loader = loader_class(
            samples, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS, persistent_workers=True
        )
        try:
            done = count(loader, 1 if quick else EPOCHS[name], is_right, len(expected))
        except (BadZipFile, EOFError, struct.error):
            if name != ARCHIVE:
                raise
            facts[FAILED] = 1.0
            continue
        passes[name] = done
        facts[f"{name}: wrong"] = done.wrong
        facts[f"{name}: samples"] = done.samples
    return Report(passes, facts)


def judge(outcomes: Outcomes) -> Verdict:
    """Count the wrong samples by way of reading; all is well if ours has none and no error."""
    findings = []
    for loader in LOADERS:
        said = []
        for name in (ONCE, PIECES, OWN):
            wrong, samples = (
                outcomes.fact(loader, f"{name}: {what}").median for what in ("wrong", "samples")
            )
            said.append(f"{name} {wrong:.0f} of {samples:.0f}")
        findings.append(f"{loader}, wrong samples without any error: {', '.join(said)}")
        broken = [outcome.report.facts.get(FAILED, 0) for outcome in getattr(outcomes, loader)]
        findings.append(
            f"{loader}, {ARCHIVE}: an error in {sum(broken):.0f} of {len(broken)} rounds"
        )
    ok = all(outcome.right for outcome in outcomes.antifreeze)
    return Verdict(ok and not outcomes.fact("antifreeze", FAILED).high, tuple(findings))


SCENARIO = Scenario(
    number="13b",
    title="a file opened before the workers, read by all",
    make=make,
    load=load,
    judge=judge,
)

if __name__ == "__main__":
    sys.exit(perform(SCENARIO))
