"""Samples one by one, by a policy: what fails is tried again, replaced or left out, and noted."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from .._clock import monotonic
from .._core.traps import SampleFailed
from .._transport.words import said
from ..policies import SUBSTITUTES, Policy

_LEFT_OUT = object()


class NoneSample(ValueError):
    """`__getitem__` gave None, which the default collate does not take."""


class Careful:
    """Load the samples of batches by a policy; keep what failed until it is asked for."""

    def __init__(self, dataset: Any, policy: Policy, *, none_fails: bool) -> None:
        self._dataset, self._policy, self._none_fails = dataset, policy, none_fails
        self.failed: list[SampleFailed] = []

    def load(
        self, indices: Sequence[Any], spared: Sequence[int], begin: Callable[[int], None]
    ) -> list[Any]:
        """Load a batch, but for the places that are spared: those samples have failed already, as
        often as they are named. `begin` is called before each try, with the place."""
        self.failed.clear()
        samples = []
        for place, index in enumerate(indices):
            sample = self._sample(place, index, spared.count(place), begin)
            if sample is not _LEFT_OUT:
                samples.append(sample)
        if not samples:
            raise RuntimeError(f"all {len(indices)} samples of this batch failed and were left out")
        return samples

    def _sample(self, place: int, index: Any, failed: int, begin: Callable[[int], None]) -> Any:
        policy, present, tries = self._policy, index, 1
        if failed:
            if policy.action == "skip":
                return _LEFT_OUT
            present = policy.substitute(index, failed, len(self._dataset))
        while True:  # bounded by retries and SUBSTITUTES
            begin(place)
            began = monotonic()
            try:
                return self._get(present)
            except policy.only as error:
                again = tries <= policy.retries
                verdict = "retried" if again else _VERDICTS[policy.action]
                if policy.action == "replace" and not again:
                    failed += 1
                    if failed > SUBSTITUTES:
                        verdict = "raised"
                self._note(error, present, tries, monotonic() - began, verdict)
                if verdict == "raised":
                    raise
                if verdict == "skipped":
                    return _LEFT_OUT
                tries = tries + 1 if again else 1
                if verdict == "replaced":
                    present = policy.substitute(index, failed, len(self._dataset))

    def _get(self, index: Any) -> Any:
        sample = self._dataset[index]
        if sample is None and self._none_fails:
            raise NoneSample(f"sample {index!r} is None")
        return sample

    def _note(
        self, error: BaseException, index: Any, attempt: int, seconds: float, verdict: str
    ) -> None:
        kind = "none" if isinstance(error, NoneSample) else "exception"
        text = f"{type(error).__name__}: {said(error)}"
        told = "".join(traceback.format_exception(error))
        self.failed.append(SampleFailed(kind, verdict, index, attempt, seconds, text, told))


_VERDICTS = {"raise": "raised", "replace": "replaced", "skip": "skipped"}
