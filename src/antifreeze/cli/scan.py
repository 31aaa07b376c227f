"""`antifreeze scan package.module:dataset`: load every sample once, and write down the bad ones.

Each sample is loaded in a worker, under supervision: one that raises, is None, crashes or hangs its
worker costs itself and nobody else. The file that it writes is what `DataLoader(quarantine=...)`
takes.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .._core.messages import record
from ..policies import Budget, skipping

BATCH = 16  # samples a message
SHOWN = 20  # bad samples in the table
TIMEOUT_S = 60.0  # for one sample; people who scan want to be done some day
ERRORS = 100  # batches that are lost as a whole
RETRIES = 1  # a network that fails once is no bad sample


_BATCH = re.compile(r" \(batch \d+(: samples \[[^\]]*\])?\)")


@record
class Scan:
    """What came of it."""

    name: str
    length: int
    scanned: int
    bad: list[dict[str, Any]]
    complete: bool

    def as_data(self) -> dict[str, Any]:
        return {
            "dataset": self.name,
            "length": self.length,
            "scanned": self.scanned,
            "complete": self.complete,
            "bad": self.bad,
        }


class Once:
    """A dataset of which only the loading counts: what it gives stays in the worker."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> int:
        if self.dataset[index] is None:
            raise ValueError(f"sample {index} is None")
        return index


def add_to(verbs: Any) -> None:
    verb = verbs.add_parser(
        "scan",
        help="load every sample of a dataset once; write down the bad ones",
        description="Load every sample of a map-style dataset once, in workers; write down those"
        " that raise, are None, or crash or hang their worker.",
    )
    verb.add_argument(
        "dataset", help="package.module:name or path/to/file.py:name; a function is called"
    )
    verb.add_argument("-o", "--output", default="quarantine.json", help="(%(default)s)")
    verb.add_argument("-w", "--workers", type=int, default=len(os.sched_getaffinity(0)))
    verb.add_argument(
        "--timeout", type=float, default=TIMEOUT_S, help="seconds for a sample (%(default)g)"
    )
    verb.add_argument("--json", action="store_true", help="the result as JSON, too, on stdout")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    logging.getLogger("antifreeze").setLevel(logging.ERROR)  # the table says it all
    try:
        if arguments.workers < 1:
            raise ValueError(f"a scan needs a worker, not {arguments.workers}")
        dataset = find(arguments.dataset)
        length = len(dataset)
        with open(arguments.output, "a"):  # now, and not after hours
            pass
    except Exception as error:
        print(f"antifreeze scan: {arguments.dataset}: {_said(error)}", file=sys.stderr)
        return 2
    with _progress(length) as advance:
        result = scan(
            dataset, arguments.dataset, arguments.workers, arguments.timeout, advance=advance
        )
    Path(arguments.output).write_text(json.dumps(result.as_data(), indent=1) + "\n")
    if arguments.json:
        print(json.dumps(result.as_data(), indent=2))
    else:
        show(result, arguments.output)
    return 0 if result.complete and not result.bad else 1


def find(name: str) -> Any:
    """Give the dataset of a name; if it is a function or a class, what that gives."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise ValueError("name it as package.module:name or path/to/file.py:name")
    sys.path.insert(0, os.getcwd())
    module = _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    found: Any = module
    for step in attribute.split("."):
        found = getattr(found, step)
    if isinstance(found, type) or (callable(found) and not hasattr(found, "__getitem__")):
        found = found()
    if not hasattr(found, "__getitem__") or not hasattr(found, "__len__"):
        raise TypeError(f"a {type(found).__name__} has no samples to be asked for by index")
    return found


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise FileNotFoundError(f"there is no {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module


def scan(
    dataset: Any,
    name: str,
    workers: int,
    timeout_s: float,
    *,
    advance: Callable[[int, int], None] = lambda done, bad: None,
) -> Scan:
    """Load every sample once. Ctrl-C ends it early; what was found by then is kept."""
    from ..loader import DataLoader

    policy = skipping(retries=RETRIES, budget=Budget(share=1.0, window=len(dataset) + 1))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "faults.jsonl"
        loader: DataLoader[int] = DataLoader(
            Once(dataset),  # type: ignore[arg-type]
            batch_size=BATCH,
            num_workers=workers,
            collate_fn=len,
            on_error=policy,
            sample_timeout=timeout_s,
            fault_log=log,
        )
        result = Scan(name, len(dataset), 0, [], complete=False)
        try:
            for done in _batches(iter(loader), len(dataset)):
                result.scanned = done
                advance(done, len({f.index for f in loader.faults if f.verdict == "skipped"}))
            result.complete = True
        except KeyboardInterrupt:
            print("interrupted: what was found so far is kept", file=sys.stderr)
        except Exception as error:
            print(f"the scan broke off: {_said(error)}", file=sys.stderr)
        result.bad = list(_bad(log))
    return result


def _batches(iterator: Any, length: int) -> Iterator[int]:
    """Go through all batches; tell how many samples are behind. (Of those that come to nothing
    there is no word.)"""
    done = errors = 0
    while errors < ERRORS:
        try:
            next(iterator)
        except StopIteration:
            break
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # some libraries' are of a kind of their own
            errors += 1
            if errors == ERRORS:
                raise RuntimeError(f"{errors} batches were lost as a whole") from error
        done = min(length, done + BATCH)
        yield done
    yield length


def _bad(log: Path) -> Iterator[dict[str, Any]]:
    """Give the samples that were left out, in order."""
    if not log.exists():
        return
    found: dict[Any, dict[str, Any]] = {}
    for line in log.read_text().splitlines():
        fault = json.loads(line)
        if fault["verdict"] in ("skipped", "raised") and isinstance(fault["index"], int):
            kept = {key: fault[key] for key in ("index", "kind", "exception")}
            found.setdefault(fault["index"], kept)
    yield from (found[index] for index in sorted(found))


# ---- what people see -----------------------------------------------------------------------------


class _progress:
    """A bar on a terminal; a line every tenth elsewhere."""

    def __init__(self, length: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._length, self._told = length, 0
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("scanning"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[bad]} bad"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=length, bad=0)

    def __enter__(self) -> Callable[[int, int], None]:
        self._bar.start()
        return self._advance

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def _advance(self, done: int, bad: int) -> None:
        self._bar.update(self._task, completed=done, bad=bad)
        tenth = 10 * done // max(1, self._length)
        if not self._console.is_terminal and tenth > self._told:
            self._told = tenth
            print(f"scanned {done:,} of {self._length:,}, {bad} bad", file=sys.stderr)


def show(result: Scan, path: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout)
    if result.bad:
        table = Table(box=None, pad_edge=False)
        table.add_column("sample", justify="right")
        table.add_column("what", style="dim")
        table.add_column("why", overflow="fold")
        for each in result.bad[:SHOWN]:
            why = _BATCH.sub("", each["exception"].split(" Likely")[0])
            table.add_row(str(each["index"]), each["kind"], Text(why))
        console.print(table)
        if len(result.bad) > SHOWN:
            console.print(f"... and {len(result.bad) - SHOWN} more in {path}")
    good = "all of them are good" if not result.bad else f"{len(result.bad):,} are bad"
    console.print(f"{result.scanned:,} of {result.length:,} samples were loaded: {good}.")
    if result.bad:
        console.print(
            f'DataLoader(..., quarantine="{path}", on_error="replace") goes without them.'
        )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
