"""Samples one by one, by a policy: what fails is tried again, replaced or left out, and noted."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Sequence
from typing import Any

from .._linux.clock import monotonic
from .._loading.observations import QUARANTINED, SampleFailed
from .._reporting.formatting import said, shown
from .._transport.traceback_frames import formatted
from ..policies import SUBSTITUTES, Policy
from .sample_file_names import file_of
from .subset_indices import behind

_LEFT_OUT = object()


class NothingLeft(Exception):
    """All samples of a batch were left out."""


class NoneSample(ValueError):
    """`__getitem__` gave None, which the default collate does not take."""


class Careful:
    """Load the samples of batches by a policy; keep what failed until it is asked for."""

    def __init__(
        self,
        dataset: Any,
        policy: Policy,
        *,
        none_fails: bool,
        quarantine: frozenset[Any] = frozenset(),
    ) -> None:
        """`quarantine`: samples that are known to be bad, and not loaded at all."""
        self._dataset, self._policy, self._none_fails = dataset, policy, none_fails
        self._quarantine = quarantine
        self.failed: list[SampleFailed] = []
        self._now: tuple[Any, Any] | None = None  # the index asked for, and the one being loaded

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
        self._now = None
        if not samples:
            raise NothingLeft
        return samples

    def _sample(self, place: int, index: Any, failed: int, begin: Callable[[int], None]) -> Any:
        policy, present, tries = self._policy, index, 1
        if self._quarantine and self._is_known(index):
            self._note_known(index)
            failed += 1
        if failed:
            if policy.action == "skip":
                return _LEFT_OUT
            present, failed = self._substitute(index, failed)
        while True:  # bounded by retries and SUBSTITUTES
            begin(place)
            self._now = index, present
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
                    present, failed = self._substitute(index, failed)

    def _substitute(self, index: Any, failed: int) -> tuple[Any, int]:
        """Give what to load instead of a sample, and the how manieth that is."""
        for attempt in range(failed, failed + len(self._quarantine) + 1):
            present = self._policy.substitute(index, attempt, len(self._dataset))
            if not self._is_known(present):
                return present, attempt
        raise RuntimeError(f"nothing is left to take the place of sample {index!r}: the quarantine")

    def _is_known(self, index: Any) -> bool:
        with contextlib.suppress(TypeError):  # it is no number, or cannot be looked up at all
            index = operator.index(index)
        try:
            return index in self._quarantine
        except TypeError:
            return False

    def _note_known(self, index: Any) -> None:
        verdict = _VERDICTS[self._policy.action]
        self.failed.append(SampleFailed(QUARANTINED, verdict, index, 1, 0.0, "known to be bad", ""))

    def loading(self) -> Any:
        """Return the index that was being loaded when `load` was left; None if none was."""
        return None if self._now is None else self._now[1]

    def present(self) -> str:
        """Name the sample that was being loaded when `load` was left; nothing if it was none."""
        if self._now is None:
            return ""
        index, instead = self._now
        for_it = "" if instead is index else f" in place of sample {shown(index)}"
        return f"sample {shown(instead)}{behind(self._dataset, instead)}{for_it}"

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
        self.failed.append(
            SampleFailed(
                kind,
                verdict,
                index,
                attempt,
                seconds,
                text,
                formatted(error),
                file=file_of(error, self._dataset, index),
            )
        )


_VERDICTS = {"raise": "raised", "replace": "replaced", "skip": "skipped"}
