"""The batches of a loader, and beside them how it goes.

1. Batches and exceptions pass as they are. Nothing here holds a batch, nor, once its loop has
   dropped it, the loader's iterator: workers go when they would have gone.
2. No thread: a program with one has its workers come from elsewhere. The display is drawn between
   two batches, and takes a fiftieth of the time at the most.
3. `displays` and `bars` see `Figures` only.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TextIO, TypeVar

from ... import _torch_internals
from ..._core.frozen_values import frozen
from ..._linux import platform_support
from ..redaction import shareable_line
from ..wait_totals import share_of_time
from .displays import Display, display_for
from .numbers import Figures

if TYPE_CHECKING:
    from ...loader import DataLoader

T = TypeVar("T", covariant=True)


class Progress(Generic[T]):
    """One or more loops over a loader, shown. Looks like tqdm's bars where others look at them."""

    def __init__(self, loader: DataLoader[T], title: str, file: TextIO | None) -> None:
        self._loader, self._file = loader, file
        self._title = shareable_line(" ".join(str(title).split()))  # one line, of whatever it was

    def __len__(self) -> int:
        total = batches_of(self._loader)
        if total is None:
            raise TypeError(f"nobody knows the number of batches of {self._loader!r}")
        return total

    def __iter__(self) -> Iterator[T]:
        tally = _Tally(self._loader, self._title, self._file)
        return _Loop(iter(self._loader), tally)

    def __repr__(self) -> str:
        return f"<progress {self._title!r} of {self._loader!r}>"


class _Loop(Iterator[T]):
    """One loop. Not a generator: that could not go on after an exception, and loaders can."""

    def __init__(self, iterator: Iterator[Any], tally: _Tally) -> None:
        # A `map`: the loader knows that who has its iterator in one will ask again.
        self._batches: map[T] = map(tally.passed, iterator)
        self._tally = tally
        self._finalizer = weakref.finalize(self, _end_in, os.getpid(), tally)
        tally.begin()

    def __next__(self) -> T:
        try:
            return next(self._batches)
        except BaseException:
            # Now: a traceback may keep this loop, in a notebook for ever.
            self._tally.end()
            raise


def _end_in(owner: int, tally: _Tally) -> None:
    if os.getpid() == owner:  # in a forked child the display is not ours
        tally.end()


class _Tally:
    """Count the batches of one loop, and have it shown now and then."""

    def __init__(self, loader: DataLoader[Any], title: str, file: TextIO | None) -> None:
        self._loader, self._title, self._file = loader, title, file
        self._now = loader._clock().now
        self._total = batches_of(loader)
        self._done = 0
        self._before = self._counted()
        self._began_at = self._now()
        self._first_at = 0.0  # when the first batch was there
        self._display: Display | None = None  # None: not shown yet, or not any more
        self._due_at = 0.0

    def begin(self) -> None:
        self._display = display_for(self._file)
        self._due_at = self._now() + self._display.begin(self._figures())

    def passed(self, batch: T) -> T:  # type: ignore[misc]
        """Count a batch. For every one: cheap."""
        self._done += 1
        now = self._now()
        if self._done == 1:
            self._first_at = now
        if now >= self._due_at:
            self._show()
        return batch

    def _show(self) -> None:
        if self._display is None:  # the loop has gone on after an exception
            self.begin()
            return
        wanted_in_s = self._display.show(self._figures())
        self._due_at = self._now() + wanted_in_s

    def end(self) -> None:
        """Leave one line. May be called again."""
        display, self._display = self._display, None
        self._due_at = 0.0
        if display is not None:
            display.end(self._figures())

    def _counted(self) -> _Counted:
        # Not all of `stats()`: its quantiles take longer than a bar takes to be drawn.
        if (
            platform_support.missing() or _torch_internals.LACKS
        ):  # not all of the engine can be imported, either
            return _Counted()
        entry = self._loader._settled()
        accounts = entry.accounts
        return _Counted(
            accounts.seconds, accounts.waited_so_far_s, accounts.work.samples, entry.faults.seen
        )

    def _figures(self) -> Figures:
        before, counted = self._before, self._counted()
        now, done, total = self._now(), self._done, self._total
        if total is not None and done > total:
            total = None  # streams are estimated
        seconds, samples = counted.seconds - before.seconds, counted.samples - before.samples
        waited_s = counted.waited_s - before.waited_s
        left_s = None
        if total is not None and done > 1:
            left_s = (total - done) * (now - self._first_at) / (done - 1)
        size = self._loader.batch_size
        return Figures(
            title=self._title,
            done=done,
            total=total,
            elapsed_s=now - self._began_at,
            left_s=left_s,
            # Workers are ahead of the loop: theirs is the exact number only at the end.
            samples=min(samples, done * size) if size and samples else None,
            wait_share=share_of_time(waited_s, seconds) if seconds else None,
            faults=counted.faults - before.faults,
        )


@frozen
class _Counted:
    """What a loader has counted in all its epochs, as in `stats()`."""

    seconds: float = 0.0
    waited_s: float = 0.0
    samples: int = 0
    faults: int = 0


def batches_of(loader: DataLoader[Any]) -> int | None:
    """Give the number of batches of an epoch, if it is known.

    Of a stream, what its dataset says: `len(loader)` would hold the loader to it.
    """
    with suppress(Exception):  # samplers and datasets are the user's
        if not _torch_internals.is_stream(loader):
            return len(loader)
        samples, size = len(loader.dataset), loader.batch_size or 1  # type: ignore[arg-type]
        return samples // size if loader.drop_last else -(-samples // size)
    return None
