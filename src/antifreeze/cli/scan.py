"""`antifreeze scan package.module:dataset`: load every sample once, and write down the bad ones.

Each sample is loaded in a worker, under supervision: one that raises, is None, crashes or hangs its
worker costs itself and nobody else. The file that it writes is what `DataLoader(quarantine=...)`
takes. It never overwrites a file, and where nearly all samples fail it writes none.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import importlib
import importlib.util
import json
import logging
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.frozen_values import frozen, record
from .._linux.cores import granted_cores
from .._reporting.formatting import said
from .._reporting.log import logger
from .._reporting.redaction import shareable, shareable_line
from .._transport.traceback_frames import is_library, is_ours
from ..policies import Budget, skipping

if TYPE_CHECKING:
    from rich.console import Console

BATCH = 16  # samples a message
SHOWN = 20  # bad samples in the table
TIMEOUT_S = 60.0  # for one sample; people who scan want to be done some day
ERRORS = 100  # batches that are lost as a whole
RETRIES = 1  # a network that fails once is no bad sample


NEARLY_ALL = 0.9  # of the samples that were loaded: so many do not fail by themselves
PROBED = 64  # samples of a large dataset: if all of them fail there is no need to load the rest
MANY = 16  # times as many as are probed: a large dataset
NUMBERED = 1_000  # files of the same name, at most

_BATCH = re.compile(r" \(batch \d+(: samples \[[^\]]*\])?\)| \(file: [^)]*\)")
_PLACE = re.compile(r'^ +File "(.*)", line (\d+), in (.*)$', re.MULTILINE)
_DETAILS = re.compile(r"'[^']*'|\"[^\"]*\"|\S*/\S*|0x[0-9a-f]+|\d+")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_TARGET = re.compile(r"(.+?\.py|[\w.]+):(.+)", re.DOTALL)


@frozen
class Cause:
    """What most of the samples that fail have in common."""

    count: int
    exception: str  # of the first of them
    place: str = ""  # of the innermost line that is the user's


@record
class Scan:
    """What came of it."""

    name: str
    length: int
    scanned: int
    bad: list[dict[str, Any]]
    complete: bool
    cause: Cause | None = None

    @property
    def is_hopeless(self) -> bool:
        """Whether so many samples fail that the cause is elsewhere."""
        return bool(self.bad) and len(self.bad) >= NEARLY_ALL * max(1, self.scanned)

    def as_data(self) -> dict[str, Any]:
        return {
            "dataset": self.name,
            "length": self.length,
            "scanned": self.scanned,
            "complete": self.complete,
            "bad": self.bad,
            "common_cause": None if self.cause is None else dataclasses.asdict(self.cause),
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
        "dataset",
        help="package.module:name or path/to/file.py:name (a function or class is called), or a"
        " call: 'train.py:ImageFolder(\"data\")'",
    )
    verb.add_argument(
        "-o",
        "--output",
        default="quarantine.json",
        help="(%(default)s; if there is such a file it is kept, and the new one gets a number)",
    )
    verb.add_argument("-w", "--workers", type=int, default=granted_cores())
    verb.add_argument(
        "--timeout", type=float, default=TIMEOUT_S, help="seconds for a sample (%(default)g)"
    )
    verb.add_argument("--json", action="store_true", help="the result as JSON, too, on stdout")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    logger.setLevel(logging.ERROR)  # the table says it all
    try:
        if arguments.workers < 1:
            raise ValueError(f"a scan needs a worker, not {arguments.workers}")
        dataset = find(arguments.dataset)
        length = len(dataset)
        output = reserve(Path(arguments.output))  # now, and not after hours
    except Exception as error:
        words = f"antifreeze scan: {arguments.dataset}: {_said(error)}"
        print(shareable(words), file=sys.stderr)
        return 2
    try:
        with _progress(length) as advance:
            result = scan(
                dataset, arguments.dataset, arguments.workers, arguments.timeout, advance=advance
            )
        if not result.is_hopeless:
            output.write_text(json.dumps(result.as_data(), indent=1) + "\n")
    finally:
        _give_back(output)
    if arguments.json:
        print(json.dumps(result.as_data(), indent=2))
    else:
        show(result, output, Path(arguments.output))
    if result.is_hopeless:
        return 2
    return 0 if result.complete and not result.bad else 1


def reserve(path: Path) -> Path:
    """Return an empty file to write to: of this name, or with a number if there is one that has
    something in it. What is not a regular file, such as /dev/null, is taken as it is."""
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        return path
    for number in range(1, NUMBERED):
        tried = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        with contextlib.suppress(FileExistsError):
            tried.open("x").close()
            return tried
        if tried.is_file() and not tried.stat().st_size:
            with tried.open("a"):  # may it be written?
                return tried
    raise FileExistsError(f"there are {NUMBERED} files such as {path}")


def _give_back(path: Path) -> None:
    """Remove the file if nothing was written to it."""
    with contextlib.suppress(OSError):
        if path.is_file() and not path.stat().st_size:
            path.unlink()


def find(name: str) -> Any:
    """Return the dataset of a name; if it is a function or a class, what calling it returns; if it
    is a call, what that returns."""
    if (target := _TARGET.fullmatch(name)) is None:
        raise ValueError("name it as package.module:name or path/to/file.py:name")
    place, expression = target[1], target[2].strip()
    if not _NAME.fullmatch(expression):
        _check_call(expression)
    _look_in(os.getcwd())
    module = _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    if not _NAME.fullmatch(expression):
        return _with_samples(eval(expression, vars(module)))  # what who runs this has typed
    found: Any = module
    for step in expression.split("."):
        found = getattr(found, step)
    if isinstance(found, type) or (callable(found) and not hasattr(found, "__getitem__")):
        found = found()
    return _with_samples(found)


def _look_in(folder: str) -> None:
    """Have modules be found in a folder first; unless Python was told (-P, PYTHONSAFEPATH) to find
    none where a script, or whoever runs it, happens to be."""
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)


def _check_call(expression: str) -> None:
    """Refuse what is no call of something that has a name, before anything is imported."""
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is not an expression: {error.msg}") from None
    if not isinstance(tree, ast.Call | ast.Subscript):
        raise ValueError(f"{expression!r} is neither a name nor a call")


def _with_samples(found: Any) -> Any:
    if not hasattr(found, "__getitem__") or not hasattr(found, "__len__"):
        raise TypeError(f"a {type(found).__name__} has no samples to be asked for by index")
    return found


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise FileNotFoundError(f"there is no {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    _look_in(str(path.parent.resolve()))
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
    """Load every sample once. Ctrl-C ends it early; what was found by then is kept. Of a large
    dataset some samples from all over it are loaded first: if all of them fail, that is enough."""
    length = len(dataset)
    result = Scan(name, length, 0, [], complete=False)
    if length > MANY * PROBED:
        probe = range(0, length, length // PROBED)
        ended = _load(result, dataset, probe, workers, timeout_s)
        if not ended or len(result.bad) == len(probe):
            return result
        result = Scan(name, length, 0, [], complete=False)
    result.complete = _load(result, dataset, range(length), workers, timeout_s, advance)
    return result


def _load(
    result: Scan,
    dataset: Any,
    indices: range,
    workers: int,
    timeout_s: float,
    advance: Callable[[int, int], None] = lambda done, bad: None,
) -> bool:
    """Load some samples, and write down what became of them. Return whether that is all of them."""
    from ..loader import DataLoader

    policy = skipping(retries=RETRIES, budget=Budget(share=1.0, window=len(dataset) + 1))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "faults.jsonl"
        loader: DataLoader[int] = DataLoader(
            Once(dataset),  # type: ignore[arg-type]
            batch_size=BATCH,
            sampler=indices,
            num_workers=workers,
            collate_fn=len,
            on_error=policy,
            sample_timeout=timeout_s,
            fault_log=log,
        )
        ended = False
        try:
            for good in _batches(iter(loader)):
                bad = loader._book.tally.verdicts["skipped"]
                result.scanned = min(len(indices), good + bad)
                advance(result.scanned, bad)
            ended, result.scanned = True, len(indices)
        except KeyboardInterrupt:
            print("interrupted: what was found so far is kept", file=sys.stderr)
        except Exception as error:
            print(shareable(f"the scan broke off: {_said(error)}"), file=sys.stderr)
        faults = _faults(log)
        result.bad = list(_bad(faults))
        if result.is_hopeless:
            result.cause = _common_cause(faults)
    return ended


def _batches(iterator: Iterator[int]) -> Iterator[int]:
    """Go through all batches; yield how many good samples there were so far."""
    good = errors = 0
    while errors < ERRORS:
        try:
            good += next(iterator)
        except StopIteration:
            break
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # some libraries' are of a kind of their own
            errors += 1
            if errors == ERRORS:
                raise RuntimeError(f"{errors} batches were lost as a whole") from error
        yield good


def _faults(log: Path) -> list[dict[str, Any]]:
    """Read what became of the samples that were given up."""
    lines = log.read_text().splitlines() if log.exists() else []
    faults = [json.loads(line) for line in lines]
    return [
        fault
        for fault in faults
        if fault["verdict"] in ("skipped", "raised") and isinstance(fault["index"], int)
    ]


def _bad(faults: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the samples that were left out, in order."""
    found: dict[Any, dict[str, Any]] = {}
    for fault in faults:
        kept = {key: fault[key] for key in ("index", "kind", "exception", "file")}
        found.setdefault(fault["index"], kept)
    yield from (found[index] for index in sorted(found))


def _common_cause(faults: list[dict[str, Any]]) -> Cause:
    """Return what most samples failed with: errors that differ in numbers and names are alike."""
    kinds = Counter(_DETAILS.sub("*", _why(fault)) for fault in faults)
    kind, count = kinds.most_common(1)[0]
    first = next(fault for fault in faults if _DETAILS.sub("*", _why(fault)) == kind)
    return Cause(count, _why(first), _place(first["traceback"]))


def _why(fault: dict[str, Any]) -> str:
    text: str = fault["exception"].split(" Likely")[0]
    return _BATCH.sub("", text)


def _place(text: str) -> str:
    """Return the innermost line of a traceback that is the user's."""
    found = [
        f"{Path(file).name}:{line}, in {function}"
        for file, line, function in _PLACE.findall(text)
        if not is_ours(file) and not is_library(file)
    ]
    return found[-1] if found else ""


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


def show(result: Scan, path: Path, wanted: Path) -> None:
    """Print what was found, and what to do about it. `wanted`: where it was to be written."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False, markup=False)
    if result.bad and not result.is_hopeless:
        _show_table(console, result, path)
    bad = f"{len(result.bad):,} {'is' if len(result.bad) == 1 else 'are'} bad"
    found = bad if result.bad else "all of them are good"
    console.print(f"{result.scanned:,} of {result.length:,} samples were loaded: {found}.")
    if result.is_hopeless:
        _show_cause(console, result)
        return
    if path != wanted:
        kept = f"{wanted} was there already and is kept; this scan is in {path}."
        console.print(shareable_line(kept))
    if result.bad:
        use = f'DataLoader(..., quarantine="{path}", on_error="replace")'
        console.print(shareable_line(f"To load without them: {use}"), soft_wrap=True)


def _show_table(console: Console, result: Scan, path: Path) -> None:
    from rich.table import Table
    from rich.text import Text

    shown = result.bad[:SHOWN]
    with_files = any(each["file"] for each in shown)
    table = Table(box=None, pad_edge=False)
    table.add_column("sample", justify="right")
    table.add_column("what", style="dim")
    table.add_column("why", overflow="fold")
    if with_files:
        table.add_column("file", overflow="fold")
    for each in shown:
        file = [Text(shareable_line(each["file"]))] if with_files else []
        why = Text(shareable(_why(each)))
        table.add_row(str(each["index"]), each["kind"], why, *file)
    console.print(table)
    if len(result.bad) > SHOWN:
        console.print(shareable_line(f"... and {len(result.bad) - SHOWN} more in {path}"))


def _show_cause(console: Console, result: Scan) -> None:
    """Say that it is not the samples, and what it is instead."""
    assert result.cause is not None
    cause = result.cause
    at = f" ({cause.place})" if cause.place else ""
    first = f"the first with {cause.exception}{at}"
    console.print(shareable(f"{cause.count:,} fail in the same way, {first}"))
    console.print(
        "So many samples do not go bad by themselves. Check that error first: how the dataset is"
        " made, and the folder it expects its files in. No quarantine was written."
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {said(error)}"
