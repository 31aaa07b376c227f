"""Streams that can be taken up again: their state after a batch, and the way back to it.

1. A state is that of the stream's iterator, if it has one, or else of the dataset: `state_dict` and
   `load_state_dict`; with it, the process's own generators.
2. States are told after the batch they stand for. If they take long they are told less often: the
   batches after the last one are taken, and thrown away, by whoever goes on from there.
"""

from __future__ import annotations

import pickle
from typing import Any

import torch

from .._clock import monotonic
from .._core.traps import StreamState
from .generators import global_generators
from .spec import Resume

SHARE = 0.05  # of a worker's time that its states may take


def is_stateful(thing: Any) -> bool:
    """Say whether a dataset, or an iterator, can say where it is and begin there. (The state of a
    module of torch's is something else.)"""
    if isinstance(thing, torch.nn.Module):
        return False
    return callable(getattr(thing, "state_dict", None)) and callable(
        getattr(thing, "load_state_dict", None)
    )


class Bookmark:
    """Know where a stream is, and say so every now and then.

    A state that is the same after another batch does not say where the stream is. It, or one that
    cannot be had, is told as nothing, and nobody is asked for one any more.
    """

    def __init__(self, dataset: Any, stream: Any, resume: Resume | None) -> None:
        self._source = stream if is_stateful(stream) else dataset
        self._of_stream = self._source is stream
        self._batches = 0 if resume is None else resume.past
        self._began = monotonic()
        self._spent = 0.0
        self._last: bytes | None = b""  # None: no more
        self._take()

    def pass_over(self) -> None:
        """Take note of a batch that came to nothing: it is behind, too."""
        self._batches += 1

    def turn(self, epoch: int) -> StreamState | None:
        """Take note of a batch that was given. Gives the state now and then."""
        self._batches += 1
        began = monotonic()
        if self._last is None or self._spent > SHARE * (began - self._began):
            return None
        before = self._last
        self._take()
        self._spent += monotonic() - began
        if self._last is None or self._last == before:
            self._last = None
            return StreamState(epoch, self._batches, b"")
        generators = [each.save() for _, each in global_generators()]
        state = pickle.dumps((self._of_stream, self._last, generators), protocol=5)
        return StreamState(epoch, self._batches, state)

    def _take(self) -> None:
        try:
            self._last = pickle.dumps(self._source.state_dict(), protocol=5)
        except Exception:  # it takes arguments, or cannot be pickled: it is of no use
            self._last = None


def load_dataset(dataset: Any, resume: Resume | None) -> None:
    """Bring a dataset to where another life's was, before `iter` is called on it."""
    if resume is not None and resume.state:
        of_stream, state, generators = pickle.loads(resume.state)
        if not of_stream:
            dataset.load_state_dict(pickle.loads(state))
        _restore(generators)


def load_stream(stream: Any, resume: Resume | None) -> None:
    """Bring an iterator to where another life's was."""
    if resume is not None and resume.state:
        of_stream, state, generators = pickle.loads(resume.state)
        if of_stream:
            stream.load_state_dict(pickle.loads(state))
        _restore(generators)


def _restore(generators: list[Any]) -> None:
    for (_, each), state in zip(global_generators(), generators, strict=True):
        each.restore(state)
