"""The table: what happens when. The words that README and docs show, and what proves them.

`torch_shows` and `antifreeze_shows` are patterns for what the program of that name has to report
with each loader; "hangs" stands for a program that the watchdog had to end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import programs

HANGS = "hangs"


@dataclass(frozen=True, slots=True)
class Row:
    """One row: words for three columns, the program, and what it must show."""

    program: Callable[[Any], str]
    when: str
    torch: str
    antifreeze: str
    torch_shows: str
    antifreeze_shows: str
    in_readme: bool = False
    own_shm_bytes: int = 0  # a /dev/shm of its own, of this size

    @property
    def torch_bound_s(self) -> float:
        """Return how long torch's may take: a second is usual, what hangs would for ever."""
        return 5.0 if self.torch_shows == HANGS else 60.0

    @property
    def name(self) -> str:
        """Return the name of its program."""
        return self.program.__name__


ROWS = (
    Row(
        programs.batch_that_cannot_be_pickled,
        "a batch cannot be pickled (a generator, a lambda, a lock in it)",
        "hangs for ever",
        'an error that names `batch["later"]`, the samples and the worker',
        HANGS,
        r'then Caught TransportFailed .*batch\["later"\] is a generator.*\b9\b.*worker \d',
        in_readme=True,
    ),
    Row(
        programs.autograd,
        "a tensor in the batch belongs to an autograd graph",
        "hangs for ever",
        "is delivered, without its history, and says so",
        HANGS,
        r"^8 of 8 batches .*said: .*its autograd history stays in the worker",
    ),
    Row(
        programs.exception_that_cannot_be_pickled,
        "the dataset's exception cannot be pickled",
        "hangs for ever",
        "is raised, with its traceback and the sample's index",
        HANGS,
        r"then (RuntimeError: )?Caught Broken .*the header is cut off.*sample 9",
    ),
    Row(
        programs.worker_killed,
        "a worker is killed (out of memory, segfault)",
        "the epoch is lost",
        "the worker is replaced, with the sample and the cause named; its samples (of a map-style"
        " dataset) are loaded again, in order, each delivered once; one line says so",
        r"^[0-4] of 8 batches in [\d.]+ s, then \w+",
        r"^8 of 8 batches in [\d.]+ s; said: .*killed by signal.*sample 9 .*The worker is replaced",
        in_readme=True,
    ),
    Row(
        programs.sample_never_returns,
        "a sample never returns",
        "hangs for ever, silently",
        "within 10 s [one line](docs/stall-reports.md): the sample, the line of code, what the"
        " kernel says it waits for; a worker that is stuck is replaced after 5 minutes, a slow one"
        " is not; with `sample_timeout` either is, after so many seconds",
        HANGS,
        r"^after \d+ s said: .*sample 9 \(batch 4\) is stuck at programs\.py:\d+, in get",
        in_readme=True,
    ),
    Row(
        programs.sample_raises,
        "a sample raises",
        "`Caught ValueError in DataLoader worker process 0`",
        "the same line, the exception's own attributes, and which sample it was",
        r"^Caught ValueError in DataLoader worker process \d\. (?!.*sample).*: lost$",
        r"^Caught ValueError in DataLoader worker process \d\. .*sample 9 .*: 9\.jpg$",
        in_readme=True,
    ),
    Row(
        programs.broken_samples,
        "samples are broken",
        "the epoch is lost, or your own `try` in `__getitem__`",
        '[`on_error="replace"`](docs/policies.md) or `"skip"`, with a budget; crashes and hangs,'
        " too",
        r"^2 of 8 batches in [\d.]+ s, then Caught OSError",
        r"^8 of 8 batches .*2 skipped \(exception\): 5, 9\.",
        in_readme=True,
    ),
    Row(
        programs.stop_iteration,
        "`__getitem__` raises `StopIteration`",
        "the epoch ends early, silently",
        "an error",
        r"^4 of 8 batches in [\d.]+ s$",
        r"^4 of 8 batches in [\d.]+ s, then Caught RuntimeError .*sample 9",
        in_readme=True,
    ),
    Row(
        programs.sampler_raises,
        "the sampler raises",
        "batches already loaded are lost",
        "they are delivered first",
        r"^[0-4] of 8 batches in [\d.]+ s, then RuntimeError: the index file is cut off",
        r"^5 of 8 batches in [\d.]+ s, then RuntimeError: the index file is cut off",
    ),
    Row(
        programs.loop_left,
        "the loop is left while a worker is busy",
        "up to 5 s for each worker",
        "under half a second for all",
        r"left in (1\d|[5-9])\.\d+ s",
        r"left in [0-2]\.\d+ s",  # a machine may be busy
        in_readme=True,
    ),
    Row(
        programs.program_killed,
        "the main process is killed",
        "workers stay behind",
        "they go with it",
        r"^2 of 2 workers are left",
        r"^0 of 2 workers are left",
        in_readme=True,
    ),
    Row(
        programs.number_of_workers,
        "the number of workers changes, or one is replaced",
        "samples draw other random numbers",
        "the same seed gives the [same batches](docs/how-it-works.md#randomness), with 0 workers"
        " too",
        r"^4 different epochs",
        r"^1 different epochs",
        in_readme=True,
    ),
    Row(
        programs.file_of_the_parent,
        "workers read a file that was opened in `__init__`",
        "wrong bytes, silently",
        "each has a position of its own",
        r"^[1-9]\d* of 64 samples are wrong, and no error",
        r"^0 of 64 samples are wrong",
        in_readme=True,
    ),
    Row(
        programs.lock_held_at_the_start,
        "another thread holds a lock when the workers start",
        "they hang for ever",
        "they come from a [clean process](docs/how-it-works.md#clean-processes), and see what"
        " forked ones would",
        HANGS,
        r"^8 of 8 batches",
        in_readme=True,
    ),
    Row(
        programs.lambda_under_spawn,
        "a lambda in the dataset, under `spawn` or `forkserver`",
        "an error",
        "is sent; what cannot be is named: `dataset.readers[3]`",
        r"^0 of 8 batches in [\d.]+ s, then \w+: Can't (pickle|get) local object",
        r"^8 of 8 batches",
    ),
    Row(
        programs.stream_not_parted,
        "every worker yields the whole `IterableDataset`",
        "silently, every sample several times",
        "[one line](docs/migration.md#kept-and-said) that says so, with the remedy",
        r"^32 samples of 16, and not a word",
        r"^32 samples of 16; said: .*every sample comes 2 times an epoch.*get_worker_info",
    ),
    Row(
        programs.small_shared_memory,
        "`/dev/shm` is small (64 MB in Docker)",
        "an error, or hangs for ever",
        "plays no part",
        HANGS,
        r"^16 of 16 batches",
        own_shm_bytes=4 << 20,
    ),
    Row(
        programs.tiny_batches,
        "transport dominates (tensors in memory, tiny batches)",
        "slower than no workers at all",
        "several times faster than torch's workers: [figures](docs/benchmarks.md)",
        r"^1000 integers: [\d.]+ s with 2 workers",
        r"^1000 integers: [\d.]+ s with 2 workers",
        in_readme=True,
    ),
)
