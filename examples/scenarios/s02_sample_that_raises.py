"""Scenario 2: a sample that raises; or catches what it raises, prints it and returns None.

What people report: "one bad record and the epoch is over"; or, after a `try` in __getitem__,
"TypeError: default_collate ... found NoneType" without a word about which record it was; or, after
a collate function that drops None, nothing at all.

What is true: an exception in __getitem__ does not freeze torch's loader. It is raised in the loop,
with the worker and the line, but without the sample, and a `for` loop is over then. Returning None
moves the error to the collate function, where nobody knows the sample any more. Dropping None
there makes batches shorter and the epoch smaller, and the only trace is what workers have printed.

Ours name the sample, its worker and its line, and take a policy: raise, retry, replace, skip. A
None that the default collate would have to take is that sample's fault. All faults of all workers
are in one list, and in one file if it is asked for.

What to look at: the samples that are missing without anybody having said so.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scenario import LOADERS, Outcomes, Pass, Report, Scenario, Verdict, perform
from torch.utils.data import Dataset, default_collate

LEFT_OUT, REPLACED = "left out", "retry, then replace"

RECORDS = 400
BROKEN = tuple(range(37, RECORDS, 60))
FLAKY = 200  # fails when it is first read
BATCH_SIZE = 8
BATCHES = RECORDS // BATCH_SIZE
NUM_WORKERS = 2

Sample = tuple[int, float]


def make(folder: Path, quick: bool) -> None:
    """Write the records, one a line, some of them without a number."""
    lines = ["n/a" if index in BROKEN else f"{index / 8}" for index in range(RECORDS)]
    (folder / "records.txt").write_text("\n".join(lines))


class Records(Dataset[Sample]):
    """Read one number a record."""

    def __init__(self, folder: Path) -> None:
        self.lines = (folder / "records.txt").read_text().splitlines()
        self.was_read = Path(tempfile.mkdtemp(dir=folder)) / "flaky"

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> Sample:
        if index == FLAKY and not self.was_read.exists():
            self.was_read.touch()
            raise TimeoutError("the server was too busy")
        return index, float(self.lines[index])


class Careful(Records):
    """The same with a remedy that is often seen: catch everything, print it, return None."""

    def __getitem__(self, index: int) -> Any:
        try:
            return super().__getitem__(index)
        except Exception as error:
            print(f"a worker could not read a record: {error}")
            return None  # antifreeze: allow[none-for-a-failed-sample] what this is about


def drop_none(samples: Sequence[Sample | None]) -> Any:
    """Collate what is left when the samples that are None are taken out."""
    return default_collate([sample for sample in samples if sample is not None])


def load(loader_class: type[Any], folder: Path, quick: bool) -> Report:
    """Meet the broken records in every way; say what was named, and what came."""

    def make_loader(records: Records, **options: Any) -> Any:
        return loader_class(records, BATCH_SIZE, num_workers=NUM_WORKERS, **options)

    facts = first_error("raised", make_loader(Records(folder)))
    facts |= first_error("none", make_loader(Careful(folder)))
    if loader_class.__module__.startswith("torch"):
        dropping = make_loader(Careful(folder), collate_fn=drop_none)
        return Report({LEFT_OUT: deliver(dropping, lambda index: index)}, facts)

    from antifreeze import policies

    log = folder / "faults.jsonl"
    log.unlink(missing_ok=True)
    skipping = make_loader(
        Records(folder), on_error=policies.skipping(retries=1), fault_log=str(log)
    )
    replacing = make_loader(Records(folder), on_error=policies.replacing(retries=1))
    none = make_loader(Careful(folder), on_error="skip")
    passes = {
        LEFT_OUT: deliver(skipping, lambda index: index),
        REPLACED: deliver(replacing, lambda index: index + (index in BROKEN)),
        "None, left out": deliver(none, lambda index: index),
    }
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    facts["log: faults"] = len(logged)
    facts["log: the same as loader.faults"] = [one["index"] for one in logged] == [
        fault.index for fault in skipping.faults
    ]
    facts["log: workers"] = len({one["worker"] for one in logged})
    facts["log: lines of code"] = all(Path(__file__).name in one["traceback"] for one in logged)
    facts["retried"] = sum(fault.verdict == "retried" for fault in skipping.faults)
    facts["none: kind"] = {fault.kind for fault in none.faults} == {"none"}
    return Report(passes, facts)


def first_error(name: str, loader: Any) -> dict[str, float]:
    """Go on until the first error; note what it names."""
    batches = 0
    try:
        for _ in loader:
            batches += 1
    except Exception as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        return {
            f"{name}: batches": batches,
            f"{name}: sample": f"sample {BROKEN[0]}" in text,
            f"{name}: worker": "worker process" in text,
            f"{name}: line": f'{Path(__file__).name}", line' in text,
        }
    return {f"{name}: batches": batches}


def deliver(loader: Any, expected: Callable[[int], int]) -> Pass:
    """Take an epoch; what did not come counts as missing unless the loader's own list has it."""
    begin = time.perf_counter()
    came = [sample for batch in loader for sample in _rows(batch)]
    seconds = time.perf_counter() - begin
    faults = getattr(loader, "faults", ())
    named = {fault.index for fault in faults if fault.verdict == "skipped"}
    due = [expected(index) for index in range(RECORDS) if index not in named]
    missing = len(set(due) - {index for index, _ in came})
    places = [index for index, _ in came] == due or missing > 0
    wrong = sum(value != index / 8 for index, value in came) + (not places)
    return Pass(len(came), wrong, missing, seconds)


def _rows(batch: Sequence[Any]) -> Iterator[Sample]:
    indices, values = batch
    return zip(indices.tolist(), values.tolist(), strict=True)


def judge(outcomes: Outcomes) -> Verdict:
    """Say what was named and what is missing; all is well if ours names everything."""

    def fact(loader: str, name: str) -> float:
        return outcomes.fact(loader, name).median

    findings = []
    for loader in LOADERS:
        for name, what in (("raised", "a sample that raises"), ("none", "a sample that is None")):
            named = [one for one in ("sample", "worker", "line") if fact(loader, f"{name}: {one}")]
            after = f"{fact(loader, f'{name}: batches'):.0f} of {BATCHES} batches"
            said = ", ".join(named) or "nothing"
            findings.append(f"{loader}, {what}: an error after {after}; it names {said}")
    for loader in LOADERS:
        (*_, last) = getattr(outcomes, loader)
        done = last.report.passes.get(LEFT_OUT, Pass(0, 0, RECORDS, 1))
        untold = f"{done.missing} missing that nobody names"
        findings.append(f"{loader}, {LEFT_OUT}: {done.samples} of {RECORDS} samples, {untold}")
        if whole := last.report.passes.get(REPLACED):
            findings.append(f"{loader}, {REPLACED}: {whole.samples} of {RECORDS} samples")
    logged, workers = fact("antifreeze", "log: faults"), fact("antifreeze", "log: workers")
    findings.append(
        f"antifreeze, fault_log: {logged:.0f} lines from {workers:.0f} workers, each with sample,"
        f" verdict and traceback; {fact('antifreeze', 'retried'):.0f} of them tries that were"
        " repeated"
    )
    # Two tries for each broken record, one for the flaky one, which came when it was tried again.
    tries = 2 * len(BROKEN) + 1
    ok = all(outcome.right for outcome in outcomes.antifreeze) and logged == tries
    wanted = ("raised: sample", "raised: worker", "raised: line", "none: sample", "none: kind")
    wanted += ("log: the same as loader.faults", "log: lines of code")
    return Verdict(ok and all(fact("antifreeze", one) for one in wanted), tuple(findings))


SCENARIO = Scenario(
    number=2,
    title="a sample that raises, or returns None",
    make=make,
    load=load,
    judge=judge,
    rounds=1,
)

if __name__ == "__main__":
    sys.exit(perform(SCENARIO))
