"""What is noticed of a dataset while it loads, as data: workers tell it to the main process."""

from __future__ import annotations

from typing import Any

from .._core.frozen_values import frozen, message

# After a line of code that samples were found in: it waits for a lock there.
FOR_A_LOCK = ", for a lock"


@frozen
class Opening:
    """The samples that a worker's stream began with, up to a number of different ones."""

    fingerprint: int  # of them all, in their order
    different: int
    asked: bool = False  # somebody in this worker knows which one it is
    runs: bool = False  # `different` counts runs of several samples: those themselves are few


@frozen
class Drew:
    """A worker's stream has drawn from generators of the dataset's own."""

    paths: tuple[tuple[str, int], ...]  # with the state they began with


@frozen
class StreamState:
    """Where a worker's stream is, after so many batches of an epoch."""

    epoch: int
    batches: int
    state: bytes  # none: it is at its beginning
    over: bool = False  # it has met its end
    useless: bool = False  # its state does not say where it is
    lost: bool = False  # nobody knows any more where it should be
    asked: int = 0  # samples that it was asked for


@frozen
class StreamPrint:
    """A fingerprint of one batch of a worker's stream. Comes before the batch itself."""

    epoch: int
    batch: int  # counted from 1
    printed: int


@frozen
class StreamCarry:
    """What a worker's stream begins an epoch with: its dataset's state, and generators."""

    epoch: int
    state: bytes
    batches: int = 0  # that it had been asked for in the epoch before
    over: bool = False  # it had met the end of that epoch
    moved: bool = False  # its dataset's state is another than at the beginning of that epoch
    # What has changed in its dataset, which has no state: "dataset.epoch (0, now 1)".
    changed: tuple[str, ...] = ()


@frozen
class StreamEnded:
    """A worker's stream is over."""

    samples: int  # it gave
    dropped: int  # of its last batch, which was not full
    error: str = ""  # after which it ended at once
    tally: int | None = None  # of all samples, in whatever order
    different: int = 0  # of the samples
    asked: bool = False  # somebody in this worker knows which one it is
    batch: int = 0  # samples it should have had at a time


@frozen
class Changed:
    """Attributes of a worker's dataset are not what they were, in words."""

    attributes: tuple[str, ...]


@frozen
class Change:
    """Something that the main process changed."""

    words: str  # "dataset.epoch (0, now 1)"
    is_number: bool = False  # or an array of them


@frozen
class Suspect:
    """Something of the user's in a worker that holds much."""

    path: str  # "dataset.cache"
    items: int
    bytes: int = 0  # about; 0: nobody knows


@frozen
class Suspects:
    """What may have grown in a worker: the largest first."""

    found: tuple[Suspect, ...]


QUARANTINED = "quarantined"


@frozen
class SampleFailed:
    """A sample failed, and a policy says what becomes of it."""

    kind: str
    verdict: str
    index: Any
    attempt: int
    seconds: float = 0.0
    exception: str = ""
    traceback: str = ""
    position: int | None = None
    file: str = ""  # that the sample is read from, if that is known


@message
class Places:
    """Where a worker was found in samples: lines of code, and how often."""

    found: tuple[tuple[str, int], ...]


Observation = (
    Opening
    | Drew
    | StreamState
    | StreamPrint
    | StreamCarry
    | StreamEnded
    | Changed
    | Suspects
    | SampleFailed
    | Places
)
