"""What the processes of a run leave for its report, which the process of `antifreeze run` prints.

1. A process that loops over a loader writes one file of JSON: when its first loop begins, every
   few seconds while it loops, and at its end. Each time the file is replaced as a whole.
2. A process that is killed, or leaves by os._exit, writes no last one. Its latest file says what it
   had counted by then, and that it is not the last; whoever reads it sees that the process is gone.
3. Workers of loaders write nothing, ours or torch's, nor do processes that loop over no loader.
4. The folder is made by the first process that writes: most runs have none. Its name cannot be
   guessed, and it belongs to one user. The process of the run removes it at its end; where that was
   killed, whoever writes last does.
5. Whatever is read is checked and cut to size. Nothing here raises: a program must not fail
   because of its report.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict
from enum import Enum
from typing import Any

from .. import stats
from .._core.frozen_values import frozen
from .._core.limits import LIMITS, RecordLimits
from .._linux import platform_support
from .._linux.clock import monotonic
from .._linux.regular_files import read_regular
from ..integrations import multiprocessing_children
from .loader_summary import FAULTS, LoaderSummary, summarize
from .log import logger
from .ranks import ranks
from .untrusted_text import printable

LONGEST = 500  # characters of a sentence
LONGEST_NAME = 100
LINES = 10  # of advice for one loader
_SUFFIX = ".json"


class State(Enum):
    """How far a process had come, by its latest file."""

    LOOPING = "looping"
    ENDED = "ended"
    RAISED = "raised"  # it ended by an exception
    GONE = "gone"  # it ended and did not write that; known to the reader alone


@frozen
class ProcessSummary:
    """What a process has left."""

    name: str  # multiprocessing's; empty if it was forked in another way
    pid: int
    rank: int | None
    state: State
    loaders: tuple[LoaderSummary, ...]  # the longest loops first
    more_loaders: int = 0

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.loaders)


@frozen
class Place:
    """Where processes of a run leave their summaries, and who reads them."""

    folder: str
    reader: int  # pid of the process of the run

    @property
    def is_awaited(self) -> bool:
        """Whether somebody will still read what is left here."""
        return runs(self.reader)


# ---- writing -------------------------------------------------------------------------------------


class _Writer:
    """Writes the summary of this process."""

    def __init__(self, place: Place, limits: RecordLimits = LIMITS.records) -> None:
        self.place, self._limits = place, limits
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._path = ""  # none before its first loop
        self._state = State.LOOPING
        self._rank: int | None = None
        self._written_at = 0.0

    def begin(self) -> None:
        """Write that this process loops, if it is one that is to be reported."""
        if self._path or self._pid == self.place.reader or _is_worker():
            return
        if not (self.place.is_awaited and _make_folder(self.place.folder)):
            return
        if len(os.listdir(self.place.folder)) >= self._limits.summary_processes:
            return
        unique = f"{self._pid}-{os.urandom(4).hex()}{_SUFFIX}"  # a number may come again
        self._path = os.path.join(self.place.folder, unique)
        self._write()
        multiprocessing_children.call_at_end(self.end)

    def refresh(self, *, due_s: float = LIMITS.records.summary_s) -> None:
        """Write again if the file is older than that."""
        if self._path and monotonic() - self._written_at >= due_s:
            self._write()

    def end(self) -> None:
        """Write for the last time; called once or twice, at the end of this process."""
        if os.getpid() != self._pid:
            return
        with contextlib.suppress(Exception):
            if self._state is not State.RAISED:
                self._state = State.RAISED if _is_raised() else State.ENDED
            if (iteration := sys.modules.get("antifreeze._engine.iterator")) is not None:
                iteration.settle()
            self._write(last=True)

    def _write(self, *, last: bool = False) -> None:
        locked = self._lock.acquire(timeout=self._limits.summary_lock_s)
        try:
            if not last and self._state is not State.LOOPING:
                return  # another thread was late
            self._written_at = monotonic()
            with open(f"{self._path}.new", "w") as file:
                file.write(json.dumps(self._content()))
            os.replace(f"{self._path}.new", self._path)
            if last and not self.place.is_awaited:
                remove(self.place.folder, only=self._path)
        except Exception:
            logger.debug("antifreeze: no summary for the report of this run", exc_info=True)
        finally:
            if locked:
                self._lock.release()

    def _content(self) -> dict[str, Any]:
        here = ranks()
        if here.world_size > 1:  # at its end, a process has often left its group
            self._rank = here.rank
        found = [each for each in stats.entries() if each.accounts.seconds]
        most = self._limits.summary_loaders
        return {
            "name": multiprocessing_children.child_name(),
            "pid": self._pid,
            "rank": self._rank,
            "state": self._state.value,
            "loaders": [asdict(summarize(each)) for each in found[:most]],
            "more_loaders": len(found[most:]),
        }

    def __repr__(self) -> str:
        return f"<_Writer {self._state.value}, {self._path or 'nothing written'}>"


_writer: _Writer | None = None


def gather() -> Place | None:
    """Have all processes that this one starts from now on leave their summaries for it. None if
    there is no folder for temporary files."""
    try:
        folder = f"antifreeze-run-{os.urandom(16).hex()}"
        place = Place(os.path.join(tempfile.gettempdir(), folder), os.getpid())
    except OSError:
        return None
    leave_in(place)
    return place


def leave_in(place: Place) -> None:
    """Leave the summary of this process there, if it loops over a loader."""
    global _writer
    if _writer is None:
        stats.listeners.append(_begin)
    _writer = _Writer(place)


def refresh(*, due_s: float = LIMITS.records.summary_s) -> None:
    """Write how this process is by now, if that is due. In any thread."""
    if _writer is not None:
        _writer.refresh(due_s=due_s)


def _begin() -> None:
    if _writer is not None:
        with contextlib.suppress(Exception):
            _writer.begin()


def _renew() -> None:
    """In a forked child: it has a summary of its own."""
    global _writer
    if _writer is not None:
        _writer = _Writer(_writer.place)


os.register_at_fork(after_in_child=_renew)


def _is_worker() -> bool:
    """Whether this process loads for a loader, of ours or of torch's."""
    data: Any = sys.modules.get("torch.utils.data")
    return platform_support.serves_a_loader or (
        data is not None and data.get_worker_info() is not None
    )


def _is_raised() -> bool:
    """Whether this process ends by an exception, or by an exit code that says so."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return error is not None


def _make_folder(path: str) -> bool:
    """Return whether the folder is there, and nobody else's."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    return _is_ours(path)


# ---- reading -------------------------------------------------------------------------------------


def read(place: Place) -> list[ProcessSummary]:
    """Return what processes have left there so far, the longest loops first."""
    found = [
        _read(path)
        for path in itertools.islice(_files(place.folder), LIMITS.records.summary_processes)
    ]
    return sorted((each for each in found if each is not None), key=lambda each: -each.seconds)


def remove(folder: str, *, only: str = "") -> None:
    """Remove all files that were left there, or only one, and the folder if it is empty then."""
    for path in [only] if only else list(_files(folder, every=True)):
        with contextlib.suppress(OSError):
            os.unlink(path)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        return not poller.poll(0)
    finally:
        os.close(pidfd)


def _files(folder: str, *, every: bool = False) -> Iterator[str]:
    """Yield the files in the folder; `every`: those that are half written, too."""
    if not _is_ours(folder):
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if every or entry.name.endswith(_SUFFIX):
                yield entry.path


def _is_ours(folder: str) -> bool:
    try:
        seen = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o077


def _read(path: str) -> ProcessSummary | None:
    """Read one file; None if it is not as we write them."""
    content = read_regular(path, LIMITS.records.summary_bytes)
    try:
        told = json.loads(content or b"")
        state = State(told["state"])
        pid = _number(told["pid"])
        if state is State.LOOPING and not runs(pid):
            state = State.GONE
        return ProcessSummary(
            name=_text(told["name"], LONGEST_NAME),
            pid=pid,
            rank=None if told["rank"] is None else _number(told["rank"]),
            state=state,
            loaders=tuple(
                _loader(each) for each in _list(told["loaders"], LIMITS.records.summary_loaders)
            ),
            more_loaders=_number(told["more_loaders"]),
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _loader(told: Any) -> LoaderSummary:
    return LoaderSummary(
        name=_text(told["name"], LONGEST),
        seconds=float(told["seconds"]),
        sentence=_text(told["sentence"], LONGEST),
        evidence=tuple(_text(each) for each in _list(told["evidence"], LINES)),
        advice=tuple(_text(each) for each in _list(told["advice"], LINES)),
        faults_seen=_number(told["faults_seen"]),
        faults=tuple(_text(each) for each in _list(told["faults"], FAULTS)),
    )


def _text(told: Any, most: int = LONGEST) -> str:
    if not isinstance(told, str):
        raise TypeError(f"not a text: {type(told)}")
    return printable(told, most)


def _number(told: Any) -> int:
    if type(told) is not int or not 0 <= told < 1 << 31:
        raise ValueError(f"no such number: {type(told)}")
    return told


def _list(told: Any, most: int) -> list[Any]:
    if not isinstance(told, list):
        raise TypeError(f"not a list: {type(told)}")
    return told[:most]
