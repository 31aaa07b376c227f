"""What a program wants of all its loaders that do not say otherwise: the options of `install()`.

1. They are the defaults of `DataLoader.__init__` itself: whoever reads its signature, as trainers
   do that build a loader again, sees what holds.
2. What is written at a loader wins. A default that does not fit one (replacing samples of a stream)
   is not used for it, and that is said once: a script that ran before must run.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from .._reporting.user_warnings import remark
from ..policies import Policy, policy_of
from . import arguments


class Options(TypedDict, total=False):
    """The options that torch's loader does not have."""

    sample_timeout: float | Literal["auto"] | None
    on_error: Literal["raise", "replace", "skip"] | Policy
    fault_log: str | os.PathLike[str] | None
    worker_memory: float | Literal["auto"] | None
    quarantine: str | os.PathLike[str] | Iterable[int] | None
    randomness: Literal["sample", "torch"]


NAMES = tuple(Options.__annotations__)


class Quarantine:
    """Bad samples for loaders of one dataset: where a scan says how many samples it had, only for
    datasets of that length. Read once: its file may be gone when a loader is made."""

    def __init__(self, value: Any, indices: frozenset[Any]) -> None:
        self._indices = indices
        self.length: int | None = None
        self._shown = f"{len(indices)} samples"
        if isinstance(value, str | os.PathLike):
            self.length = json.loads(Path(value).read_text()).get("length")
            self._shown += f" of {_absolute(value)}"

    def __iter__(self) -> Iterator[Any]:
        return iter(self._indices)

    def is_for(self, loader: Any) -> bool:
        try:
            return self.length is None or len(loader.dataset) == self.length
        except TypeError:  # a stream
            return False

    def __repr__(self) -> str:
        return f"Quarantine({self._shown})"


def _absolute(path: str | os.PathLike[str]) -> str:
    """Say which file it is now: a program may go to another folder before it makes a loader."""
    return os.path.abspath(path)


def of(loader_class: Any) -> dict[str, Any]:
    """Give what holds now, by name: a live view of the signature."""
    function: Any = inspect.unwrap(loader_class.__init__)  # a trainer may have wrapped it
    given: dict[str, Any] = function.__kwdefaults__
    return given


def check(given: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """Give options as they become defaults. Raises what a loader would, and for unknown names."""
    for name in given:
        if name not in NAMES:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(NAMES)}")
    new = dict(given)
    if "sample_timeout" in new:
        arguments.check_amount("sample_timeout", new["sample_timeout"], "seconds")
    if "worker_memory" in new:
        arguments.check_amount("worker_memory", new["worker_memory"], "bytes")
    if "randomness" in new:
        arguments.check_randomness(new["randomness"])
    arguments.check_fault_log(new.get("fault_log"))
    if new.get("fault_log") is not None:
        new["fault_log"] = _absolute(new["fault_log"])
    if "on_error" in new and new["on_error"] != "raise":
        new["on_error"] = policy_of(new["on_error"])  # an object of its own: see `fit`
    if new.get("quarantine") is not None:
        whole = {**present, **new}
        value, policy = new["quarantine"], policy_of(whole["on_error"])
        indices = arguments.read_quarantine(value, policy, _Anything())
        if not isinstance(value, Quarantine):
            new["quarantine"] = Quarantine(value, indices)
    return new


class _Anything:
    """A loader of batches, as far as options are checked without one."""

    dataset = batch_sampler = ()


def fit(loader: Any, present: Mapping[str, Any]) -> None:
    """Take back the defaults that do not fit a loader; those that it was given itself stay."""
    if isinstance(loader.on_error, Policy) and loader.on_error is present["on_error"]:
        try:
            arguments.check_policy(loader.on_error, loader)
        except ValueError as error:
            loader.on_error = "raise"
            _say_once(f"a default of install() is not for every loader: {error}. It raises.")
    if isinstance(loader.quarantine, Quarantine):
        fits = policy_of(loader.on_error).action != "raise" and loader.batch_sampler is not None
        if fits and loader.quarantine.is_for(loader):
            loader._quarantined = frozenset(loader.quarantine)
        else:
            loader.quarantine = None


_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        remark(f"antifreeze: {text}")


def options_of(loader: Any) -> dict[str, Any]:
    """Give the options of a loader of ours."""
    return {name: vars(loader)[name] for name in NAMES if name in vars(loader)}


@contextlib.contextmanager
def instead(present: dict[str, Any], others: Mapping[str, Any]) -> Iterator[None]:
    """Have other defaults for a while: a library builds a loader anew and forgets its options."""
    kept = {name: present[name] for name in others}
    present.update(others)
    try:
        yield
    finally:
        present.update(kept)


def keeping_options(present: dict[str, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that builds a loader anew, from its first argument."""

    @functools.wraps(function)
    def build(loader: Any, *arguments: Any, **named: Any) -> Any:
        with instead(present, options_of(loader)):
            return function(loader, *arguments, **named)

    return build
