"""Every argument, checked once, where it is given. Imports no torch: `antifreeze run` checks its
options before the script imports it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from .._core.frozen_values import frozen
from .._reporting.ranks import ranks
from ..policies import Policy

SHOWN = 80  # characters of a value in a message
SAMPLE, TORCH = "sample", "torch"  # what random draws belong to: the sample, or as in torch
RANDOMNESS = "ANTIFREEZE_RANDOMNESS"  # environment variable: what holds where nobody says otherwise


@frozen
class Rule:
    """What an argument must be, beyond what torch checks itself."""

    kinds: tuple[type, ...] | str  # the name of a class of torch's: that one, or None
    words: str


# torch takes these as they come and fails later, in a worker or in the middle of an epoch.
RULES: Mapping[str, Rule] = {
    "num_workers": Rule((Integral,), "a whole number"),
    "timeout": Rule((Real,), "a number of seconds"),
    "prefetch_factor": Rule((Integral, type(None)), "a whole number or None"),
    "generator": Rule("Generator", "a torch.Generator or None"),
}
CALLABLES = ("collate_fn", "worker_init_fn")


def check_types(arguments: Mapping[str, Any]) -> None:
    """Refuse what torch would take and stumble over later; name the argument and its value."""
    for name, rule in RULES.items():
        kinds = rule.kinds
        if isinstance(kinds, str):
            kinds = (getattr(sys.modules["torch"], kinds), type(None))
        if not isinstance(arguments[name], kinds):
            raise TypeError(
                f"{name} option should be {rule.words}, but got {_shown(name, arguments)}"
            )
    for name in CALLABLES:
        if arguments[name] is not None and not callable(arguments[name]):
            raise TypeError(f"{name} option is not callable: got {_shown(name, arguments)}")


def check_amount(name: str, value: Any, unit: str) -> None:
    """Refuse what is neither "auto", nor None, nor a positive number of a unit."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f'{name} option should be "auto", a number of {unit} or None, but got'
            f" {_shown(name, {name: value})}"
        )
    if not 0 < float(value) < float("inf"):
        raise ValueError(
            f"{name} option should be a positive number of {unit} (None: no limit), but got"
            f" {_shown(name, {name: value})}"
        )


def said_of_randomness() -> str:
    """Return what the environment says; nothing if it says nothing."""
    return os.environ.get(RANDOMNESS, "").strip().lower()


def check_randomness(value: Any) -> None:
    """Refuse what is neither "sample" nor "torch"."""
    if value not in (SAMPLE, TORCH) or not isinstance(value, str):
        source = f" (from {RANDOMNESS})" if value and value == said_of_randomness() else ""
        raise ValueError(
            'randomness option should be "sample" or "torch", but got'
            f" {_shown('randomness', {'randomness': value})}{source}"
        )


def read_size(text: str) -> float:
    """Read a size as people write it: 2GB, 500 MB, 1.5GiB, 2e9. Raises ValueError."""
    found = re.fullmatch(r"\s*(.+?)\s*(?:([kmgt])(i?)b)?\s*", text, re.IGNORECASE)
    if found is None:
        raise ValueError(f"{text!r} is no size")
    number, unit, binary = found.groups()
    power = "kmgt".index(unit.lower()) + 1 if unit else 0
    return float(number) * float((1024 if binary else 1000) ** power)


def check_fault_log(value: Any) -> None:
    """Refuse what is no path, and a file that could not be written now: the first fault may come
    after hours."""
    if value is None:
        return
    if not isinstance(value, str | os.PathLike):  # `open` would take a number for a descriptor
        raise TypeError(
            "fault_log option should be a path or None, but got"
            f" {_shown('fault_log', {'fault_log': value})}"
        )
    path = os.fspath(value)
    folder = os.path.dirname(os.path.abspath(path))
    wrong = ""
    if not path:
        wrong = "that is the name of no file"
    elif os.path.isdir(path):
        wrong = "that is a folder; name a file in it"
    elif not os.path.isdir(folder):
        wrong = f"the folder {folder} does not exist; make it first"
    elif os.path.exists(path) and not os.access(path, os.W_OK):
        wrong = "this file may not be written; name another, or change its mode"
    elif not os.path.exists(path) and not os.access(folder, os.W_OK | os.X_OK):
        wrong = f"nothing may be written in {folder}; name a file elsewhere"
    if wrong:
        raise _wrong_file("fault_log", path, wrong)


def _wrong_file(name: str, path: str, wrong: str) -> Exception:
    from ..errors import ConfigurationError  # it brings much

    return ConfigurationError(f"{name}={path!r}: {wrong}")


def check_policy(policy: Policy, loader: Any) -> None:
    """Refuse a policy that cannot be kept."""
    if not policy.watches:
        return
    streams = _is_stream(loader.dataset)
    if streams and (policy.action != "skip" or policy.retries):
        raise ValueError(
            f"on_error={policy.action!r} is for batches of a map-style dataset: nobody can ask the"
            ' stream of an iterable one for a sample again, or for another; "skip" goes on without'
        )
    if loader.batch_sampler is None and not streams:
        raise ValueError(
            f"on_error={policy.action!r} is for batches: without them (batch_size=None) there is"
            " nothing to be shorter or filled up"
        )
    if policy.action == "skip" and (size := ranks().world_size) > 1:
        raise ValueError(
            f'on_error="skip" in a run of {size} processes would make their batches differ in'
            ' number or size, and one of them wait for ever; on_error="replace" keeps both'
        )


def read_quarantine(value: Any, policy: Policy, loader: Any) -> frozenset[Any]:
    """Give the samples that must not be loaded: those listed, or those in a file of a scan."""
    if value is None:
        return frozenset()
    if loader.batch_sampler is None or _is_stream(loader.dataset):
        raise ValueError(
            "quarantine is for batches of a map-style dataset: samples of a stream have no index"
        )
    if policy.action == "raise":
        raise ValueError(
            'quarantine needs to know what to do about its samples: on_error="replace" or "skip"'
        )
    if isinstance(value, str | os.PathLike):
        try:
            found = json.loads(Path(value).read_text())
            return frozenset(each["index"] for each in found["bad"])
        except OSError as error:
            wrong = "there is no such file; `antifreeze scan` writes one, -o says where"
            if not isinstance(error, FileNotFoundError):
                wrong = f"it cannot be read: {error.strerror}"
            raise _wrong_file("quarantine", os.fspath(value), wrong) from None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"quarantine={os.fspath(value)!r} is no file of `antifreeze scan`:"
                f" {type(error).__name__}: {error}"
            ) from error
    try:
        return frozenset(value)
    except TypeError as error:
        raise TypeError(
            "quarantine option should be a file of `antifreeze scan` or some indices, but got"
            f" {_shown('quarantine', {'quarantine': value})}"
        ) from error


def _is_stream(dataset: Any) -> bool:
    torchs = sys.modules.get("torch.utils.data")
    return torchs is not None and isinstance(dataset, torchs.IterableDataset)


def check_together(arguments: Mapping[str, Any]) -> None:
    """Refuse what is fine by itself but not together, after torch's own checks of that kind."""
    if arguments["timeout"] > 0 and arguments["num_workers"] == 0:
        raise AssertionError(  # torch's type, which it raises at the first loop
            "timeout needs workers: num_workers=0 requires timeout == 0;"
            f" got {_shown('timeout', arguments)}"
        )
    if arguments["prefetch_factor"] == 0 and arguments["num_workers"] > 0:
        raise AssertionError(  # torch's type, which it raises at the first loop
            "prefetch_factor must be greater than 0: with no batch under way a worker has"
            f" nothing to do; got {_shown('prefetch_factor', arguments)}"
        )


def name_values(error: Exception, arguments: Mapping[str, Any]) -> None:
    """Add to torch's message the values of the arguments it speaks of, where it leaves them out."""
    if len(error.args) != 1 or not isinstance(error.args[0], str):
        return
    message: str = error.args[0]
    spoken_of = [name for name in arguments if re.search(rf"\b{name}\b", message)]
    missing = [name for name in spoken_of if f"got {name}=" not in message]
    if missing:
        error.args = (f"{message}\n  got {', '.join(_shown(name, arguments) for name in missing)}",)


def _shown(name: str, arguments: Mapping[str, Any]) -> str:
    text = repr(arguments[name])
    return f"{name}={text if len(text) <= SHOWN else text[:SHOWN] + ' ...'}"
