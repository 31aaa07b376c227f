"""Streams that can be taken up again: their state after a batch, and the way back to it.

1. A state is that of the stream's iterator, if it has one, or else of the dataset: `state_dict` and
   `load_state_dict`; with it, the process's own generators.
2. States are told after the batch they stand for. If they take long they are told less often: the
   batches after the last one are taken, and thrown away, by whoever goes on from there.
"""

from __future__ import annotations

import pickle
from typing import Any

from .._clock import monotonic
from .._core.traps import StreamState
from .generators import global_generators
from .spec import Resume

SHARE = 0.05  # of a worker's time that its states may take


def is_stateful(thing: Any) -> bool:
    """Say whether a dataset, or an iterator, can say where it is and begin there."""
    return callable(getattr(thing, "state_dict", None)) and callable(
        getattr(thing, "load_state_dict", None)
    )


class Bookmark:
    """Know where a stream is, and say so every now and then."""

    def __init__(self, dataset: Any, resume: Resume | None) -> None:
        self._dataset = dataset
        self._batches = 0 if resume is None else resume.past
        self._began = monotonic()
        self._spent = 0.0

    def turn(self, stream: Any, epoch: int) -> StreamState | None:
        """Take note of a batch that was given. Gives the state now and then."""
        self._batches += 1
        began = monotonic()
        if self._spent > SHARE * (began - self._began):
            return None
        source = stream if is_stateful(stream) else self._dataset
        generators = [each.save() for _, each in global_generators()]
        state = pickle.dumps((source is stream, source.state_dict(), generators), protocol=5)
        self._spent += monotonic() - began
        return StreamState(epoch, self._batches, state)


def load_dataset(dataset: Any, resume: Resume | None) -> None:
    """Bring a dataset to where another life's was, before `iter` is called on it."""
    if resume is not None and resume.state:
        of_stream, state, generators = pickle.loads(resume.state)
        if not of_stream:
            dataset.load_state_dict(state)
        _restore(generators)


def load_stream(stream: Any, resume: Resume | None) -> None:
    """Bring an iterator to where another life's was."""
    if resume is not None and resume.state:
        of_stream, state, generators = pickle.loads(resume.state)
        if of_stream:
            stream.load_state_dict(state)
        _restore(generators)


def _restore(generators: list[Any]) -> None:
    for (_, each), state in zip(global_generators(), generators, strict=True):
        each.restore(state)
