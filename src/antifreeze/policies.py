"""What to do about samples that fail: values for `on_error`.

A sample fails if `__getitem__` raises, if it gives None and the default collate would have to take
it, or if it ends or hangs its worker twice. `"raise"`, `"replace"` and `"skip"` are short for the
policies of the same names, as they are without arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Literal

from ._core.frozen_values import frozen

Action = Literal["raise", "replace", "skip"]
SUBSTITUTES = 16  # tried for one sample, at most: where so many fail, more will


@frozen
class Budget:
    """How many samples may fail before the run is stopped: so many in all, and so large a share of
    the last ones."""

    most: int | None = None
    share: float = 0.1
    window: int = 1_000

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 0:
            raise ValueError(f"a budget allows 0 faults or more, not most={self.most!r}")
        if not 0 < self.share <= 1 or self.window < 1:
            raise ValueError(
                "a budget is a share of a number of samples, between 0 and 1; got"
                f" share={self.share!r}, window={self.window!r}"
            )


@frozen
class Policy:
    """What to do about samples that fail. Make one by `raising`, `replacing` or `skipping`."""

    action: Action
    retries: int = 0  # of a sample that raised, before it counts as failed
    only: tuple[type[BaseException], ...] = (Exception,)  # what counts; the rest is raised
    by: Callable[[Any, int], Any] | None = None  # index and attempt (from 1) to another index
    budget: Budget = Budget()

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries are 0 or more, not {self.retries!r}")
        for kind in self.only:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise TypeError(f"only takes exception types, not {kind!r}")

    @property
    def watches(self) -> bool:
        """Say whether each sample must be looked at by itself."""
        return self.action != "raise" or self.retries > 0

    def substitute(self, index: Any, attempt: int, length: int) -> Any:
        """Give the index to load instead: the next one, the one after that ..."""
        if self.by is not None:
            return self.by(index, attempt)
        return (operator.index(index) + attempt) % length


def raising(*, retries: int = 0, only: tuple[type[BaseException], ...] = (Exception,)) -> Policy:
    """Raise what a sample raised, after so many further tries."""
    return Policy("raise", retries, only)


def replacing(
    *,
    by: Callable[[Any, int], Any] | None = None,
    retries: int = 0,
    only: tuple[type[BaseException], ...] = (Exception,),
    budget: Budget | None = None,
) -> Policy:
    """Load another sample instead: the next one, or what `by(index, attempt)` says.

    The same one for any number of workers; batches keep their size, epochs their length.
    """
    return Policy("replace", retries, only, by, budget or Budget())


def skipping(
    *,
    retries: int = 0,
    only: tuple[type[BaseException], ...] = (Exception,),
    budget: Budget | None = None,
) -> Policy:
    """Leave the sample out; its batch is that much shorter."""
    return Policy("skip", retries, only, None, budget or Budget())


def policy_of(value: Any) -> Policy:
    """Read an `on_error`. Raises TypeError or ValueError with its value."""
    if isinstance(value, Policy):
        return value
    named = {"raise": raising, "replace": replacing, "skip": skipping}
    if not isinstance(value, str):
        raise TypeError(
            'on_error option should be "raise", "replace", "skip" or a policy of'
            f" antifreeze.policies, but got on_error={value!r}"
        )
    if value not in named:
        raise ValueError(
            f'on_error option should be "raise", "replace" or "skip", but got on_error={value!r}'
        )
    return named[value]()


@frozen
class Fault:
    """One thing that went wrong, and what was done about it."""

    kind: str  # "exception", "none", "crash", "hang", ...
    verdict: str  # "retried", "replaced", "skipped", "raised", "recycled", "left"
    index: Any = None  # of the sample, as the sampler gave it
    position: int | None = None  # of its batch in the epoch
    worker: int | None = None
    attempt: int = 1
    seconds: float = 0.0
    exception: str = ""  # what was raised, or what was seen, in one line
    traceback: str = ""
    file: str = ""  # that the sample is read from, if that is known
